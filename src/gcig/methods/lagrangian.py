"""The Lagrangian method: bounds on the differences of rates, with a multiplier each."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gcig.methods.outcome_bounded import OutcomeBoundedClassifier
from gcig.methods.prepared import TrainingData
from gcig.methods.primal_dual import PrimalDual, train_primal_dual

__all__ = ["LagrangianClassifier"]


class LagrangianClassifier(OutcomeBoundedClassifier):
    """A network trained under bounds on the differences of true and of false positive rates between groups.

    Every label and ordered pair of groups has one constraint and one multiplier. The network descends on a
    differentiable proxy of the rates, the multipliers ascend on the true rates (Cotter et al. 2019); see
    `gcig.methods.primal_dual`. Groups are needed to fit, never to predict.

    Parameters
    ----------
    max_gap : float
        The bound: the largest difference of a rate between two groups.
    dual_learning_rate : float
        How far a multiplier moves in an epoch, per unit of violation.
    damping : float
        How strongly the network feels the present violation, beside the multipliers; 0 is plain descent and
        ascent, which is prone to circle.
    max_multiplier : float
        Where multipliers stop growing.
    sharpness : float
        Of the sigmoid that stands for the decision in the proxy rates; 1 gives mean probabilities.
    memory : int
        Rows of a (label, group) cell that its true rate is averaged over in training.
    module, preprocessing, hidden_sizes, activation, dropout
        The network, as in `gcig.FairXClassifier`.
    max_epochs, batch_size, learning_rate, weight_decay, clip_norm
        Its training, as in `gcig.FairXClassifier`.
    early_stopping : bool
        Whether a part of the training data is held out. Of the epochs that meet the bound the one with the
        highest validation AUC is kept; where none does, the one nearest to it. Without it the last epoch is.
    patience, validation_fraction : int, float
        Of early stopping.
    threshold : float or "f1"
        The probability from which a row is predicted positive; the bound is on these predictions.
        ``"f1"`` chooses it after training, for which the bound was on predictions at one half.
    class_weight, warm_start, device, random_state, verbose
        As in `gcig.FairXClassifier`.

    Attributes
    ----------
    multipliers_ : array of shape (2, groups, groups)
        ``multipliers_[y, g, h]`` belongs to the constraint that, among rows with label y, the rate of group g
        exceeds that of group h by at most `max_gap`.
    history_, n_epochs_, rates_, met_
        See `OutcomeBoundedClassifier`.

    Examples
    --------
    >>> import gcig
    >>> data = gcig.load_dataset("german")
    >>> model = LagrangianClassifier(max_epochs=3, random_state=0)
    >>> model = model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    >>> model.multipliers_.shape
    (2, 2, 2)
    """

    method_key: ClassVar[str] = "lagrangian"

    multipliers_: NDArray[np.float32]

    def __init__(
        self,
        *,
        max_gap: float = 0.01,
        dual_learning_rate: float = 1.0,
        damping: float = 5.0,
        max_multiplier: float = 10.0,
        sharpness: float = 3.0,
        memory: int = 256,
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
        threshold: float | str = 0.5,
        class_weight: Any = None,
        warm_start: bool = False,
        device: str = "auto",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.max_gap = max_gap
        self.dual_learning_rate = dual_learning_rate
        self.damping = damping
        self.max_multiplier = max_multiplier
        self.sharpness = sharpness
        self.memory = memory
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
        self.threshold = threshold
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self) -> None:
        super()._check_parameters()
        positive = ("dual_learning_rate", "max_multiplier", "sharpness")
        self._check_numbers("a positive number", lambda value: 0 < value < math.inf, *positive)
        self._check_numbers(
            "a finite number that is not negative", lambda value: 0 <= value < math.inf, "damping"
        )
        self._check_numbers(
            "a positive integer", lambda value: isinstance(value, int | np.integer) and value >= 1, "memory"
        )

    def _train(self, network: nn.Module, data: TrainingData, generator: torch.Generator) -> None:
        settings = PrimalDual(
            dual_learning_rate=self.dual_learning_rate,
            damping=self.damping,
            max_multiplier=self.max_multiplier,
            sharpness=self.sharpness,
            memory=self.memory,
            **self._shared_settings(len(data.training)),
        )
        outcome, multipliers = train_primal_dual(
            network,
            data.training,
            settings,
            n_groups=data.n_groups,
            generator=generator,
            weights=data.weights,
            validation=data.validation,
        )
        self.multipliers_ = multipliers.values.cpu().numpy()
        self._keep(outcome, network, data)

    def _to_document(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        document, tensors = super()._to_document()
        return document, {**tensors, "multipliers": torch.from_numpy(self.multipliers_)}

    @classmethod
    def _from_document(
        cls, document: Mapping[str, Any], tensors: Mapping[str, Tensor], module: nn.Module | None
    ) -> Self:
        model = super()._from_document(document, tensors, module)
        model.multipliers_ = tensors["multipliers"].numpy()
        return model
