"""FairX: the estimator that trains a network whose reasons do not depend on the group."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import pandas as pd
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from gcig._validation import InputError
from gcig.core.definition import Definition
from gcig.core.modules import evaluating, logits
from gcig.core.one_hot_gauge import OneHotGauge
from gcig.losses.outcome import OUTCOME_LOSSES
from gcig.methods.base import NetworkClassifier
from gcig.methods.document import numbers_from_plain, numbers_to_plain, to_plain
from gcig.methods.fairx.guards import (
    BoundWarning,
    CollapseWarning,
    Verdict,
    columns_changed,
    heaviest_term,
    inspect_predictions,
    warn_of_bound,
    warn_of_collapse,
    warn_of_columns,
    warn_of_limits,
)
from gcig.methods.fairx.selection import decision_cut, measure
from gcig.methods.fairx.settings import FairTraining
from gcig.methods.fairx.training import TrainedNetwork, train_fairly
from gcig.methods.prepared import TrainingData
from gcig.methods.threshold import logit_of
from gcig.training.loop import Loop
from gcig.training.runtime import resolve_batch_size

__all__ = ["BoundWarning", "CollapseWarning", "FairXClassifier"]

_SERIOUS = 10  # epochs: nobody is surprised where fewer change nothing


class FairXClassifier(NetworkClassifier):
    r"""A network trained for fair reasons and fair outcomes beside accuracy.

    .. math:: \text{cross-entropy} + \lambda_{ig} \, \text{GCIG} + \lambda_{fair} \, \text{outcome gap}

    GCIG is how much an individual's integrated-gradients explanation changes when the reference is one
    group's or another's typical member with the same label. Groups are needed to fit, never to predict.

    A part of the rows is held out. The same network is trained plainly first; then it keeps these predictions
    (the cross-entropy is that to the plain network's probabilities, also for rows made up between rows of the
    same label and group: an epoch has 8,000 rows at least) while its reasons change. A further term keeps it
    from living on few columns, once it begins to. With ``early_stopping=False`` nothing is held out, and the
    network is trained on labels with constant weights, as in the paper.

    Parameters
    ----------
    lambda_ig : float
        Weight of the GCIG term. It is raised from nothing, and eased where the term has done its share and
        costs AUC.
    lambda_fair : float
        Weight of the outcome term.
    outcome : {"equalized_odds", "equal_opportunity", "demographic_parity"}
        Which gap of soft rates the outcome term is.
    max_gcig : float, optional
        A bound on GCIG (in the `norm` of training) instead of a weight: `lambda_ig` is then raised until
        validation data meet it.
    max_eo_gap : float, optional
        A bound on the outcome gap (for equalized odds the sum of the differences in true and false
        positive rates) instead of a weight.
    module : torch.nn.Module, optional
        A network of your own, (n, p) -> (n,) logits; trained from its present weights.
    preprocessing : {"table", "none"}
        Whether the table is encoded (numbers standardised, categories one-hot), or taken as numbers.
    hidden_sizes, activation, dropout : tuple of int, str, float
        The network where none is given.
    max_epochs, batch_size : int, int or "auto"
        ``"auto"`` is 64 rows for small tables and up to 512 for large ones. The plain network of a small
        table is trained for up to 40 epochs even where the fair one is for fewer.
    learning_rate, weight_decay, clip_norm : float
        Of AdamW; ``learning_rate="auto"`` grows with the batch, and is higher for narrow networks. It is
        lowered along a cosine. The network that learns from the plain one takes twice this rate.
    early_stopping : bool
        Whether a part of the training data is held out. It decides which epoch is kept (the fairest that
        loses little AUC and few columns), when to stop, and when weights are too high.
    patience, validation_fraction : int, float
        Of early stopping.
    max_auc_drop : float
        How much AUC may be lost against the plain network, by its own probabilities and by the labels of
        the rows held out. The weights are lowered before that.
    norm, rule, n_steps : str, str, int or "auto"
        The definition of GCIG in training; see `gcig.Definition`.
    penalty_rows, penalty_every : float, int
        The share of a mini-batch that is explained, in every so many steps (which then count as many
        times). The defaults give the quality of explaining every row at a fraction of the cost.
    ema_rate : float
        The paper's gamma: how fast baselines follow the mini-batches.
    threshold : float or "f1"
        The probability from which a row is predicted positive; ``"f1"`` chooses it on validation data.
    class_weight : None, "balanced" or dict
    warm_start : bool
        Whether another `fit` goes on from the present network, whose predictions are then kept:
        `max_auc_drop` and the guards count from there, once more in every `fit`.
    device : str
        ``"auto"`` takes a CUDA device where there is one.
    random_state : int, RandomState or None
    verbose : bool
        Whether to show progress.

    Attributes
    ----------
    history_ : DataFrame
        One row an epoch: every term of the loss (``prediction`` is the cross-entropy to the plain network's
        probabilities, ``column_shortfall`` is there once columns are held), the weights, and on validation
        data completeness and metrics. ``val_auc_lost`` is what `max_auc_drop` bounds.
    n_epochs_ : int
        The epoch whose network was kept; 0 is the plain network, where fairness would have cost too much, or
        a few epochs changed too little (from ten on that is warned of).
    weights_ : dict
        The weights of the terms in the epoch that was kept.
    plain_ : dict
        AUC, GCIG, effective columns and outcome gap (of decisions and, soft, of probabilities) on validation
        data of the network whose predictions are kept: the plainly trained one, or with `warm_start` that of
        the last fit. Empty where nothing was held out or no fairness term is on.
    given_ : dict
        The same of the network that was given, if one was (`module`, `from_module`), before any training.
    validation_ : dict
        The same of the trained network, with outcomes decided at its threshold; on the training data where
        none are held out.
    changes_ : DataFrame
        What it is like beside the network that was given, or else the plain one.
    braked_ : bool
        Whether the brake had to act because much AUC or many columns were lost, in any epoch.
    collapsed_ : bool
        Whether it stopped predicting: AUC under 0.55, or one class for 99.5 % of the rows.
    changed_columns_ : bool
        Whether it lives on less than half or more than twice as many effective columns as the plain one.
    ema_baselines_ : array of shape (2, groups, p)
        The moving averages at the end of training.

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

    def __init__(
        self,
        *,
        lambda_ig: float = 0.5,
        lambda_fair: float = 0.15,
        outcome: str = "equalized_odds",
        max_gcig: float | None = None,
        max_eo_gap: float | None = None,
        module: nn.Module | None = None,
        preprocessing: str = "table",
        hidden_sizes: Sequence[int] = (64, 32),
        activation: str = "silu",
        dropout: float = 0.0,
        max_epochs: int = 40,
        batch_size: int | str = "auto",
        learning_rate: float | str = "auto",
        weight_decay: float = 1e-4,
        clip_norm: float = 5.0,
        early_stopping: bool = True,
        patience: int = 20,
        validation_fraction: float = 0.15,
        max_auc_drop: float = 0.015,
        norm: str = "l1",
        rule: str = "auto",
        n_steps: int | str = "auto",
        penalty_rows: float = 0.25,
        penalty_every: int = 1,
        ema_rate: float = 0.05,
        threshold: float | str = 0.5,
        class_weight: Any = None,
        warm_start: bool = False,
        device: str = "auto",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.lambda_ig = lambda_ig
        self.lambda_fair = lambda_fair
        self.outcome = outcome
        self.max_gcig = max_gcig
        self.max_eo_gap = max_eo_gap
        self.module = module
        self.preprocessing = preprocessing
        self.hidden_sizes = hidden_sizes
        self.activation = activation
        self.dropout = dropout
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.clip_norm = clip_norm
        self.early_stopping = early_stopping
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.max_auc_drop = max_auc_drop
        self.norm = norm
        self.rule = rule
        self.n_steps = n_steps
        self.penalty_rows = penalty_rows
        self.penalty_every = penalty_every
        self.ema_rate = ema_rate
        self.threshold = threshold
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def from_module(cls, module: nn.Module, **parameters: Any) -> Self:
        """Repair a network that somebody already trained: `fit` goes on from its weights.

        Rows are taken as the numbers that the network was trained on, unless ``preprocessing="table"`` is
        among the parameters. The network given is copied, and left as it is. After `fit`, `given_` says what
        it was like before and `validation_` what the repaired one is like; `changes_` puts them side by side.

        Examples
        --------
        >>> network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        >>> FairXClassifier.from_module(network, max_epochs=10).preprocessing
        'none'
        """
        return cls(module=module, **{"preprocessing": "none", **parameters})

    @property
    def definition_(self) -> Definition:
        """The definition of GCIG that the network was trained with."""
        return Definition(
            norm=self.norm,
            rule=self.rule,
            n_steps="auto" if self.n_steps == "auto" else int(self.n_steps),
            columns="raw",
            label_weights="sum",
            rows=float(self.penalty_rows),
            every=int(self.penalty_every),
        )

    @property
    def changes_(self) -> pd.DataFrame:
        """What training changed on validation data: AUC, GCIG, outcome gap and effective columns."""
        check_is_fitted(self)
        if self.diverged_:
            raise InputError("the last fit diverged, and what it changed was not measured: fit again first.")
        names = ["auc", "gcig", "outcome_gap", "columns", "completeness"]
        before = self.given_ or self.plain_
        changes = pd.DataFrame({"before": before, "after": self.validation_}, index=names, dtype=float)
        changes["change"] = changes["after"] - changes["before"]
        return changes

    def _check_parameters(self) -> None:
        super()._check_parameters()
        try:
            _ = self.definition_
        except ValueError as error:
            raise InputError(f"{error}.") from error
        if self._bounds() and not self.early_stopping:
            raise InputError(
                f"{' and '.join(self._bounds())}: bounds are checked on validation data, so that they need "
                "early_stopping=True."
            )

    def _bounds(self) -> dict[str, float]:
        """The bounds that were asked for, by parameter."""
        given = {"max_gcig": self.max_gcig, "max_eo_gap": self.max_eo_gap}
        return {name: bound for name, bound in given.items() if bound is not None}

    def _settings(self, n_rows: int) -> FairTraining:
        """Resolve ``"auto"`` for this many training rows."""
        definition = self.definition_
        batch_size = resolve_batch_size(self.batch_size, n_rows)
        return FairTraining(
            loop=Loop(self.max_epochs, batch_size, self.patience if self.early_stopping else None),
            learning_rate=self._rate(batch_size),
            weight_decay=self.weight_decay,
            clip_norm=self.clip_norm,
            lambda_ig=self.lambda_ig,
            lambda_fair=self.lambda_fair,
            outcome=self.outcome,
            max_gcig=self.max_gcig,
            max_eo_gap=self.max_eo_gap,
            norm=definition.norm,
            rule=definition.rule,
            n_steps=definition.n_steps,
            penalty_rows=definition.rows,
            penalty_every=definition.every,
            ema_rate=self.ema_rate,
            max_auc_drop=self.max_auc_drop,
            cut=None if self.threshold == "f1" else logit_of(float(self.threshold)),
            progress=self.verbose,
        )

    def _train(self, network: nn.Module, data: TrainingData, generator: torch.Generator) -> None:
        if self._bounds() and data.validation is None:
            raise InputError(
                f"{' and '.join(self._bounds())}: no validation data could be held out to check bounds on. "
                "Give more rows, a larger validation_fraction, or weights (lambda_ig, lambda_fair) instead."
            )
        if self.max_eo_gap is not None:
            self._check_gap_can_be_measured(data)
        settings = self._settings(len(data.training))
        continuing = hasattr(self, "module_")  # warm_start
        bringing = self.module is not None and not continuing
        self.given_ = self._measure(network, data, settings)[0] if bringing else {}
        trained = train_fairly(
            network,
            data.training,
            settings,
            generator=generator,
            weights=data.weights,
            validation=data.validation,
            n_groups=data.n_groups,
            trained=True if continuing else None if bringing else False,
            gauge=self._gauge(data),
        )
        self._record(trained.outcome)
        self.weights_ = trained.weights
        self.braked_ = trained.braked
        moved = trained.ema_baselines
        self.ema_baselines_ = self.baselines_.copy() if moved is None else moved.cpu().numpy()
        self.plain_ = trained.plain
        self.validation_, verdict = self._measure(network, data, settings)
        self._guard(verdict, trained)

    def _check_gap_can_be_measured(self, data: TrainingData) -> None:
        """A gap needs two groups among the rows held out, wherever rates are compared."""
        assert data.validation is not None
        rows = data.validation
        members = OUTCOME_LOSSES[self.outcome](data.n_groups).membership(rows.labels, rows.groups)
        if bool(((members.sum(-1) > 0).sum(-1) < 2).any()):
            raise InputError(
                "max_eo_gap: the rows held out with one of the labels are all of one group, so that there is "
                "no gap to check. Give more rows of the other groups, a larger validation_fraction, or a "
                "weight (lambda_fair) instead."
            )

    def _gauge(self, data: TrainingData) -> OneHotGauge | None:
        origin = torch.from_numpy(self.encoder_.origin_).to(data.training.inputs.device)
        return OneHotGauge.of(data.training.inputs, origin) if self.preprocessing == "table" else None

    def _measure(
        self, network: nn.Module, data: TrainingData, settings: FairTraining
    ) -> tuple[dict[str, float], Verdict]:
        """What a network is like on validation rows, or on those of training where none are held out."""
        rows = data.validation if data.validation is not None else data.training
        with evaluating(network), torch.no_grad():
            scores = logits(network, rows.inputs)
        cut = decision_cut(scores, rows.labels, settings)
        found = measure(network, rows, data.training, settings, data.n_groups, scores)
        return found, inspect_predictions(scores, rows.labels, cut=cut)

    def _guard(self, verdict: Verdict, trained: TrainedNetwork) -> None:
        """Mark and say aloud what is wrong with the trained network."""
        columns, plain_columns = self.validation_["columns"], self.plain_.get("columns", math.nan)
        self.collapsed_ = verdict.collapsed
        self.changed_columns_ = columns_changed(columns, plain_columns)
        if trained.plain and trained.outcome.best_epoch == 0 and self.max_epochs >= _SERIOUS:
            warn_of_limits(self.max_auc_drop)
        if self.collapsed_:
            heaviest = heaviest_term(self._weights_used(trained), trained.outcome.history)
            warn_of_collapse(verdict, heaviest, self.plain_)
        elif self.changed_columns_:
            warn_of_columns(columns, plain_columns, self.weights_["gcig"])
        reached = {"max_gcig": self.validation_["gcig"], "max_eo_gap": self.validation_["outcome_gap"]}
        for name, bound in self._bounds().items():
            if not reached[name] <= bound:
                warn_of_bound(name, bound, reached[name], verdict.auc)

    def _weights_used(self, trained: TrainedNetwork) -> dict[str, tuple[str, float]]:
        """The parameter behind each term as the user gave it, and its weight; a bound's as it came out."""
        weights = {
            "gcig": ("lambda_ig", self.lambda_ig, "max_gcig", self.max_gcig),
            "outcome": ("lambda_fair", self.lambda_fair, "max_eo_gap", self.max_eo_gap),
        }
        return {
            term: (f"{name}={weight:g}", weight)
            if bound is None
            else (f"{limit}={bound:g}", trained.weights[term])
            for term, (name, weight, limit, bound) in weights.items()
        }

    def _to_document(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        document, tensors = super()._to_document()
        document["fairx"] = {
            "definition": to_plain(self.definition_.to_dict()),
            "weights": numbers_to_plain(self.weights_),
            "plain": numbers_to_plain(self.plain_),
            "given": numbers_to_plain(self.given_),
            "validation": numbers_to_plain(self.validation_),
            "collapsed": self.collapsed_,
            "changed_columns": self.changed_columns_,
            "braked": self.braked_,
        }
        return document, {**tensors, "ema_baselines": torch.from_numpy(self.ema_baselines_)}

    @classmethod
    def _from_document(
        cls, document: Mapping[str, Any], tensors: Mapping[str, Tensor], module: nn.Module | None
    ) -> Self:
        model = super()._from_document(document, tensors, module)
        stored = document["fairx"]
        model.weights_ = numbers_from_plain(stored["weights"])
        model.plain_ = numbers_from_plain(stored["plain"])
        model.given_ = numbers_from_plain(stored["given"])
        model.validation_ = numbers_from_plain(stored["validation"])
        model.collapsed_, model.changed_columns_ = stored["collapsed"], stored["changed_columns"]
        model.braked_ = stored["braked"]
        model.ema_baselines_ = tensors["ema_baselines"].numpy()
        return model
