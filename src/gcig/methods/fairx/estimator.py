"""FairX: networks whose reasons do not depend on the group, within a budget of the plain network."""

import math
from copy import deepcopy
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from gcig._arguments import InputError, Rule, one_of, warn_caller
from gcig.adapters import adapt
from gcig.core.attribution import ATTRIBUTIONS
from gcig.core.references import COMBINATIONS, REFERENCES
from gcig.core.task import KEEP_OUTCOMES, Binary, Task
from gcig.methods.base import BINS, NetworkClassifier, NetworkRegressor, train_plainly
from gcig.methods.fairx.bounds import check_bounds
from gcig.methods.fairx.check import Check, Dependence, check_network
from gcig.methods.fairx.measure import Setting, measure
from gcig.methods.fairx.student import Repair, Student, knowledge, train_student
from gcig.methods.fairx.warnings import (
    NothingToRepairWarning,
    warn_of_attribute,
    warn_of_bound,
    warn_of_budget,
    warn_of_collapse,
    warn_of_columns,
    warn_of_reasons,
    warn_of_threshold,
    warn_of_unshowable,
)
from gcig.methods.parameters import BOUND, FRACTION, NON_NEGATIVE, Parametrised, parameter
from gcig.methods.training_data import TrainingData
from gcig.metrics.utility import best_f1_threshold, has_collapsed
from gcig.models.mlp import with_affine
from gcig.records.trade_off import Bound
from gcig.tables.encoding import TableEncoder
from gcig.training.batches import all_outputs
from gcig.training.loop import DivergenceError, Outcome
from gcig.training.objective import Objective

if TYPE_CHECKING:
    from gcig.methods.fairx.path import TradeOff

# Definitions of `given_` and `decides_alike_`, not tuning:
_KNOWS = 0.95  # of the loss of a constant: an untrained network may be a little better by luck
_ALIKE = 0.995  # a model that decides this share of the rows alike is warned of


def _is_model_or_none(value: Any) -> bool:
    answers = callable(value) or hasattr(value, "predict")
    return value is None or (answers and not isinstance(value, type))


def _is_attribution(value: Any) -> bool:
    return bool(ATTRIBUTIONS[value]) if isinstance(value, str) else hasattr(value, "attribute")


def _are_names(value: Any) -> bool:
    if value is None or isinstance(value, str):
        return True
    return isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)


class _Fitted:
    """What FairX learns besides the network."""

    check_: Check | None
    budget_used_: float
    budget_used_interval_: tuple[float, float]
    bounds_: dict[str, Bound]
    plain_: dict[str, float]
    given_: dict[str, float]
    validation_: dict[str, float]
    collapsed_: bool
    decides_alike_: bool
    changed_columns_: bool
    repaired_: bool
    weights_: dict[str, float]


class FairX(Parametrised, _Fitted):
    """The parameters of `FairXClassifier` and `FairXRegressor`, and the sequence of a fit.

    See `gcig.methods.fairx.student` for what is trained, and `gcig.methods.fairx.check` for the check before.
    """

    fitted_records: ClassVar[tuple[type, ...]] = (Bound, Check, Dependence)
    fitted_attributes: ClassVar[tuple[str, ...]] = tuple(_Fitted.__annotations__)

    budget: float = parameter(
        default=0.03,
        rule=NON_NEGATIVE,
        doc="""How far the student's predictions may move from the plain network's: the divergence on training
        rows, as a share of what the plain network knows (the divergence of predicting the same for everyone).
        A limit, not a target. 0 gives the plain network.""",
    )
    max_gap: float | None = parameter(
        default=None,
        rule=BOUND,
        doc="""A bound on the outcome gap of decisions. Up to twice the budget is spent on it; a confidence
        statement about it stands in `bounds_`.""",
    )
    max_reason_gap: float | None = parameter(
        default=None,
        rule=BOUND,
        doc="""A bound on the reason gap (relative to members, in units of the spread of the score). Up to
        twice the budget is spent on it; `max_gap` comes first.""",
    )
    min_columns: float = parameter(
        default=0.65,
        rule=FRACTION,
        doc="""The share of the plain network's effective columns that the student keeps: equal reasons by
        using few columns do not count.""",
    )
    legitimate: Any = parameter(
        default=None,
        rule=Rule("None, a column or a list of columns", _are_names),
        doc="""Columns in which every group gets the same reference: their differences never count, and any
        dependence that is left is a different standard.""",
    )
    repair: str = parameter(
        default="auto",
        rule=one_of("auto", "always"),
        doc="""``"auto"`` repairs what depends on the group beyond chance, and keeps the plain network if
        nothing does; ``"always"`` skips the check.""",
    )
    outcome: str = parameter(
        default="equalized_odds", rule=one_of(*KEEP_OUTCOMES), doc="The gap of decisions that is lowered."
    )
    outcome_weight: float = parameter(
        default=0.25, rule=NON_NEGATIVE, doc="Weight of the outcome gap relative to the reason gap."
    )
    standards_weight: float = parameter(
        default=2.0,
        rule=NON_NEGATIVE,
        doc="""Weight of the varying part of the reason gap, which is 0 if one standard is applied to
        everybody. Without it, training on the gap can create different standards.""",
    )
    references: str = parameter(
        default="both",
        rule=Rule(
            "'both', 'means', 'members' or a registered kind of references",
            lambda value: all(map(REFERENCES.__getitem__, COMBINATIONS.get(value, (value,)))),  # or fails
            ("both", "means", "members"),
        ),
        doc="""Whom people are compared with in training: the ``"means"`` of each label and group, random
        ``"members"`` of them, or ``"both"``.""",
    )
    attribution: Any = parameter(
        default="integrated_gradients",
        rule=Rule("the name of an attribution, or an object with the method attribute", _is_attribution),
        doc="""How the score is divided among columns. Attributions that are not complete have no varying
        part, and no check before training.""",
    )
    teacher: Any = parameter(
        default=None,
        rule=Rule("a fitted model or None", _is_model_or_none),
        doc="""A fitted model of the same task whose predictions are kept: anything that `gcig.adapt` accepts,
        such as boosted trees. It is first distilled into the network, to which the budget then refers.
        Numeric columns are encoded in bins, as with ``preprocessing="binned"``. None trains the plain network
        on labels.""",
    )

    @classmethod
    def from_module(cls, module: nn.Module, **parameters: Any) -> Self:
        """Return an estimator that repairs a trained network, which is the plain network of the fit.

        Rows are passed to the network unchanged unless ``preprocessing="table"`` is given. The network is
        copied and not modified. After `fit`, `given_` has its measurements before the repair, `validation_`
        those after it, and `changes_` compares the two. A network that does not predict the labels yet is
        trained first.

        Examples
        --------
        >>> import gcig
        >>> network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        >>> gcig.FairXClassifier.from_module(network, max_epochs=10).preprocessing
        'none'
        """
        return cls(module=module, **{"preprocessing": "none", **parameters})

    def path(
        self,
        X: Any,
        y: Any,
        *,
        sensitive_features: Any = None,
        sample_weight: Any = None,
        budgets: Any = None,
        max_gaps: Any = None,
    ) -> "TradeOff":
        """Train a family of models, one per budget, each starting at its neighbour.

        Parameters
        ----------
        X, y, sensitive_features, sample_weight
            As in `fit`.
        budgets : sequence of float, optional
            By default a third of the estimator's budget, the budget itself, and three and ten times as much.
        max_gaps : sequence of float, optional
            Bounds on the outcome gap, each with the estimator's budget.

        Returns
        -------
        TradeOff
            ``.models``, ``.frame``, ``.select(...)``, ``.plot()`` and ``.save(folder)``. The estimator itself
            is not changed.
        """
        from gcig.methods.fairx.path import train_family  # which imports this module

        return train_family(
            self,
            X,
            y,
            sensitive_features=sensitive_features,
            sample_weight=sample_weight,
            budgets=budgets,
            max_gaps=max_gaps,
        )

    def build_objective(self, objective: Objective) -> Objective:
        """Return the objective that the student is trained on; override it to replace or add terms.

        Parameters
        ----------
        objective : Objective
            The default terms: ``"prediction"``, ``"reasons"``, ``"standards"``, ``"columns"``, ``"size"``,
            ``"outcome"``, ``"selection"`` and ``"attribute"``. Terms that are not used are missing.

        Examples
        --------
        >>> import gcig
        >>> class SmallScores(gcig.FairXClassifier):
        ...     def build_objective(self, objective):
        ...         return objective.with_term("size", lambda batch: batch.outputs.square().mean(), 0.01)
        """
        return objective

    def __sklearn_clone__(self) -> Self:
        """Return an unfitted copy that shares the fitted teacher, which `sklearn.base.clone` would reset."""
        parameters = self.get_params(deep=False)
        teacher = parameters.pop("teacher")
        copy = type(self)(**{name: clone(value, safe=False) for name, value in parameters.items()})
        copy.teacher = teacher
        if hasattr(self, "_metadata_request"):  # as scikit-learn's own clone does
            copy._metadata_request = deepcopy(self._metadata_request)
        return copy

    @property
    def changes_(self) -> pd.DataFrame:
        """The effect of training on the held-out set: one row per measurement: before, after, change."""
        check_is_fitted(self)
        if self.diverged_:
            raise InputError("the last fit diverged, and its changes were not measured. Fit again first.")
        before = self.given_ or self.plain_
        changes = pd.DataFrame({"before": before, "after": self.validation_}, index=list(before), dtype=float)
        changes["change"] = changes["after"] - changes["before"]
        return changes

    def check_parameters(self) -> None:
        """Raise an `InputError` for invalid values, and for values that cannot be combined."""
        super().check_parameters()
        for name in self._bound_values():
            if not self.holds_out:
                raise InputError(
                    "is checked on a held-out set, but these parameters hold out no rows. Set "
                    "early_stopping=True, or remove the bound.",
                    argument=name,
                )
            if self.budget == 0:
                raise InputError("cannot be aimed at with budget=0, the plain network.", argument=name)

    def _bound_values(self) -> dict[str, float]:
        bounds = {"max_gap": self.max_gap, "max_reason_gap": self.max_reason_gap}
        return {name: bound for name, bound in bounds.items() if bound is not None}

    def _make_encoder(self) -> TableEncoder:
        """Return the encoder; a given teacher needs bins, so that thresholds can be learned."""
        if self.preprocessing == "table" and self.teacher is not None:
            return TableEncoder(n_bins=BINS)
        encoder: TableEncoder = super()._make_encoder()
        return encoder

    def _keep_plain_network(self, network: nn.Module) -> None:
        """Receive the plain network; benchmarks that compare with it override this."""

    def train_network(
        self: Any, network: nn.Module, data: TrainingData, generator: torch.Generator
    ) -> tuple[nn.Module, Outcome]:
        """Train the plain network, check what depends on the group, train the student, and measure it."""
        setting = Setting.of(self, data)
        plain, outcome = plain_network(setting, network, generator)
        self._keep_plain_network(plain)
        student = repair(setting, plain, generator)
        if student is None:
            keep_plain(setting, plain)
            return plain, outcome
        return finish(setting, plain, student), student.outcome


def plain_network(
    setting: Setting, network: nn.Module, generator: torch.Generator
) -> tuple[nn.Module, Outcome]:
    """Return the network to whose predictions the budget refers, and measure it.

    It is a given network, or that of the last fit, if it predicts the labels already; otherwise it is trained
    on labels, or on the predictions of a given teacher.
    """
    model, data, outcome = setting.model, setting.data, Outcome((), 0)
    warm = hasattr(model, "module_")
    knows = (warm or model.module is not None) and _knows_labels(network, data)
    model.given_ = measure(network, setting)[0] if knows and not warm else {}
    if not (knows and model.teacher is None):
        targets = None if model.teacher is None else _teacher_targets(model, data)
        outcome = train_plainly(network, data, model, generator, targets=targets, stage="plain network")
    model.plain_ = measure(network.eval(), setting)[0]
    return network, outcome


def repair(setting: Setting, plain: nn.Module, generator: torch.Generator) -> Student | None:
    """Train a student, or return None if there is nothing to repair."""
    model, data, complete = setting.model, setting.data, setting.attribution.complete
    model.check_, model.bounds_, what = None, {}, Repair()
    if has_collapsed(model.plain_):
        warn_of_collapse(data.task, model.plain_, model.plain_)
        return None
    if model.budget == 0:
        return None
    _check_bounds_can_be_measured(setting, plain)
    if model.repair == "auto":
        model.check_ = check_network(
            plain,
            data.training,
            data.task,
            data.n_groups,
            setting.attribution,
            setting.columns,
            outcome=model.outcome,
            legitimate=setting.baselines.rows.legitimate,
        )
        what = Repair(model.check_.reasons.found or not complete, model.check_.outcomes.found)
        if model.check_.nothing and complete:
            warn_caller(NothingToRepairWarning(model.check_))
            return None
    try:
        return train_student(plain, setting, generator, repair=what)
    except DivergenceError as error:
        error.network = plain if error.network is None else error.network
        raise


def _check_bounds_can_be_measured(setting: Setting, plain: nn.Module) -> None:
    """Raise an error or warn before training if a bound cannot be checked on the held-out rows."""
    bounds = setting.model._bound_values()
    if not bounds:
        return
    if setting.data.validation is None:
        raise InputError(
            "needs held-out rows, and none could be held out. Provide more rows or a larger "
            "validation_fraction, or remove the bound.",
            argument=next(iter(bounds)),
        )
    for bound in check_bounds(plain, setting, bounds).values():
        warn_of_unshowable(bound)


def keep_plain(setting: Setting, plain: nn.Module) -> None:
    """Set the learned attributes of a plain network that is not repaired."""
    model = setting.model
    model.validation_, model.weights_, model.repaired_ = dict(model.plain_), {}, False
    model.budget_used_, model.budget_used_interval_ = 0.0, (0.0, 0.0)
    _guard(setting, plain)


def finish(setting: Setting, plain: nn.Module, student: Student) -> nn.Module:
    """Shift the output, so that as many are decided for as by the plain network; measure and warn."""
    model, data, rows = setting.model, setting.data, setting.data.training.inputs
    shift = data.task.shift(all_outputs(student.network, rows), all_outputs(plain, rows))
    network = with_affine(student.network, 1.0, shift)
    model.validation_, _ = measure(network, setting)
    model.weights_, model.repaired_ = student.weights, True
    model.budget_used_, model.budget_used_interval_ = _budget_used(setting, plain, network)
    warn_of_budget(model.budget_used_, model.budget_used_interval_)
    _guard(setting, network)
    if not model.collapsed_:
        warn_of_reasons(model.plain_, model.validation_, setting.columns.shape[1])
        warn_of_attribute(model.plain_, model.validation_, len(data.held_out))
    return network


def _budget_used(setting: Setting, plain: nn.Module, network: nn.Module) -> tuple[float, tuple[float, float]]:
    """Return the share of the budget that held-out rows show to be used, with its 95 % interval."""
    task, rows = setting.data.task, setting.data.held_out
    before, after = all_outputs(plain, rows.inputs), all_outputs(network, rows.inputs)
    unit = float(knowledge(task, before, rows.weights)) * setting.model.budget
    each = task.distance(after, task.predictions(before)).double().cpu().numpy()
    weights = np.ones(len(each)) if rows.weights is None else rows.weights.double().cpu().numpy()
    mean = float(np.average(each, weights=weights))
    share = weights / weights.sum()
    reach = 1.96 * math.sqrt(float(np.sum((share * (each - mean)) ** 2)))
    return mean / unit, ((mean - reach) / unit, (mean + reach) / unit)


def _guard(setting: Setting, network: nn.Module) -> None:
    """Compare with bounds, set the flags of the model, and warn about problems."""
    model, task, rows = setting.model, setting.data.task, setting.data.held_out
    measured, bounds = model.validation_, model._bound_values()
    model.bounds_ = check_bounds(network, setting, bounds) if bounds else {}
    model.collapsed_ = has_collapsed(measured)
    model.decides_alike_ = measured.get("decided_alike", 0.0) >= _ALIKE
    ratio = measured["columns"] / model.plain_["columns"]
    model.changed_columns_ = bool(ratio < 0.5 or ratio > 2)
    if model.collapsed_ and model.repaired_:
        warn_of_collapse(task, measured, model.plain_)
    elif model.changed_columns_:
        warn_of_columns(measured["columns"], model.plain_["columns"])
    if isinstance(task, Binary) and model.decides_alike_ and not model.collapsed_:
        scores = torch.sigmoid(all_outputs(network, rows.inputs)[:, 0].double())
        cut = torch.sigmoid(torch.tensor(task.cut, dtype=torch.float64))
        warn_of_threshold(measured, float(cut), best_f1_threshold(scores.cpu(), rows.labels.cpu()))
    for bound in model.bounds_.values():
        if not bound.met:
            warn_of_bound(bound, task, measured, model.budget)


def _knows_labels(network: nn.Module, data: TrainingData) -> bool:
    """Return whether a network predicts the training labels clearly better than a constant."""
    rows, task = data.training, data.task
    labels = rows.labels
    own = float(task.loss(all_outputs(network, rows.inputs), labels).mean())
    targets = _label_predictions(task, labels)
    constant = task.constant(targets).expand(len(rows), -1)
    return own < _KNOWS * float(task.loss(constant, labels).mean())


def _label_predictions(task: Task, labels: Tensor) -> Tensor:
    """Return the predictions that are certain of the labels, (n, K)."""
    if task.key == "classes":
        return nn.functional.one_hot(labels, task.n_outputs).float()
    return labels.float().unsqueeze(1)


def _teacher_targets(model: Any, data: TrainingData) -> Tensor:
    """Return the predictions of the given teacher for the training rows, (n, K)."""
    table = data.table if hasattr(model, "feature_names_in_") else data.table.to_numpy()
    key: Any = data.task.key
    adapted, number = adapt(model.teacher, table, task=key), key == "number"
    if not (number or adapted.probabilistic):
        raise InputError(
            f"is a {type(model.teacher).__name__}, which gives no probabilities for the network to learn. "
            "Calibrate it first, for example with sklearn.calibration.CalibratedClassifierCV.",
            argument="teacher",
        )
    if not number and adapted.classes is not None and not np.array_equal(adapted.classes, model.classes_):
        raise InputError(
            f"was trained on the classes {tuple(adapted.classes)}, but y has {tuple(model.classes_)}. Train "
            "it on the same labels.",
            argument="teacher",
        )
    scores = np.asarray(adapted.scores(table), dtype=np.float64).reshape(len(table), -1)
    if number:
        scores = (scores - model.label_mean_) / model.label_scale_
    return torch.from_numpy(scores).float().to(data.training.inputs.device)


class FairXClassifier(FairX, NetworkClassifier):
    """A network of two or more classes whose reasons and outcomes do not depend on the group.

    The student keeps the plain network's predictions within a budget while the fairness terms change its
    reasons; see :doc:`/theory`. Groups are needed to fit but not to predict.

    With ``warm_start=True``, each `fit` takes the current network as the plain one.

    Attributes
    ----------
    check_ : Check or None
        Before training: whether reasons and outcomes depended on the group beyond chance, with the smallest
        dependence that could have been seen. ``str(check_)`` is a sentence. None with ``repair="always"``.
    repaired_ : bool
        Whether a student was trained; if not, the network is the plain one.
    budget_used_, budget_used_interval_ : float, pair of float
        The share of the budget used, on held-out rows; it may exceed 1.
    bounds_ : dict of Bound
        For each bound (`max_gap`, `max_reason_gap`): the ``value`` on the held-out set, its upper 90 %
        confidence ``limit``, and the ``status``: met, not met, or cannot be shown with this many rows.
    plain_, validation_ : dict
        Measurements of the plain network and of the trained network on the held-out set (the training rows,
        if nothing is held out): the task's utility (``auc``, ``log_loss``, ``f1``, ...), ``outcome_gap``,
        ``reason_gap`` and its parts ``reason_gap_common`` and ``reason_gap_varying`` (relative to members, in
        units of ``score_spread``), ``gcig``, ``columns`` (effective columns) and ``reason_size`` (relative to
        means), ``reference_offset``, ``faithfulness`` and ``attribute_effect``.
    given_ : dict
        The same measurements for a given network (`module`, `from_module`) before training.
    changes_ : DataFrame
        The trained network compared with the given network if there is one, or else with the plain network.
    collapsed_ : bool
        Whether the model predicts hardly better than a constant.
    decides_alike_ : bool
        Whether at least 99.5 % of the held-out rows get the same decision.
    changed_columns_ : bool
        Whether the model uses less than half or more than twice the plain network's effective columns.
    history_ : DataFrame
        One row per epoch of the student: every term of the objective, the multipliers, and ``moved``, the
        share of what the plain network knows that was given up.
    weights_ : dict
        The multipliers at the end.

    Examples
    --------
    >>> import gcig
    >>> data = gcig.load_dataset("german")
    >>> model = gcig.FairXClassifier(random_state=0)
    >>> model = model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    >>> model.predict(data.X).shape
    (1000,)
    """

    method_key: ClassVar[str] = "fairx"
    predicts_by_network: ClassVar[bool] = True


class FairXRegressor(FairX, NetworkRegressor):
    """A network that predicts a number, whose reasons and outcomes do not depend on the group.

    Parameters and attributes are those of `FairXClassifier`; measurements of utility are ``r2``, ``mae`` and
    ``rmse``, in standard deviations of the label. Rows are compared with people in the same of ten quantile
    bins of the label.

    Examples
    --------
    >>> import gcig
    >>> data = gcig.load_dataset("german")
    >>> amount = data.X["credit_amount"]
    >>> model = gcig.FairXRegressor(max_epochs=5, random_state=0)
    >>> X = data.X.drop(columns="credit_amount")
    >>> model.fit(X, amount, sensitive_features=data.sensitive_features).predict(X).shape
    (1000,)
    """

    method_key: ClassVar[str] = "fairx"
    predicts_by_network: ClassVar[bool] = True
