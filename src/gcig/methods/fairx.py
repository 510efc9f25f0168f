"""FairX: the estimator that trains a network whose reasons do not depend on the group."""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from gcig._validation import InputError
from gcig.core.disparity import Definition
from gcig.core.modes import evaluating, logits
from gcig.losses.equalized_odds import OUTCOME_LOSSES
from gcig.methods.base import NetworkClassifier
from gcig.methods.fair_training import FairTraining, TrainedNetwork, binary_auc, measure, train_fairly
from gcig.methods.prepared import TrainingData
from gcig.training import Loop, resolve_batch_size, resolve_learning_rate

__all__ = ["BoundWarning", "CollapseWarning", "FairXClassifier"]


class CollapseWarning(UserWarning):
    """The model stopped predicting, or lives on far fewer or far more columns than the plain network."""


class BoundWarning(UserWarning):
    """A bound that the user asked for was not reached."""


class FairXClassifier(NetworkClassifier):
    r"""A network trained for fair reasons and fair outcomes beside accuracy.

    .. math:: \text{cross-entropy} + \lambda_{ig} \, \text{GCIG} + \lambda_{fair} \, \text{outcome gap}

    GCIG is how much an individual's integrated-gradients explanation changes when the reference is one
    group's or another's typical member with the same label. Groups are needed to fit, never to predict.

    Parameters
    ----------
    lambda_ig : float
        Weight of the GCIG term.
    lambda_fair : float
        Weight of the outcome term.
    outcome : {"equalized_odds", "equal_opportunity", "demographic_parity"}
        Which gap of soft rates the outcome term is.
    max_gcig : float, optional
        A bound on GCIG instead of a weight: `lambda_ig` is then raised until validation data meet it.
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
        ``"auto"`` is 64 rows for small tables and up to 512 for large ones.
    learning_rate, weight_decay, clip_norm : float
        Of AdamW; ``learning_rate="auto"`` grows with the batch. It is lowered along a cosine.
    early_stopping : bool
        Whether a part of the training data is held out. It decides which epoch is kept (the fairest whose
        AUC is within a tolerance of the plain network's), when to stop, and when weights are too high.
    patience, validation_fraction : int, float
        Of early stopping.
    max_auc_drop : float
        How far validation AUC may fall below the plain network's, beside a third of its standard error,
        before the weights are lowered.
    norm, rule, n_steps : str, str, int or "auto"
        The definition of GCIG in training; see `gcig.Definition`.
    penalty_rows : float
        The share of each mini-batch that is explained.
    ema_rate : float
        The paper's gamma: how fast baselines follow the mini-batches.
    threshold : float or "f1"
        The probability from which a row is predicted positive; ``"f1"`` chooses it on validation data.
    class_weight : None, "balanced" or dict
    warm_start : bool
        Whether another `fit` goes on from the present network.
    device : str
        ``"auto"`` takes a CUDA device where there is one.
    random_state : int, RandomState or None
    verbose : bool
        Whether to show progress.

    Attributes
    ----------
    history_ : DataFrame
        One row an epoch: every term of the loss, completeness, and validation metrics.
    weights_ : dict
        The weights of the terms in the epoch that was kept.
    plain_ : dict
        AUC, GCIG and effective columns of the plainly trained network on validation data.
    validation_ : dict
        The same of the trained network.
    collapsed_ : bool
        Whether it stopped predicting.
    changed_columns_ : bool
        Whether it lives on less than half or more than twice as many effective columns as the plain one.
    ema_baselines_ : array of shape (2, groups, p)
        The moving averages at the end of training.

    Examples
    --------
    >>> import gcig
    >>> data = gcig.load_dataset("german")
    >>> model = gcig.FairXClassifier(max_epochs=5, random_state=0)
    >>> model = model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    >>> model.predict(data.X).shape
    (1000,)
    """

    method_key: ClassVar[str] = "fairx"

    def __init__(
        self,
        *,
        lambda_ig: float = 0.3,
        lambda_fair: float = 0.1,
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
        max_auc_drop: float = 0.005,
        norm: str = "l1",
        rule: str = "auto",
        n_steps: int | str = "auto",
        penalty_rows: float = 0.25,
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

        Rows are taken as the numbers that the network was trained on. After `fit`, `plain_` says what the
        network was like before and `validation_` what it is like now; `changes_` puts them side by side.

        Examples
        --------
        >>> network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        >>> FairXClassifier.from_module(network, max_epochs=10).preprocessing
        'none'
        """
        return cls(module=module, preprocessing="none", **parameters)

    @property
    def definition_(self) -> Definition:
        """The definition of GCIG that the network was trained with."""
        return Definition(
            norm=self.norm, rule=self.rule, n_steps=self.n_steps, label_weights="sum", rows=self.penalty_rows
        )

    @property
    def changes_(self) -> pd.DataFrame:
        """What training changed on validation data: AUC, GCIG, outcome gap and effective columns."""
        changes = pd.DataFrame({"before": self.plain_, "after": self.validation_})
        changes["change"] = changes["after"] - changes["before"]
        return changes

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.outcome not in OUTCOME_LOSSES:
            raise InputError(f"outcome must be one of {sorted(OUTCOME_LOSSES)}, not {self.outcome!r}.")
        for name in ("lambda_ig", "lambda_fair"):
            if not getattr(self, name) >= 0:
                raise InputError(f"{name} must not be negative, not {getattr(self, name)!r}.")
        bounded = self.max_gcig is not None or self.max_eo_gap is not None
        if bounded and not self.early_stopping:
            raise InputError(
                "max_gcig and max_eo_gap are checked on validation data: they need early_stopping=True."
            )
        if self.max_gcig is not None and not self.max_gcig > 0:
            raise InputError(f"max_gcig must be positive, not {self.max_gcig!r}.")
        if self.max_eo_gap is not None and not self.max_eo_gap > 0:
            raise InputError(f"max_eo_gap must be positive, not {self.max_eo_gap!r}.")

    def _settings(self, n_rows: int) -> FairTraining:
        """Resolve ``"auto"`` for this many training rows."""
        batch_size = resolve_batch_size(self.batch_size, n_rows)
        return FairTraining(
            loop=Loop(self.max_epochs, batch_size, self.patience if self.early_stopping else None),
            learning_rate=resolve_learning_rate(self.learning_rate, batch_size),
            weight_decay=self.weight_decay,
            clip_norm=self.clip_norm,
            lambda_ig=self.lambda_ig,
            lambda_fair=self.lambda_fair,
            outcome=self.outcome,
            max_gcig=self.max_gcig,
            max_eo_gap=self.max_eo_gap,
            norm=self.norm,
            rule=self.rule,
            n_steps=self.n_steps,
            penalty_rows=self.penalty_rows,
            ema_rate=self.ema_rate,
            allowed_drop=self.max_auc_drop,
            progress=self.verbose,
        )

    def _train(self, network: nn.Module, data: TrainingData, generator: torch.Generator) -> None:
        settings = self._settings(len(data.training))
        before = None
        if self.module is not None and data.validation is not None:
            before = measure(network, data.validation, data.training, settings, data.n_groups)
        trained = train_fairly(
            network,
            data.training,
            settings,
            generator=generator,
            weights=data.weights,
            validation=data.validation,
            n_groups=data.n_groups,
        )
        self.history_ = pd.DataFrame([epoch.to_dict() for epoch in trained.outcome.history])
        self.n_epochs_ = trained.outcome.best_epoch
        self.weights_ = trained.weights
        self.ema_baselines_ = trained.ema_baselines.cpu().numpy()
        rows = data.validation if data.validation is not None else data.training
        self.validation_ = measure(network, rows, data.training, settings, data.n_groups)
        self.plain_ = before if before is not None and self.preprocessing == "none" else trained.plain
        self._guard(network, rows, settings, trained)

    def _guard(self, network: nn.Module, rows: Any, settings: FairTraining, trained: TrainedNetwork) -> None:
        with evaluating(network), torch.no_grad():
            scores = logits(network, rows.inputs)
        share = float((scores > 0).double().mean())
        auc = binary_auc(scores, rows.labels)
        self.collapsed_ = bool(auc < 0.55 or max(share, 1 - share) >= 0.995)
        plain_columns = self.plain_.get("columns", math.nan)
        ratio = self.validation_["columns"] / plain_columns
        self.changed_columns_ = bool(ratio < 0.5 or ratio > 2)
        self.braked_ = trained.braked
        heaviest = _heaviest_weight(settings, trained)
        if self.collapsed_ and heaviest:
            warnings.warn(
                f"the model collapsed (validation AUC {auc:.3f}, {max(share, 1 - share):.1%} of the rows predicted "
                f"alike): {heaviest} is too high for these data. Lower it, or give a bound (max_gcig, max_eo_gap).",
                CollapseWarning,
                stacklevel=4,
            )
        elif self.changed_columns_:
            warnings.warn(
                f"the model now lives on {self.validation_['columns']:.1f} effective columns, the plain network on "
                f"{plain_columns:.1f}: part of the low GCIG comes from that. Lower lambda_ig, now "
                f"{trained.weights['gcig']:.3g}, if the model should use more of the table.",
                CollapseWarning,
                stacklevel=4,
            )
        for name, bound, key in (
            ("max_gcig", self.max_gcig, "gcig"),
            ("max_eo_gap", self.max_eo_gap, "outcome_gap"),
        ):
            reached = self.validation_[key]
            if bound is not None and not reached <= bound:
                warnings.warn(
                    f"{name}={bound} was not reached: validation data give {reached:.4f} at an AUC of {auc:.3f}. "
                    "Allow a larger max_auc_drop, more max_epochs, or a looser bound.",
                    BoundWarning,
                    stacklevel=4,
                )

    def _to_document(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        document, tensors = super()._to_document()
        finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in self.validation_.items()}
        document["fairx"] = {
            "history": self.history_.astype(object).where(self.history_.notna(), None).to_dict("records"),
            "n_epochs": self.n_epochs_,
            "weights": self.weights_,
            "plain": self.plain_,
            "validation": finite,
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
        model.history_ = pd.DataFrame(stored["history"]).astype(float).astype({"epoch": int})
        model.n_epochs_ = stored["n_epochs"]
        model.weights_, model.plain_ = stored["weights"], stored["plain"]
        model.validation_ = {k: math.nan if v is None else v for k, v in stored["validation"].items()}
        model.collapsed_, model.changed_columns_ = stored["collapsed"], stored["changed_columns"]
        model.braked_ = stored["braked"]
        model.ema_baselines_ = np.asarray(tensors["ema_baselines"])
        return model


def _heaviest_weight(settings: FairTraining, trained: TrainedNetwork) -> str:
    """The name of the weight that contributed most to the loss at the end."""
    terms = trained.outcome.history[-1].terms
    shares = {
        "lambda_ig": trained.weights["gcig"] * terms.get("gcig", 0.0) if settings.explains else 0.0,
        "lambda_fair": trained.weights["outcome"] * terms.get("outcome", 0.0) if settings.constrains else 0.0,
    }
    name = max(shares, key=lambda key: shares[key])
    used = {"lambda_ig": trained.weights["gcig"], "lambda_fair": trained.weights["outcome"]}
    return f"{name} ({used[name]:.3g})" if shares[name] > 0 else ""
