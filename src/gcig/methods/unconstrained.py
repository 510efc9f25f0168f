"""The unconstrained method: the network trained on labels alone, the point of comparison."""

from typing import Any, ClassVar

import torch
from torch import nn

from gcig.methods.base import NetworkClassifier, NetworkRegressor, train_plainly
from gcig.methods.training_data import TrainingData
from gcig.training.loop import Outcome


class Plain:
    """Trains with the loss on labels and nothing else."""

    method_key: ClassVar[str] = "unconstrained"
    predicts_by_network: ClassVar[bool] = True

    def train_network(
        self: Any, network: nn.Module, data: TrainingData, generator: torch.Generator
    ) -> tuple[nn.Module, Outcome]:
        """Train on labels."""
        return network, train_plainly(network, data, self, generator)


class UnconstrainedClassifier(Plain, NetworkClassifier):
    """A network trained with cross-entropy and nothing else.

    `fit` still needs groups, for the baselines that reasons are measured with.

    Examples
    --------
    >>> import gcig
    >>> data = gcig.load_dataset("german")
    >>> model = UnconstrainedClassifier(max_epochs=3, random_state=0)
    >>> model.fit(data.X, data.y, sensitive_features=data.sensitive_features).groups_
    ('female', 'male')
    """


class UnconstrainedRegressor(Plain, NetworkRegressor):
    """A network trained with squared errors and nothing else.

    Examples
    --------
    >>> import gcig
    >>> data = gcig.load_dataset("german")
    >>> model = UnconstrainedRegressor(max_epochs=3, random_state=0)
    >>> amount = data.X["credit_amount"]
    >>> X = data.X.drop(columns="credit_amount")
    >>> model.fit(X, amount, sensitive_features=data.sensitive_features).predict(X).shape
    (1000,)
    """
