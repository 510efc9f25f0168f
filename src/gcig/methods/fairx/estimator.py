"""FairX estimators: networks whose reasons do not depend on the group."""

import math
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted
from torch import nn

from gcig._validation import InputError
from gcig.adapters import adapt_binary
from gcig.core.batch import TrainingRows
from gcig.core.definition import Definition
from gcig.data.encoding import TableEncoder
from gcig.data.passthrough import PassThrough
from gcig.losses.objective import Objective
from gcig.losses.outcome import OUTCOME_LOSSES
from gcig.methods.base import BINS, NetworkClassifier
from gcig.methods.fairx.bounds import fair_limit_before_training, train_within_bounds
from gcig.methods.fairx.guards import (
    Verdict,
    columns_changed,
    heaviest_term,
    inspect_predictions,
    warn_of_attribute,
    warn_of_bound,
    warn_of_collapse,
    warn_of_columns,
    warn_of_limits,
    warn_of_reasons,
    warn_of_threshold,
    warn_of_unshowable,
)
from gcig.methods.fairx.paper import train_as_published
from gcig.methods.fairx.selection import decision_cut, make_held_out, measure
from gcig.methods.fairx.settings import FairTraining
from gcig.methods.fairx.training import TrainedNetwork, train_fairly
from gcig.methods.fairx.weights import USUAL, USUAL_LIMIT
from gcig.methods.networks import CLIP_NORM, raise_if_diverged
from gcig.methods.parameters import (
    BOUND,
    FRACTION,
    NON_NEGATIVE,
    POSITIVE_INTEGER,
    Rule,
    number,
    one_of,
    parameter,
)
from gcig.methods.training_data import TrainingData
from gcig.metrics.ranking import best_f1_threshold, logit_of
from gcig.models.mlp import ACTIVATIONS
from gcig.records.trade_off import Bound
from gcig.training.loop import Outcome

if TYPE_CHECKING:
    from gcig.methods.fairx.tradeoff import TradeOff

_MIN_EPOCHS_TO_WARN = 10  # with fewer epochs, it is expected that the teacher may be kept
_DEFINITION = Definition(rows=0.25)  # a quarter of each mini-batch is explained: as good as all
# The student's mini-batches with batch_size="auto". At least 128 rows: half as many steps on small tables,
# with equal results. With means as the only references, overhead is a large part of a step: mini-batches 1.5
# times as large as the teacher's save a third of the steps, with equal figures on ten folds of Adult and
# Bank.
_MIN_STUDENT_BATCH, _STUDENT_BATCH_SCALE = 128, {"mean": 1.5, "members": 1.0, "both": 1.0}
_PUBLISHED_STEPS = 16  # steps of the paper's Riemann sum
_MEASUREMENTS = (
    *("auc", "log_loss", "f1", "gcig", "gcig_members", "outcome_gap", "columns", "reference_offset"),
    *("faithfulness", "attribute_effect", "completeness"),
)


def _is_model_or_none(value: Any) -> bool:
    answers = callable(value) or hasattr(value, "predict")
    return value is None or (answers and not isinstance(value, type))


class FairXClassifier(NetworkClassifier):
    r"""A network trained for accuracy, fair reasons and fair outcomes.

    .. math:: \text{cross-entropy} + \lambda_{ig} \, \text{GCIG} + \lambda_{fair} \, \text{outcome gap}

    GCIG measures how much an individual's integrated-gradients explanation changes if the reference, a
    typical member of one group with the same label, is replaced by that of another group. Groups are needed
    to fit but not to predict.

    ``strategy="distil"`` trains a teacher first: the same network without fairness terms, or a network that
    learns the probabilities of a given `teacher`. The student starts at the teacher's weights and keeps its
    predictions while the fairness terms change its reasons. It learns the teacher's probabilities at the
    training rows, at points between rows and references, and at rows with exchanged protected columns.
    Further terms keep it from relying on a few columns, and from using the protected attribute more than the
    teacher does. A part of the rows is held out to control the weights and to select the epoch that is kept.
    With ``early_stopping=False`` nothing is held out, the weights are ramped up, and the last epoch is kept.
    On small tables the teacher is trained for up to 40 epochs even if `max_epochs` is smaller. The student
    takes two fifths of the epochs and twice the learning rate. If `batch_size` is ``"auto"``, its
    mini-batches have at least 128 rows, and with ``references="mean"`` they are 1.5 times as large as the
    teacher's.

    A given `teacher` may be boosted trees, a pipeline or any other classifier: the network keeps its
    predictions and has fairer reasons. On the test rows of one fold of Adult, LightGBM has an AUC of 0.925,
    its student 0.922, and a network without fairness terms 0.908; GCIG falls from 0.375 to 0.038 relative to
    means and from 0.223 to 0.115 relative to members.

    ``strategy="paper"`` is the published algorithm: nothing is held out, and the network is trained on labels
    with constant weights.

    With ``warm_start=True``, each `fit` takes the current network as teacher: its predictions are kept, and
    `max_auc_drop` and the warnings are relative to it.

    Attributes
    ----------
    history_ : DataFrame
        One row per epoch: every term of the loss (``prediction`` is the cross-entropy to the teacher's
        probabilities), the weights, and on the held-out set all measurements of `validation_`.
        `max_auc_drop` limits ``val_auc_lost``.
    n_epochs_ : int
        The epoch whose network was kept. 0 is the teacher, which is kept if no epoch was fairer within the
        limits; with ten or more epochs, a warning is issued.
    weights_ : dict
        The weights of the terms in the epoch that was kept; with `max_eo_gap`, the outcome's is the one with
        which the upper layers were finished.
    plain_ : dict
        Measurements of the teacher on the held-out set, or on the training rows if nothing is held out:
        ``auc``, ``log_loss``, ``f1``, ``decided_alike`` (the share of rows in the class that is predicted
        most often), ``outcome_gap`` of decisions and ``soft_outcome_gap`` of smoothed ones (on the training
        rows ``soft_outcome_gap_training``, if rows are held out and the gap counts), ``gcig`` (relative to
        means), ``gcig_members`` (relative to members), ``completeness`` (the mean error of the attributions'
        sums), ``columns`` (effective columns), ``reference_offset`` (the distance between the logit at a
        cell's mean and the mean logit of its members, in standard deviations of the logit), ``faithfulness``
        (the rank correlation of attributions with permutation importance) and ``attribute_effect`` (the
        share of decisions that change if only the protected columns are exchanged; NaN if there are none;
        with `max_eo_gap`, on training rows as well). Empty with ``strategy="paper"`` and if no fairness term
        is used.
    given_ : dict
        The same measurements for a given network (`module`, `from_module`) before training.
    validation_ : dict
        The same measurements for the trained network, with decisions at its threshold.
    changes_ : DataFrame
        The trained network compared with the given network if there is one, or else with the teacher.
    braked_ : bool
        Whether weights were lowered in any epoch because too much AUC or too many columns were lost.
    collapsed_ : bool
        Whether the model hardly ranks better than chance: its AUC on the held-out set is below 0.55.
    decides_alike_ : bool
        Whether at least 99.5 % of the held-out rows get the same decision; a `ThresholdWarning` then suggests
        another threshold.
    bounds_ : dict of Bound
        For each bound (`max_gcig`, `max_eo_gap`): the ``value`` on the held-out set, its upper 90 %
        confidence ``limit``, and the ``status``: met, not met, or cannot be shown with this many rows.
    changed_columns_ : bool
        Whether the model uses less than half or more than twice the teacher's effective columns.
    ema_baselines_ : array of shape (2, groups, p)
        The moving averages of the baselines at the end of training.

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
    fitted_records: ClassVar[tuple[type, ...]] = (Bound,)
    fitted_attributes: ClassVar[tuple[str, ...]] = (
        "weights_",
        "plain_",
        "given_",
        "validation_",
        "braked_",
        "collapsed_",
        "decides_alike_",
        "bounds_",
        "changed_columns_",
        "ema_baselines_",
    )

    strategy: str = parameter(
        default="distil",
        rule=one_of("distil", "paper"),
        doc="""``"distil"`` keeps the predictions of a teacher while reasons change; ``"paper"`` is the
        published algorithm, which ignores `early_stopping`, `patience`, `validation_fraction` and
        `max_auc_drop`, and does not accept bounds.""",
    )
    references: str = parameter(
        default="both",
        rule=one_of("mean", "members", "both"),
        doc="""The references of the GCIG term: the ``"mean"`` of each label and group (as in the paper),
        ``"members"`` of them, or ``"both"``, which also keeps the two explanations consistent. Members are
        drawn at random in every step, except two that are always included: the medoid (nearest to the mean)
        and the modal member (the most common values in most columns).""",
    )
    teacher: Any = parameter(
        default=None,
        rule=Rule("a fitted classifier or None", _is_model_or_none),
        doc="""A fitted model whose predictions are kept: anything that `gcig.adapt` accepts. Numeric columns
        are then encoded in bins, as with ``preprocessing="binned"``. None first trains the same network
        without fairness terms.""",
    )
    lambda_ig: float = parameter(
        default=USUAL["gcig"],
        rule=NON_NEGATIVE,
        doc="""Weight of the GCIG term, between 0.02 and 10. Distillation raises it gradually, and backs off
        if too much AUC would be lost. A larger weight does not end with a larger GCIG.""",
    )
    lambda_fair: float = parameter(
        default=USUAL["outcome"], rule=NON_NEGATIVE, doc="Weight of the outcome term, on the same scale."
    )
    outcome: str = parameter(
        default="equalized_odds",
        rule=one_of(*OUTCOME_LOSSES),
        doc="The gap of decision rates that the outcome term lowers.",
    )
    max_gcig: float | None = parameter(
        default=None,
        rule=BOUND,
        doc="""A bound on GCIG (in the norm of `definition`) instead of a weight: `lambda_ig` is raised until
        the bound is met on the held-out set.""",
    )
    max_eo_gap: float | None = parameter(
        default=None,
        rule=BOUND,
        doc="""A bound on the outcome gap (for equalized odds the sum of the differences in true and false
        positive rates) instead of a weight: the upper layers are trained on all rows at once, with growing
        weights, until the gap is within the bound or too much AUC is lost.""",
    )
    max_auc_drop: float = parameter(
        default=USUAL_LIMIT,
        rule=number("a number >= 0", lambda value: value >= 0),
        doc="""The AUC that may be lost relative to the teacher, estimated from the teacher's probabilities
        and from the held-out labels. Weights are lowered before this limit is reached.""",
    )
    definition: Definition | None = parameter(
        default=None,
        rule=Rule("a gcig.Definition or None", lambda value: value is None or isinstance(value, Definition)),
        doc="""The norm, rule, steps, and rows of the GCIG term; None is ``gcig.Definition(rows=0.25)``, which
        explains a quarter of each mini-batch, and with ``strategy="distil"`` at most 16 rows of it (32 if
        `references` is ``"mean"``). Its ``columns`` are not used: training compares original columns, and
        with ``strategy="paper"`` raw ones.""",
    )
    ema_rate: float = parameter(
        default=0.05, rule=FRACTION, doc="The paper's gamma: the update rate of the moving-average baselines."
    )

    @classmethod
    def from_module(cls, module: nn.Module, **parameters: Any) -> Self:
        """Return an estimator that repairs a trained network: `fit` continues from its weights.

        Rows are passed to the network unchanged unless ``preprocessing="table"`` is given. The network is
        copied and not modified. After `fit`, `given_` has its measurements before the repair, `validation_`
        those after it, and `changes_` compares the two.

        Examples
        --------
        >>> network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        >>> FairXClassifier.from_module(network, max_epochs=10).preprocessing
        'none'
        """
        return cls(module=module, **{"preprocessing": "none", **parameters})

    def path(
        self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None
    ) -> "TradeOff":
        """Train a family of models along the trade-off between AUC, GCIG and the outcome gap.

        One teacher is trained, and from it up to nine students with weights around `lambda_ig` and
        `lambda_fair`. Each student starts at its neighbour, is trained for fewer epochs than in `fit`, and
        may lose twice `max_auc_drop`. The estimator itself is not changed.

        Parameters
        ----------
        X, y, sensitive_features, sample_weight
            As in `fit`.

        Returns
        -------
        TradeOff
            ``.frame``, ``.plot()``, ``.select(max_gcig=..., max_eo_gap=...)`` and ``.save(folder)``; every
            model in it is fitted.
        """
        from gcig.methods.fairx.tradeoff import train_trade_off  # which imports this module

        return train_trade_off(self, X, y, sensitive_features=sensitive_features, sample_weight=sample_weight)

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
    def definition_(self) -> Definition:
        """The definition of GCIG that the network is trained with."""
        chosen = replace(self.definition or _DEFINITION, label_weights="sum")
        if self.strategy != "paper":
            return replace(chosen, columns="original")
        rule = "right" if chosen.rule == "auto" else chosen.rule
        n_steps = _PUBLISHED_STEPS if chosen.n_steps == "auto" else chosen.n_steps
        return replace(chosen, columns="raw", rule=rule, n_steps=n_steps, rows=1.0)

    def build_objective(self, objective: Objective) -> Objective:
        """Return the objective that the student is trained on; override it to replace or add terms.

        Parameters
        ----------
        objective : Objective
            The default terms: ``"prediction"``, ``"outcome"``, ``"gcig"`` (relative to means),
            ``"gcig_members"``, ``"gcig_each_member"``, ``"consistency"``, ``"column_shortfall"``,
            ``"selection"`` and ``"attribute"``. Terms that the parameters do not use are missing.

        Examples
        --------
        >>> class SmallLogits(FairXClassifier):
        ...     def build_objective(self, objective):
        ...         size = lambda batch: batch.logits.square().mean()
        ...         return objective.with_term("size", size, weight=0.01)
        """
        return objective

    @property
    def changes_(self) -> pd.DataFrame:
        """The effect of training on the held-out set: one row per measurement, see `plain_`."""
        check_is_fitted(self)
        if self.diverged_:
            raise InputError("the last fit diverged, and its changes were not measured. Fit again first.")
        columns = {"before": self.given_ or self.plain_, "after": self.validation_}
        changes = pd.DataFrame(columns, index=list(_MEASUREMENTS), dtype=float)
        changes["change"] = changes["after"] - changes["before"]
        return changes

    @property
    def holds_out(self) -> bool:
        """True if `fit` holds out a part of the training data: never with ``strategy="paper"``."""
        return bool(self.early_stopping) and self.strategy != "paper"

    def check_parameters(self) -> None:
        """Raise an `InputError` for invalid values, and for values that cannot be combined."""
        super().check_parameters()
        if self.teacher is not None and self.strategy == "paper":
            raise InputError(
                "teacher: the published algorithm trains on labels and uses no teacher. Set "
                "strategy='distil', or remove the teacher."
            )
        if self._bounds() and not self.holds_out:
            raise InputError(
                f"{' and '.join(self._bounds())}: a bound is checked on a held-out set, but these parameters "
                "hold out no rows. Set early_stopping=True and strategy='distil', or set weights (lambda_ig, "
                "lambda_fair) instead."
            )

    def _make_encoder(self) -> TableEncoder | PassThrough:
        """Return the encoder; a given teacher needs bins, so that thresholds can be learned."""
        if self.preprocessing == "table" and self.teacher is not None:
            return TableEncoder(n_bins=BINS)
        return super()._make_encoder()

    def _bounds(self) -> dict[str, float]:
        """Return the bounds that are set, by parameter."""
        given = {"max_gcig": self.max_gcig, "max_eo_gap": self.max_eo_gap}
        return {name: bound for name, bound in given.items() if bound is not None}

    def training_settings(self, n_rows: int) -> FairTraining:
        """Return the settings of training, with ``"auto"`` resolved for this many rows."""
        definition = self.definition_
        loop, student_batch = self.resolve_loop(n_rows), None
        if self.batch_size == "auto":
            scaled = round(_STUDENT_BATCH_SCALE[self.references] * loop.batch_size)
            student_batch = max(_MIN_STUDENT_BATCH, scaled)
        return FairTraining(
            loop=loop,
            student_batch=student_batch,
            learning_rate=self.resolve_learning_rate(loop.batch_size),
            weight_decay=self.weight_decay,
            clip_norm=CLIP_NORM,
            lambda_ig=self.lambda_ig,
            lambda_fair=self.lambda_fair,
            outcome=self.outcome,
            max_gcig=self.max_gcig,
            max_eo_gap=self.max_eo_gap,
            references=self.references,
            norm=definition.norm,
            rule=definition.rule,
            n_steps=definition.n_steps,
            penalty_rows=definition.rows,
            ema_rate=self.ema_rate,
            max_auc_drop=self.max_auc_drop,
            cut=None if self.threshold == "f1" else logit_of(float(self.threshold)),
            progress=bool(self.verbose),
        )

    def train_network(self, network: nn.Module, data: TrainingData, generator: torch.Generator) -> Outcome:
        """Train with the fairness terms, measure the result, and warn about problems."""
        if self._bounds() and data.validation is None:
            raise InputError(
                f"{' and '.join(self._bounds())}: no rows could be held out to check bounds on. Provide more "
                "rows, a larger validation_fraction, or weights (lambda_ig, lambda_fair) instead."
            )
        if self.max_eo_gap is not None:
            self._check_gap_can_be_measured(data)
        settings = self.training_settings(len(data.rows))
        held_out = make_held_out(data, settings, self.encoder_.origin_)
        self.bounds_: dict[str, Bound] = {}
        if self.max_eo_gap is not None:
            warn_of_unshowable(self.max_eo_gap, fair_limit_before_training(held_out), len(held_out.rows))
        is_warm_start = hasattr(self, "module_")
        is_given = self.module is not None and not is_warm_start
        self.given_ = measure(network, held_out) if is_given else {}
        if self.strategy == "paper":
            trained = train_as_published(
                network,
                data.rows,
                settings,
                generator=generator,
                n_groups=data.n_groups,
                customise=self.build_objective,
            )
        else:
            options: dict[str, Any] = {
                "generator": generator,
                "held_out": held_out,
                "trained": True if is_warm_start else None if is_given and self.teacher is None else False,
                "customise": self.build_objective,
            }
            rows = self.training_targets(data)
            if self._bounds():
                trained, self.bounds_ = train_within_bounds(network, rows, settings, **options)
            else:
                trained = train_fairly(network, rows, settings, **options)
        self.weights_ = trained.weights
        self.braked_ = trained.braked
        averages = trained.ema_baselines
        self.ema_baselines_ = self.baselines_.copy() if averages is None else averages.cpu().numpy()
        self.plain_ = trained.plain
        scores = held_out.logits(network)
        raise_if_diverged(scores)
        self.validation_ = trained.measured or measure(network, held_out, scores)
        cut = decision_cut(scores, held_out.rows.labels, settings)
        self._guard(inspect_predictions(scores, held_out.rows.labels, cut=cut), trained)
        if self.decides_alike_ and not self.collapsed_:
            threshold = float(torch.sigmoid(torch.tensor(cut, dtype=torch.float64)))
            best = best_f1_threshold(torch.sigmoid(scores.double()), held_out.rows.labels)
            warn_of_threshold(self.validation_, threshold, best, self._heaviest(trained))
        if self.plain_ and not self.collapsed_:
            if settings.explains:
                warn_of_reasons(self.plain_, self.validation_, int(held_out.origin.max()) + 1)
            warn_of_attribute(self.plain_, self.validation_, len(held_out.effect_rows))
        return trained.outcome

    def _check_gap_can_be_measured(self, data: TrainingData) -> None:
        """Raise an `InputError` unless the held-out set has two groups for every compared rate."""
        assert data.validation is not None
        rows = data.validation
        members = OUTCOME_LOSSES[self.outcome](data.n_groups).membership(rows.labels, rows.groups)
        if bool(((members.sum(-1) > 0).sum(-1) < 2).any()):
            raise InputError(
                "max_eo_gap: all held-out rows of one label are of one group, so there is no gap to measure. "
                "Provide more rows of the other groups, a larger validation_fraction, or a weight "
                "(lambda_fair) instead."
            )

    def training_targets(self, data: TrainingData) -> TrainingRows:
        """Return the training rows; their targets are the probabilities of a given teacher, or labels."""
        if self.teacher is None:
            return data.rows
        table = data.table if hasattr(self, "feature_names_in_") else data.table.to_numpy()
        adapted = adapt_binary(self.teacher, table)
        if not adapted.probabilistic:
            raise InputError(
                f"teacher: a {type(self.teacher).__name__} gives no probabilities, which the network learns. "
                "Calibrate it first, for example with sklearn.calibration.CalibratedClassifierCV."
            )
        if adapted.classes is not None and not np.array_equal(adapted.classes, self.classes_):
            raise InputError(
                f"teacher: it was trained on the classes {tuple(adapted.classes)}, but y has "
                f"{tuple(self.classes_)}. Train it on the same labels."
            )
        targets = torch.from_numpy(np.asarray(adapted.scores(table), dtype=np.float32))
        return replace(data.rows, targets=targets.to(data.training.inputs.device))

    def _guard(self, verdict: Verdict, trained: TrainedNetwork) -> None:
        """Set the flags of the trained network, and warn about problems."""
        columns, plain_columns = self.validation_["columns"], self.plain_.get("columns", math.nan)
        self.collapsed_, self.decides_alike_ = verdict.collapsed, verdict.decides_alike
        self.changed_columns_ = columns_changed(columns, plain_columns)
        if trained.plain and trained.outcome.best_epoch == 0 and self.max_epochs >= _MIN_EPOCHS_TO_WARN:
            warn_of_limits(self.max_auc_drop)
        if self.collapsed_:
            warn_of_collapse(verdict, self._heaviest(trained), self.plain_)
        elif self.changed_columns_:
            warn_of_columns(columns, plain_columns, self.weights_["gcig"])
        for bound in self.bounds_.values():
            if not bound.met:
                warn_of_bound(bound, verdict.auc)

    def _heaviest(self, trained: TrainedNetwork) -> str:
        """Return the parameter whose term contributed most to the loss, as ``name=value``."""
        by_members = self.references == "members" and self.strategy != "paper"
        gcig = f"lambda_ig={self.lambda_ig:g}", self.lambda_ig
        outcome = f"lambda_fair={self.lambda_fair:g}", self.lambda_fair
        if self.max_gcig is not None:  # the weight that the search for the bound reached
            gcig = f"max_gcig={self.max_gcig:g}", trained.weights["gcig"]
        if self.max_eo_gap is not None:
            outcome = f"max_eo_gap={self.max_eo_gap:g}", trained.weights["outcome"]
        terms = {"gcig_members" if by_members else "gcig": gcig, "outcome": outcome}
        return heaviest_term(terms, trained.outcome.history)


class PublishedFairXClassifier(FairXClassifier):
    """FairX as published: `FairXClassifier` with ``strategy="paper"``, ReLU and 20 epochs as defaults.

    The paper specifies neither the activation nor the number of epochs. Nothing is held out, so training does
    not stop early, and more epochs would overfit small tables.

    Examples
    --------
    >>> model = PublishedFairXClassifier()
    >>> model.strategy, model.activation, model.definition_.rule, model.definition_.n_steps
    ('paper', 'relu', 'right', 16)
    """

    method_key: ClassVar[str] = "fairx-paper"

    strategy: str = parameter(
        default="paper",
        rule=one_of("distil", "paper"),
        doc="""``"paper"`` is the published algorithm, ``"distil"`` the default of `FairXClassifier`.""",
    )
    activation: str = parameter(
        default="relu", rule=one_of(*ACTIVATIONS), doc="Activation if no `module` is given."
    )
    max_epochs: int = parameter(default=20, rule=POSITIVE_INTEGER, doc="Number of epochs.")
