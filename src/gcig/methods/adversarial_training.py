r"""A predictor and an adversary that tries to tell the group from the prediction and the label.

The adversary sees :math:`s = \sigma(k (z - c))`, :math:`s y` and :math:`s (1 - y)` as in Zhang et al. (2018),
and y. The predictor's parameters W move against

.. math:: \nabla_W L_P - \operatorname{proj}_{\nabla_W L_A} \nabla_W L_P - \alpha \nabla_W L_A :

they lower the predictor's loss :math:`L_P`, but not along a direction that changes the adversary's loss
:math:`L_A`, and raise the latter. The projection is over all parameters at once.

References
----------
Zhang, Lemoine, Mitchell (2018). Mitigating unwanted biases with adversarial learning. AAAI/ACM Conference on
AI, Ethics, and Society.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from gcig.core.batch import GroupedBatch
from gcig.core.modules import logits
from gcig.engine.optimizer import FlatAdamW, clip_norm, flat_parameters
from gcig.methods.outcome_judge import OutcomeJudge, cell_members
from gcig.training.loop import Loop, Outcome, train
from gcig.training.runtime import one_thread

__all__ = [
    "Adversarial",
    "AdversarialStep",
    "Adversary",
    "balanced_weights",
    "debiased",
    "train_adversarially",
]


@dataclass(frozen=True)
class Adversarial:
    """Everything about training but the data and the network; see `AdversarialClassifier`."""

    loop: Loop
    learning_rate: float = 2e-3
    weight_decay: float = 1e-4
    clip_norm: float = 5.0
    alpha: float = 8.0
    warm_up: float = 0.25
    adversary_learning_rate: float = 0.05
    adversary_steps: int = 2
    sharpness: float | str = 5.0
    max_gap: float = 0.02
    cut: float = 0.0
    progress: bool = False


def debiased(predictor: Tensor, adversary: Tensor, alpha: float) -> Tensor:
    """The predictor's gradient without its projection on the adversary's, minus alpha times the latter.

    Both are flat vectors over all parameters. Where the adversary has no gradient there is no projection.

    >>> debiased(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 0.5]), alpha=1.0)
    tensor([ 1.0000, -0.5000])
    """
    squares = adversary.dot(adversary).clamp(min=torch.finfo(adversary.dtype).tiny)
    return predictor - (predictor.dot(adversary) / squares + alpha) * adversary


def balanced_weights(members: Tensor) -> Tensor:
    """Weights of rows under which all groups count alike within each label, and both labels alike.

    Without them an adversary that sees nothing but labels already knows something of the groups, and a large
    group hides what happens to a small one. Their mean is one.

    >>> balanced_weights(torch.eye(4)[[0, 1, 2, 3, 3]])
    tensor([1.2500, 1.2500, 1.2500, 0.6250, 0.6250])
    """
    shares = members.mean(0)
    return members @ (1 / (shares.clamp(min=torch.finfo(shares.dtype).tiny) * members.shape[1]))


class Adversary(nn.Module):
    """Logits of the groups, shape (n, groups), from the predictor's logit and the label.

    Parameters
    ----------
    n_groups : int
    sharpness : float or "learned"
        How near s is to the decision: k. ``"learned"`` is the paper's, 1 + |c| with c learned.
    cut : float
        The logit at which s is one half.

    Weights start from zero: it is a logistic regression, and needs no luck.
    """

    def __init__(self, n_groups: int, sharpness: float | str = 5.0, cut: float = 0.0) -> None:
        super().__init__()
        self.cut = cut
        self.extra = nn.Parameter(torch.ones(())) if sharpness == "learned" else None
        self.sharpness = 1.0 if sharpness == "learned" else float(sharpness)
        self.weight = nn.Parameter(torch.zeros(n_groups, 4))
        self.bias = nn.Parameter(torch.zeros(n_groups))

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        """From logits and float labels, both of shape (n,)."""
        sharpness = self.sharpness if self.extra is None else self.sharpness + self.extra.abs()
        s = torch.sigmoid(sharpness * (scores - self.cut))
        seen = torch.stack([s, s * labels, s * (1 - labels), labels], 1)
        return seen @ self.weight.T + self.bias


class AdversarialStep:
    """One mini-batch: the adversary learns to tell the groups, the predictor to predict without telling.

    Parameters
    ----------
    optimizers : pair of FlatAdamW
        The predictor's and the adversary's.
    """

    def __init__(
        self,
        network: nn.Module,
        adversary: Adversary,
        optimizers: tuple[FlatAdamW, FlatAdamW],
        data: GroupedBatch,
        members: Tensor,
        settings: Adversarial,
        weights: Tensor | None = None,
    ) -> None:
        self.network, self.adversary = network, adversary
        self.of_network, self.of_adversary = optimizers
        self.data, self.settings, self.weights = data, settings, weights
        self.balanced = balanced_weights(members)
        self.targets = data.labels.to(data.inputs.dtype)
        self.parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
        self.n_warm = (
            settings.warm_up * settings.loop.max_epochs * math.ceil(len(data) / settings.loop.batch_size)
        )
        self.n_done = 0

    @property
    def alpha(self) -> float:
        """Raised in even steps over the first part of training."""
        return self.settings.alpha * min(1.0, (self.n_done + 1) / max(self.n_warm, 1.0))

    def __call__(self, rows: Tensor) -> dict[str, Tensor]:
        """Update both players; returns their losses."""
        alpha, targets = self.alpha, self.targets[rows]
        scores = logits(self.network, self.data.inputs.index_select(0, rows))
        weight = None if self.weights is None else self.weights[rows]
        prediction = binary_cross_entropy_with_logits(scores, targets, weight=weight)
        for _ in range(self.settings.adversary_steps):
            self._teach_adversary(scores.detach(), targets, rows)
        told = self._adversary_loss(scores, targets, rows)
        direction = debiased(self._gradient(prediction), self._gradient(told), alpha)
        self._move_network(direction)
        self.n_done += 1
        prediction, told = prediction.detach(), told.detach()
        return {"prediction": prediction, "adversary": told, "total": prediction - alpha * told}

    def _adversary_loss(self, scores: Tensor, targets: Tensor, rows: Tensor) -> Tensor:
        told = cross_entropy(self.adversary(scores, targets), self.data.groups[rows], reduction="none")
        return (self.balanced[rows] * told).mean()

    def _teach_adversary(self, scores: Tensor, targets: Tensor, rows: Tensor) -> None:
        self.of_adversary.zero_grad()
        self._adversary_loss(scores, targets, rows).backward()
        self.of_adversary.step()

    def _gradient(self, loss: Tensor) -> Tensor:
        """Over all parameters of the network as one vector; zeros where one plays no part."""
        parts = torch.autograd.grad(loss, self.parameters, retain_graph=True, materialize_grads=True)
        return torch.cat([part.flatten() for part in parts])

    def _move_network(self, direction: Tensor) -> None:
        parts = direction.split([parameter.numel() for parameter in self.parameters])
        for parameter, part in zip(self.parameters, parts, strict=True):
            if parameter.grad is None:
                parameter.grad = torch.empty_like(parameter)
            parameter.grad.copy_(part.view_as(parameter))  # in place: it may be a view of a flat gradient
        clip_norm(self.of_network.param_groups[0]["params"], self.settings.clip_norm)
        self.of_network.step()


class _Rates:
    """The learning rates of several optimizers, for one schedule."""

    def __init__(self, *optimizers: FlatAdamW) -> None:
        self.param_groups = [group for optimizer in optimizers for group in optimizer.param_groups]


def train_adversarially(
    network: nn.Module,
    data: GroupedBatch,
    settings: Adversarial,
    *,
    n_groups: int,
    generator: torch.Generator,
    weights: Tensor | None = None,
    validation: GroupedBatch | None = None,
) -> Outcome:
    """Train a network in place; the learning rates of both players are lowered along a cosine."""
    device = data.inputs.device
    adversary = Adversary(n_groups, settings.sharpness, settings.cut).to(device)
    members = cell_members(data, n_groups, weights)
    judge = None
    if validation is not None:
        judge = OutcomeJudge(
            network, validation, data, n_groups, settings.max_gap, settings.loop.max_epochs, settings.cut
        )
    network.train()
    with (
        one_thread(device),
        flat_parameters(network) as of_network,
        flat_parameters(adversary) as of_adversary,
    ):
        optimizers = (
            FlatAdamW(of_network, learning_rate=settings.learning_rate, weight_decay=settings.weight_decay),
            FlatAdamW(of_adversary, learning_rate=settings.adversary_learning_rate),
        )
        return train(
            AdversarialStep(network, adversary, optimizers, data, members, settings, weights),
            nn.ModuleDict({"network": network, "adversary": adversary}),
            _Rates(*optimizers),
            n_rows=len(data),
            loop=settings.loop,
            generator=generator,
            device=device,
            validate=judge,
            progress=settings.progress,
        )
