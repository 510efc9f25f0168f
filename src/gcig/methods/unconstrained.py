"""The same network trained with cross-entropy alone: what every method is compared with."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import nn

from gcig.methods.base import NetworkClassifier
from gcig.methods.fairx.settings import FairTraining
from gcig.methods.fairx.training import train_fairly
from gcig.methods.prepared import TrainingData
from gcig.training.loop import Loop
from gcig.training.runtime import resolve_batch_size

__all__ = ["UnconstrainedClassifier"]


class UnconstrainedClassifier(NetworkClassifier):
    """A network trained with cross-entropy, and nothing else.

    Groups are still asked for in `fit`: the baselines that its GCIG is measured with are theirs. The
    parameters are those of `gcig.FairXClassifier` without the fairness terms.

    Examples
    --------
    >>> import gcig
    >>> data = gcig.load_dataset("german")
    >>> model = UnconstrainedClassifier(max_epochs=3, random_state=0)
    >>> model.fit(data.X, data.y, sensitive_features=data.sensitive_features).groups_
    ('female', 'male')
    """

    method_key: ClassVar[str] = "unconstrained"
    predicts_by_network: ClassVar[bool] = True

    def __init__(
        self,
        *,
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

    def _train(self, network: nn.Module, data: TrainingData, generator: torch.Generator) -> None:
        batch_size = resolve_batch_size(self.batch_size, len(data.training))
        settings = FairTraining(
            loop=Loop(self.max_epochs, batch_size, self.patience if self.early_stopping else None),
            learning_rate=self._rate(batch_size),
            weight_decay=self.weight_decay,
            clip_norm=self.clip_norm,
            progress=self.verbose,
        )
        trained = train_fairly(
            network,
            data.training,
            settings,
            generator=generator,
            weights=data.weights,
            validation=data.validation,
            n_groups=data.n_groups,
        )
        self._record(trained.outcome)
