"""The unconstrained method: the network trained with cross-entropy alone, the point of comparison."""

from typing import ClassVar

import torch
from torch import nn

from gcig.methods.base import NetworkClassifier
from gcig.methods.fairx.selection import make_held_out
from gcig.methods.fairx.settings import FairTraining
from gcig.methods.fairx.training import train_fairly
from gcig.methods.networks import CLIP_NORM
from gcig.methods.training_data import TrainingData
from gcig.training.loop import Outcome


class UnconstrainedClassifier(NetworkClassifier):
    """A network trained with cross-entropy and nothing else.

    `fit` still needs groups, for the baselines that GCIG is measured with.

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

    def train_network(self, network: nn.Module, data: TrainingData, generator: torch.Generator) -> Outcome:
        """Train with cross-entropy."""
        loop = self.resolve_loop(len(data.rows))
        settings = FairTraining(
            loop=loop,
            learning_rate=self.resolve_learning_rate(loop.batch_size),
            weight_decay=self.weight_decay,
            clip_norm=CLIP_NORM,
            progress=bool(self.verbose),
        )
        held_out = make_held_out(data, settings, self.encoder_.origin_)
        return train_fairly(network, data.rows, settings, generator=generator, held_out=held_out).outcome
