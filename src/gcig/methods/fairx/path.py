"""The trade-off: a family of models over budgets, each student starting at its neighbour."""

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from gcig._arguments import InputError
from gcig._files import write_atomically
from gcig.methods.fairx.estimator import finish, keep_plain, plain_network
from gcig.methods.fairx.measure import Setting
from gcig.methods.fairx.student import train_student
from gcig.methods.parameters import NON_NEGATIVE, POSITIVE
from gcig.methods.training_data import TrainingData
from gcig.metrics.evaluation import evaluate
from gcig.metrics.utility import MAIN
from gcig.records.trade_off import TradeOffPoint, TradeOffRecord
from gcig.report.displays import ParetoDisplay
from gcig.report.trade_off_page import family_display, trade_off_page
from gcig.training.loop import Outcome

_FACTORS = (1 / 3, 1.0, 3.0, 10.0)  # of the estimator's budget: the default of the parameter `budgets`


class TradeOff:
    """A family of models along the trade-off, as returned by ``path`` of the FairX estimators.

    Attributes
    ----------
    models : list of estimators
        Fitted models: the plain network first, then one per budget or bound.
    frame : DataFrame
        One row per model: its budget and bound, the task's utility, outcome gap, reason gap and its varying
        part, GCIG, effective columns and the share of the budget used, on the held-out rows.

    Examples
    --------
    >>> import gcig
    >>> data = gcig.load_dataset("german", include_sensitive=False)
    >>> model = gcig.FairXClassifier(max_epochs=10, repair="always", random_state=0)
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")  # small tables use more of a budget on held-out rows
    ...     family = model.path(
    ...         data.X, data.y, sensitive_features=data.sensitive_features, budgets=[0.03, 0.1]
    ...     )
    >>> family.frame["budget"].tolist()
    [0.0, 0.03, 0.1]
    >>> family.models[1].predict(data.X).shape
    (1000,)
    """

    def __init__(
        self, models: Sequence[Any], rows: tuple[Any, Any, Any], reference: tuple[Any, Any, Any]
    ) -> None:
        self.models, self._rows, self._reference = list(models), rows, reference
        self._record: TradeOffRecord | None = None

    @property
    def frame(self) -> pd.DataFrame:
        """One row per model."""
        return pd.DataFrame([_row(number, model) for number, model in enumerate(self.models)])

    def select(self, *, max_gap: float | None = None, max_reason_gap: float | None = None) -> Any:
        """Return the model with the best utility on held-out rows within the bounds.

        Raises
        ------
        InputError
            If no model is within them; the message names the closest one.
        """
        limits = {"outcome_gap": max_gap, "reason_gap": max_reason_gap}
        bounds = {name: bound for name, bound in limits.items() if bound is not None}
        if not bounds:
            raise InputError("select needs a bound: pass max_gap or max_reason_gap.")
        frame = self.frame[~self.frame["collapsed"]]
        excess = np.max([frame[name] / bound for name, bound in bounds.items()], axis=0)
        within = frame[excess <= 1]
        if len(within):
            utility = MAIN[self.models[0].task_.key]
            return self.models[int(within.sort_values(utility, ascending=False)["model"].iloc[0])]
        near = frame.iloc[int(np.nanargmin(excess))]
        asked = " and ".join(f"{name} of at most {bound:g}" for name, bound in bounds.items())
        figures = ", ".join(f"{name} {near[name]:.3f}" for name in bounds)
        raise InputError(
            f"no model of the family has {asked} on the held-out rows: the nearest is model "
            f"{int(near['model'])} ({figures}). Loosen the bounds, or train with larger budgets."
        )

    @property
    def record(self) -> TradeOffRecord:
        """The measurements behind the page."""
        if self._record is None:
            self._record = measure_family(self.models, self._rows, self._reference)
        return self._record

    def measure(self, X: Any, y: Any, *, sensitive_features: Any, **about: str) -> "TradeOff":
        """Return the same models, whose page is measured on other rows, such as rows nothing was chosen
        on.
        """
        measured = TradeOff(self.models, (X, y, sensitive_features), self._reference)
        measured._record = measure_family(self.models, measured._rows, self._reference, about)
        return measured

    def plot(self, ax: Any = None) -> ParetoDisplay:
        """Plot the task's utility against the reason gap, with intervals."""
        return family_display(self.record).plot(ax)

    def to_html(self, path: str | Path | None = None, *, title: str = "", folder: str = "") -> str:
        """Return a self-contained HTML page about the family, and write it to ``path`` if given."""
        text = trade_off_page(self.record, title=title or "Trade-off of a family of models", folder=folder)
        if path is not None:
            write_atomically(path, text)
        return text

    def save(self, path: str | Path, *, title: str = "") -> None:
        """Write every model (``models/0`` and so on), the record and the page."""
        folder = Path(path)
        (folder / "models").mkdir(parents=True, exist_ok=True)
        for number, model in enumerate(self.models):
            model.save(folder / "models" / str(number))
        write_atomically(folder / "tradeoff.json", self.record.to_json(indent=1) + "\n")
        self.to_html(folder / "tradeoff.html", title=title, folder=str(path))

    def __repr__(self) -> str:
        frame, utility = self.frame, MAIN[self.models[0].task_.key]
        return (
            f"<TradeOff of {len(frame)} models: {utility} {frame[utility].max():.4f} to "
            f"{frame[utility].min():.4f}, reason gap {frame['reason_gap'].max():.3f} to "
            f"{frame['reason_gap'].min():.3f}>"
        )

    def _repr_html_(self) -> str:
        return str(self.frame.to_html(index=False, float_format="{:.3f}".format))


def _row(number: int, model: Any) -> dict[str, Any]:
    measured, utility = model.validation_, MAIN[model.task_.key]
    names = ("outcome_gap", "reason_gap", "reason_gap_varying", "gcig", "columns", "attribute_effect")
    return {
        "model": number,
        "budget": float(model.budget),
        "max_gap": model.max_gap,
        utility: measured[utility],
        **{name: measured.get(name, np.nan) for name in names},
        "budget_used": model.budget_used_,
        "collapsed": model.collapsed_,
    }


def train_family(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    sensitive_features: Any,
    sample_weight: Any = None,
    budgets: Any = None,
    max_gaps: Any = None,
) -> TradeOff:
    """Train the family of an estimator; see `FairX.path`."""
    if not estimator.holds_out:
        raise InputError("path: a trade-off is measured on held-out rows. Set early_stopping=True.")
    listed, bounds = _checked(budgets, "budgets", NON_NEGATIVE), _checked(max_gaps, "max_gaps", POSITIVE)
    centre = estimator.budget or 0.03
    if not listed and not bounds:
        listed = [factor * centre for factor in _FACTORS]
    aims: list[dict[str, Any]] = [{"budget": each, "max_gap": None} for each in sorted({*listed} - {0.0})]
    aims += [{"budget": centre, "max_gap": each} for each in sorted(bounds, reverse=True)]
    fitted = estimator.__sklearn_clone__().set_params(max_gap=None, warm_start=False)
    trained: list[tuple[Any, nn.Module]] = []
    parts: dict[str, Any] = {}

    def train_models(
        network: nn.Module, data: TrainingData, generator: torch.Generator
    ) -> tuple[nn.Module, Outcome]:
        if data.validation is None:
            raise InputError(
                "path: no rows could be held out to measure a trade-off on. Provide more rows, or a larger "
                "validation_fraction."
            )
        plain, outcome = plain_network(Setting.of(fitted, data), network, generator)
        start = None
        for aim in [{"budget": 0.0, "max_gap": None}, *aims]:
            model = fitted.__sklearn_clone__().set_params(**aim)
            model.__dict__.update({name: value for name, value in vars(fitted).items() if name.endswith("_")})
            setting = Setting.of(model, data)
            if not aim["budget"]:
                model.check_, model.bounds_ = None, {}
                keep_plain(setting, deepcopy(plain))
                trained.append((model, deepcopy(plain)))
                continue
            student = train_student(plain, setting, generator, start=start)
            start = deepcopy(student.network)
            model.check_, model.bounds_ = None, {}
            finished = finish(setting, plain, student)
            model.history_ = pd.DataFrame([epoch.to_dict() for epoch in student.outcome.history])
            trained.append((model, finished))
        parts["kept"] = data
        return plain, outcome

    fitted.fit_by(train_models, X, y, sensitive_features=sensitive_features, sample_weight=sample_weight)
    models = []
    for model, network in trained:
        learned = {name: value for name, value in vars(fitted).items() if name.endswith("_")}
        model.__dict__.update({name: value for name, value in learned.items() if name not in vars(model)})
        for name in ("feature_names_in_", "n_features_in_", "threshold_", "task_", "n_epochs_", "diverged_"):
            if name in learned:
                setattr(model, name, learned[name])
        model.module_ = fitted._finish_network(deepcopy(network)).cpu().eval()
        if getattr(fitted, "threshold", None) == "f1":
            model.threshold_ = model._choose_threshold(parts["kept"])
        models.append(model)
    data = parts["kept"]
    rows = _as_table(fitted, data.held_out_table, data.validation)
    return TradeOff(models, rows, _as_table(fitted, data.table, data.training))


def _as_table(model: Any, table: pd.DataFrame, rows: Any) -> tuple[Any, Any, Any]:
    """Return rows as inputs, labels and groups of the user."""
    labels, groups = rows.labels.cpu().numpy(), np.asarray(model.groups_, dtype=object)
    y = model.classes_[labels] if hasattr(model, "classes_") else labels
    return table, y, groups[rows.groups.cpu().numpy()]


def _checked(values: Any, name: str, rule: Any) -> list[float]:
    listed = [] if values is None else list(values)
    for value in listed:
        rule.check(name, value)
    return [float(value) for value in listed]


def measure_family(
    models: Sequence[Any],
    rows: tuple[Any, Any, Any],
    reference: tuple[Any, Any, Any],
    about: dict[str, str] | None = None,
) -> TradeOffRecord:
    """Measure models on some rows, and compare each with the plain network."""
    X, y, groups = rows
    task = models[0].task_.key
    plain, utility = np.asarray(models[0].predict(X)), MAIN[task]
    points: list[TradeOffPoint] = []
    for number, model in enumerate(models):
        evaluation = evaluate(model, X, y, sensitive_features=groups, reference=reference, n_bootstrap=200)
        first = points[0].evaluation if points else evaluation
        changed = np.nan if task == "number" else float(np.mean(np.asarray(model.predict(X)) != plain))
        points.append(
            TradeOffPoint(
                number=number,
                budget=float(model.budget),
                max_gap=np.nan if model.max_gap is None else float(model.max_gap),
                evaluation=evaluation,
                lost=first.difference(evaluation).figure(utility).interval,
                changed=changed,
            )
        )
    return TradeOffRecord(
        points=tuple(points),
        utility=utility,
        n_rows=len(plain),
        outcome=models[0].outcome,
        about=dict(about or {}),
    )
