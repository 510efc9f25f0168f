"""The trade-off between AUC, GCIG and the outcome gap: a family of models trained one from another."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import nn

from gcig._files import write_atomically
from gcig._validation import InputError, check_groups, check_labels
from gcig.core.batch import GroupedBatch
from gcig.methods.fairx.bounds import fair_gap
from gcig.methods.fairx.guards import columns_changed
from gcig.methods.fairx.selection import HeldOut, make_held_out, measure
from gcig.methods.fairx.training import Candidate, Student
from gcig.methods.training_data import TrainingData
from gcig.metrics.outcome import evaluate_predictions
from gcig.metrics.ranking import auc_difference, best_f1_threshold, logit_of
from gcig.records.evaluation import decides_alike, has_collapsed
from gcig.records.trade_off import TradeOffPoint, TradeOffRecord
from gcig.report.charts import Picture, pareto, standalone
from gcig.report.trade_off_page import family_points, trade_off_page
from gcig.training.loop import Outcome

if TYPE_CHECKING:
    from gcig.methods.fairx.estimator import FairXClassifier

# A grid of weights relative to the estimator's. Training visits it row by row in alternating directions, so
# that every model starts at a neighbour; the outcome weight changes within a row.
_GCIG_FACTORS, _OUTCOME_FACTORS = (0.3, 1.0, 4.0), (0.3, 2.0, 12.0)
_STAGE_SHARE = 0.25  # epochs of a model that starts at its neighbour, relative to a whole training
_GCIG_WEIGHT, _OUTCOME_WEIGHT = 0.1, 0.05  # the centre of the grid if the estimator's weight is 0
_AUC_SCALE = 2.0  # a trade-off may show models that lose more AUC than a single fit allows, by this factor


class TradeOff:
    """A family of models along the trade-off, as returned by `FairXClassifier.path`.

    Attributes
    ----------
    models : list of FairXClassifier
        Fitted models: the network without fairness terms first, then the others by decreasing AUC.
    record : TradeOffRecord
        The models' measurements on the held-out rows, in the same order.

    Examples
    --------
    >>> import gcig
    >>> data = gcig.load_dataset("german", include_sensitive=False)
    >>> model = gcig.FairXClassifier(max_epochs=1, random_state=0)
    >>> family = model.path(data.X, data.y, sensitive_features=data.sensitive_features)
    >>> list(family.frame.columns[:5])
    ['model', 'weight_gcig', 'weight_outcome', 'auc', 'auc_lost']
    >>> chosen = family.select(max_gcig=0.5)
    >>> chosen.predict(data.X).shape
    (1000,)
    """

    def __init__(
        self, models: Sequence["FairXClassifier"], record: TradeOffRecord, held_out: HeldOut
    ) -> None:
        self.models, self.record, self._held_out = list(models), record, held_out

    def __getstate__(self) -> dict[str, Any]:
        # A family that was trained on a GPU can be opened on a machine without one.
        return {**self.__dict__, "_held_out": self._held_out.to("cpu")}

    @property
    def frame(self) -> pd.DataFrame:
        """One row per model: weights, AUC, GCIG and outcome gap with confidence limits, and decisions.

        ``gcig_members`` serves to compare models of the family: unlike that of `gcig.evaluate`, it is not
        corrected for the noise of a few members, and is therefore higher.
        """
        front = {point.number for point in self.record.front}
        return pd.DataFrame([_row(point, on_front=point.number in front) for point in self.record.points])

    def select(self, *, max_gcig: float | None = None, max_eo_gap: float | None = None) -> "FairXClassifier":
        """Return the model with the highest AUC whose upper 90 % confidence limits are within the bounds.

        Raises
        ------
        InputError
            If no model meets the bounds; the message names the closest one.
        """
        if max_gcig is None and max_eo_gap is None:
            raise InputError("select needs a bound: pass max_gcig or max_eo_gap.")
        bounds = {"max_gcig": max_gcig, "max_eo_gap": max_eo_gap}
        best = self.record.best(**bounds)
        if best is not None:
            return self.models[best.number]
        near = self.record.nearest(**bounds)
        asked = " and ".join(f"{name}={bound:g}" for name, bound in bounds.items() if bound is not None)
        raise InputError(
            f"no model of the family meets {asked} with confidence: the nearest is model {near.number}, with "
            f"upper limits of {near.gcig_limit:.3f} for GCIG and {near.gap_limit:.3f} for the outcome gap. "
            f"With {self.record.n_rows:,} rows, even an exactly fair model has an upper limit of about "
            f"{self.record.fair_limit:.3f} for the gap. Loosen the bounds, or measure on more rows."
        )

    def measure(self, X: Any, y: Any, *, sensitive_features: Any, **about: str) -> "TradeOff":
        """Return the same models, measured on other rows, such as rows that no model was selected on.

        The references come from all rows passed to `path`, held-out rows included, as in `gcig.evaluate`.
        """
        first = self.models[0]
        labels = check_labels(y, n_rows=len(y), classes=tuple(first.classes_))
        groups = check_groups(sensitive_features, n_rows=len(labels.codes), names=first.groups_)
        device = self._held_out.training.inputs.device
        rows = GroupedBatch(
            torch.from_numpy(first.encode(X)).to(device),
            torch.from_numpy(np.asarray(labels.codes, dtype=np.int64)).to(device),
            torch.from_numpy(np.asarray(groups.codes, dtype=np.int64)).to(device),
        )
        fitted = self._held_out.training
        if self._held_out.is_held_out:
            fitted = GroupedBatch.join([fitted, self._held_out.rows])
        record = measure_family(self.models, replace(self._held_out, rows=rows, training=fitted), about)
        return TradeOff(self.models, record, self._held_out)

    def plot(self) -> Picture:
        """Plot AUC against GCIG and against the outcome gap, with upper confidence limits."""
        points = family_points(self.record)
        floor = self.record.points[0].evaluation.eo_noise_floor
        return Picture(standalone(pareto(points, noise_floor=floor)))

    def to_html(self, path: str | Path | None = None, *, title: str = "", folder: str = "") -> str:
        """Return a self-contained HTML page about the family, and write it to ``path`` if given."""
        text = trade_off_page(self.record, title=title or "Trade-off of a family of models", folder=folder)
        if path is not None:
            write_atomically(path, text)
        return text

    def save(self, path: str | Path, *, title: str = "") -> None:
        """Write every model (``models/0`` and so on), ``tradeoff.json`` and ``tradeoff.html`` to a folder."""
        folder = Path(path)
        (folder / "models").mkdir(parents=True, exist_ok=True)
        for number, model in enumerate(self.models):
            model.save(folder / "models" / str(number))
        write_atomically(folder / "tradeoff.json", self.record.to_json(indent=1) + "\n")
        self.to_html(folder / "tradeoff.html", title=title, folder=str(path))

    def __repr__(self) -> str:
        points = self.record.points
        return (
            f"<TradeOff of {len(points)} models: AUC {points[0].evaluation.auc:.4f} to "
            f"{min(point.evaluation.auc for point in points):.4f}, GCIG {points[0].evaluation.gcig:.3f} to "
            f"{min(point.evaluation.gcig for point in points):.3f}>"
        )


def _row(point: TradeOffPoint, *, on_front: bool) -> dict[str, Any]:
    found = point.evaluation
    return {
        "model": point.number,
        **{f"weight_{term}": weight for term, weight in point.weights.items()},
        "auc": found.auc,
        "auc_lost": point.auc_lost.value,
        "gcig": found.gcig,
        "gcig_limit": point.gcig_limit,
        "gcig_members": found.gcig_members,
        "outcome_gap": point.gap,
        "outcome_gap_limit": point.gap_limit,
        "f1": found.f1,
        "balanced_accuracy": found.balanced_accuracy,
        "selection_rate": found.selection_rate,
        "changed": point.gained + point.lost,
        "attribute_effect": found.attribute_effect,
        "on_front": on_front,
    }


def train_trade_off(
    estimator: "FairXClassifier", X: Any, y: Any, *, sensitive_features: Any, sample_weight: Any = None
) -> TradeOff:
    """Train the family of an estimator; see `FairXClassifier.path`."""
    if not estimator.holds_out:
        raise InputError(
            "path: a trade-off is measured on a held-out set, but these parameters hold out no rows. Set "
            "early_stopping=True and strategy='distil'."
        )
    fitted = estimator.__sklearn_clone__().set_params(max_gcig=None, max_eo_gap=None, warm_start=False)
    trained: list[tuple[Student, list[Candidate]]] = []

    def train_models(network: nn.Module, data: TrainingData, generator: torch.Generator) -> Outcome:
        settings = fitted.training_settings(len(data.training))
        settings = replace(
            settings,
            lambda_ig=settings.lambda_ig or _GCIG_WEIGHT,
            lambda_fair=settings.lambda_fair or _OUTCOME_WEIGHT,
            max_auc_drop=_AUC_SCALE * settings.max_auc_drop,
        )
        if data.validation is None:
            raise InputError(
                "path: no rows could be held out to measure a trade-off on. Provide more rows, or a larger "
                "validation_fraction."
            )
        student = Student.of_teacher(
            network,
            fitted.training_targets(data),
            settings,
            generator=generator,
            held_out=make_held_out(data, settings, fitted.encoder_.origin_),
            trained=None if fitted.module is not None and fitted.teacher is None else False,
            customise=estimator.build_objective,
        )
        weights = family_weights(student.settings.lambda_ig, student.settings.lambda_fair)
        trained.append((student, train_family(student, weights)))
        return trained[-1][1][-1].outcome

    fitted.fit_by(train_models, X, y, sensitive_features=sensitive_features, sample_weight=sample_weight)
    ((student, candidates),) = trained
    models = make_models(fitted, student, candidates)
    return TradeOff(models, measure_family(models, student.held_out), student.held_out)


def family_weights(gcig: float, outcome: float) -> list[dict[str, float]]:
    """Return the weights of the family in the order of training, around the estimator's weights.

    >>> [round(weights["outcome"], 2) for weights in family_weights(0.1, 0.05)[:5]]
    [0.01, 0.1, 0.6, 0.6, 0.1]
    """
    weights = []
    for row, factor in enumerate(_GCIG_FACTORS):
        outcomes = _OUTCOME_FACTORS if row % 2 == 0 else _OUTCOME_FACTORS[::-1]
        weights += [{"gcig": factor * gcig, "outcome": each * outcome} for each in outcomes]
    return weights


def train_family(student: Student, weights: Sequence[Mapping[str, float]]) -> list[Candidate]:
    """Train one candidate per set of weights, each starting at the previous one."""
    n_epochs = max(1, round(_STAGE_SHARE * student.settings.loop.max_epochs))
    candidates: list[Candidate] = []
    for each in weights:
        start = candidates[-1] if candidates else None
        candidates.append(student.train(each, n_epochs=None if start is None else n_epochs, start=start))
    return candidates


def make_models(
    fitted: "FairXClassifier", student: Student, candidates: Sequence[Candidate]
) -> list["FairXClassifier"]:
    """Return fitted estimators: one with the teacher's network, then one per acceptable candidate."""
    teacher = student.teacher
    plain = Candidate(
        state=teacher.network.state_dict(),
        weights={"gcig": 0.0, "outcome": 0.0},
        measured={**teacher.measured, "auc_lost": 0.0},
        outcome=Outcome((), 0),
        within_limits=True,
        braked=False,
    )
    # A candidate of epoch 0 equals its neighbour: no epoch within the limits was better.
    kept = [each for each in candidates if each.within_limits and each.outcome.best_epoch > 0]
    kept.sort(key=lambda candidate: candidate.measured["auc_lost"])
    return [_model(fitted, student, candidate) for candidate in (plain, *kept)]


def _model(fitted: "FairXClassifier", student: Student, candidate: Candidate) -> "FairXClassifier":
    measured = candidate.measured
    weights = {"lambda_ig": candidate.weights["gcig"], "lambda_fair": candidate.weights["outcome"]}
    model = fitted.__sklearn_clone__().set_params(**weights, max_gcig=None, max_eo_gap=None)
    model.__dict__.update({name: value for name, value in fitted.__dict__.items() if name.endswith("_")})
    model.module_ = deepcopy(student.network).cpu().eval()
    model.module_.load_state_dict(candidate.state)
    model.weights_, model.braked_, model.bounds_ = candidate.weights, candidate.braked, {}
    model.plain_, model.validation_, model.given_ = student.teacher.measured, measured, {}
    model.collapsed_ = has_collapsed(measured["auc"])
    model.decides_alike_ = decides_alike(measured["decided_alike"])
    model.changed_columns_ = columns_changed(measured["columns"], model.plain_["columns"])
    model.history_ = pd.DataFrame([epoch.to_dict() for epoch in candidate.outcome.history])
    model.n_epochs_ = candidate.outcome.best_epoch
    model.threshold_ = (
        float(fitted.threshold) if fitted.threshold != "f1" else _best_threshold(student, candidate)
    )
    return model


def _best_threshold(student: Student, candidate: Candidate) -> float:
    student.network.load_state_dict(candidate.state)
    scores = student.held_out.logits(student.network)
    return best_f1_threshold(torch.sigmoid(scores.double()), student.held_out.rows.labels)


def measure_family(
    models: Sequence["FairXClassifier"], held_out: HeldOut, about: Mapping[str, str] | None = None
) -> TradeOffRecord:
    """Measure models on the rows of a held-out set, and compare the decisions of every pair."""
    rows, first = held_out.rows, models[0]
    labels = rows.labels.cpu().numpy()
    groups = np.asarray(first.groups_, dtype=object)[rows.groups.cpu().numpy()]
    device = rows.inputs.device
    scores: list[NDArray[np.float64]] = []
    decisions: list[NDArray[np.bool_]] = []
    points = []
    for number, model in enumerate(models):
        network = deepcopy(model.module_).to(device)
        found = held_out.logits(network).double()
        scores.append(found.cpu().numpy())
        probability = torch.sigmoid(found).cpu().numpy()
        decisions.append(probability >= model.threshold_)
        evaluation = evaluate_predictions(
            labels, probability, sensitive_features=groups, threshold=model.threshold_
        )
        settings = replace(held_out.settings, cut=logit_of(model.threshold_))
        measured = measure(network, replace(held_out, settings=settings), found.to(rows.inputs.dtype))
        points.append(
            TradeOffPoint(
                number=number,
                weights=dict(model.weights_),
                evaluation=replace(
                    evaluation,
                    gcig=measured["gcig"],
                    gcig_members=measured["gcig_members"],
                    effective_columns=measured["columns"],
                    reference_offset=measured["reference_offset"],
                    faithfulness=measured["faithfulness"],
                    attribute_effect=measured["attribute_effect"],
                    completeness=measured["completeness"],
                ),
                gap=measured["outcome_gap"],
                gap_limit=measured["outcome_gap_limit"],
                gcig_limit=measured["gcig_limit"],
                auc_lost=auc_difference(labels, scores[0], scores[-1]),
                gained=float(np.mean(decisions[-1] & ~decisions[0])),
                lost=float(np.mean(~decisions[-1] & decisions[0])),
            )
        )
    return TradeOffRecord(
        points=tuple(points),
        changes=tuple(tuple(float(np.mean(a != b)) for b in decisions) for a in decisions),
        n_rows=len(rows),
        outcome=held_out.settings.outcome,
        fair_limit=fair_gap(torch.from_numpy(decisions[0]).to(rows.inputs) - 0.5, held_out)[0],
        about=dict(about or {}),
    )
