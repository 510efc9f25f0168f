r"""Adversarial debiasing: an adversary tries to infer the group from the prediction and the label.

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
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from gcig.core.batch import GroupedBatch
from gcig.core.modules import logits
from gcig.engine.optimizer import FlatAdamW, clip_norm, flat_parameters
from gcig.methods.networks import CLIP_NORM
from gcig.methods.outcome_bounded import OutcomeBoundedClassifier, cell_members
from gcig.methods.parameters import FRACTION, NON_NEGATIVE, POSITIVE, POSITIVE_INTEGER, optional, parameter
from gcig.methods.training_data import TrainingData
from gcig.training.loop import Loop, Outcome


def debiased(predictor: Tensor, adversary: Tensor, alpha: float | Tensor) -> Tensor:
    """Return the predictor's gradient minus its projection on, and alpha times, the adversary's.

    Both are flat vectors over all parameters. If the adversary has no gradient, nothing is projected.

    >>> debiased(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 0.5]), alpha=1.0)
    tensor([ 1.0000, -0.5000])
    """
    squares = adversary.dot(adversary).clamp(min=torch.finfo(adversary.dtype).tiny)
    return predictor - (predictor.dot(adversary) / squares + alpha) * adversary


def balanced_weights(members: Tensor) -> Tensor:
    """Return row weights, with mean one, under which all (label, group) cells have the same total weight.

    Without them, labels alone would inform the adversary about the groups, and large groups would dominate.

    >>> balanced_weights(torch.eye(4)[[0, 1, 2, 3, 3]])
    tensor([1.2500, 1.2500, 1.2500, 0.6250, 0.6250])
    """
    shares = members.mean(0)
    return members @ (1 / (shares.clamp(min=torch.finfo(shares.dtype).tiny) * members.shape[1]))


class Adversary(nn.Module):
    """Logistic regression of the groups, shape (n, groups), on the predictor's logit and the label.

    The factor k is ``sharpness``, or 1 + abs(extra) with ``extra`` learned; ``cut`` is the logit at which s
    is one half.
    """

    def __init__(self, n_groups: int, sharpness: float | str = 5.0, cut: float = 0.0) -> None:
        super().__init__()
        self.cut = cut
        self.extra = nn.Parameter(torch.ones((), dtype=torch.float32)) if sharpness == "learned" else None
        self.sharpness = 1.0 if sharpness == "learned" else float(sharpness)
        self.weight = nn.Parameter(torch.zeros(n_groups, 4, dtype=torch.float32))
        self.bias = nn.Parameter(torch.zeros(n_groups, dtype=torch.float32))

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return group logits from logits and float labels, both of shape (n,)."""
        sharpness = self.sharpness if self.extra is None else self.sharpness + self.extra.abs()
        s = torch.sigmoid(sharpness * (scores - self.cut))
        seen = torch.stack([s, s * labels, s * (1 - labels), labels], 1)
        return seen @ self.weight.T + self.bias


class AdversarialStep:
    """A training step: the adversary learns to infer the groups, the predictor to prevent that."""

    def __init__(
        self,
        network: nn.Module,
        adversary: Adversary,
        optimizers: tuple[FlatAdamW, FlatAdamW],
        data: GroupedBatch,
        members: Tensor,
        weights: Tensor | None,
        loop: Loop,
        model: "AdversarialClassifier",
        clip_norm: float = CLIP_NORM,
    ) -> None:
        self.network, self.adversary = network, adversary
        self.of_network, self.of_adversary = optimizers
        self.param_groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        self.data, self.weights, self.model, self.clip_norm = data, weights, model, clip_norm
        self.balanced = balanced_weights(members)
        self.targets = data.labels.to(data.inputs.dtype)
        self.parameters = [weights for weights in network.parameters() if weights.requires_grad]
        self.n_warm = model.warm_up * loop.max_epochs * math.ceil(len(data) / loop.batch_size)
        self.n_done = 0
        # A tensor on a GPU, so that a recorded step can be repeated with another value.
        self.alpha: float | Tensor = data.inputs.new_zeros(()) if data.inputs.is_cuda else 0.0

    def load(self) -> None:
        """Set alpha, which rises linearly during the warm-up, and the learning rates."""
        self.n_done += 1
        alpha = self.model.alpha * min(1.0, self.n_done / max(self.n_warm, 1.0))
        if isinstance(self.alpha, Tensor):
            self.alpha.fill_(alpha)
        else:
            self.alpha = alpha
        for optimizer in (self.of_network, self.of_adversary):
            optimizer.load_rate()

    def __call__(self, rows: Tensor) -> dict[str, Tensor]:
        """Update both players and return their losses."""
        alpha, targets = self.alpha, self.targets[rows]
        scores = logits(self.network, self.data.inputs.index_select(0, rows))
        weight = None if self.weights is None else self.weights[rows]
        prediction = binary_cross_entropy_with_logits(scores, targets, weight=weight)
        for _ in range(self.model.adversary_steps):
            self.of_adversary.zero_grad()
            self._adversary_loss(scores.detach(), targets, rows).backward()
            self.of_adversary.step()
        adversary = self._adversary_loss(scores, targets, rows)
        direction = debiased(self._gradient(prediction), self._gradient(adversary), alpha)
        self._move_network(direction)
        prediction, adversary = prediction.detach(), adversary.detach()
        return {"prediction": prediction, "adversary": adversary, "total": prediction - alpha * adversary}

    def _adversary_loss(self, scores: Tensor, targets: Tensor, rows: Tensor) -> Tensor:
        losses = cross_entropy(self.adversary(scores, targets), self.data.groups[rows], reduction="none")
        return (self.balanced[rows] * losses).mean()

    def _gradient(self, loss: Tensor) -> Tensor:
        """Return the gradient over all parameters of the network as one vector; zeros for unused ones."""
        parts = torch.autograd.grad(loss, self.parameters, retain_graph=True, materialize_grads=True)
        return torch.cat([part.flatten() for part in parts])

    def _move_network(self, direction: Tensor) -> None:
        parts = direction.split([weights.numel() for weights in self.parameters])
        for weights, part in zip(self.parameters, parts, strict=True):
            if weights.grad is None:
                weights.grad = torch.empty_like(weights)
            weights.grad.copy_(part.view_as(weights))  # in place: it may be a view of a flat gradient
        clip_norm(self.of_network.param_groups[0]["params"], self.clip_norm)
        self.of_network.step()


class AdversarialClassifier(OutcomeBoundedClassifier):
    """A network trained against an adversary that infers the group from the prediction and the label.

    If it cannot, true and false positive rates are equal: equalized odds (Zhang et al. 2018). Groups are
    needed to fit, not to predict.

    `alpha` and `sharpness` were chosen on held-out quarters of Adult's training folds. Of the unconstrained
    network's equalized odds gap, 0.152 there, 62 % remain with 3 and 10, 52 % with 8 and 20, and 35 % with 8
    and 5; AUC falls by 0.003, 0.005 and 0.005.

    Attributes
    ----------
    history_, n_epochs_, rates_, met_
        See `OutcomeBoundedClassifier`.

    Examples
    --------
    >>> import gcig
    >>> data = gcig.load_dataset("german")
    >>> model = AdversarialClassifier(max_epochs=3, random_state=0)
    >>> model = model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    >>> model.rates_.shape
    (2, 2)
    """

    method_key: ClassVar[str] = "adversarial"
    predicts_by_network: ClassVar[bool] = True

    alpha: float = parameter(
        default=8.0, rule=NON_NEGATIVE, doc="How strongly the network works against the adversary."
    )
    max_gap: float = parameter(
        default=0.02,
        rule=FRACTION,
        doc="The largest difference of a rate between two groups that early stopping accepts.",
    )
    warm_up: float = parameter(
        default=0.25, rule=FRACTION, doc="The share of training over which `alpha` is raised from zero."
    )
    adversary_learning_rate: float = parameter(
        default=0.05,
        rule=POSITIVE,
        doc="Initial learning rate of the adversary, lowered along the same cosine as the network's.",
    )
    adversary_steps: int = parameter(
        default=2,
        rule=POSITIVE_INTEGER,
        doc="Steps of the adversary per step of the network; a slow adversary makes both oscillate.",
    )
    sharpness: float | str = parameter(
        default=5.0,
        rule=optional(POSITIVE, "learned"),
        doc="""Sharpness of the sigmoid through which the adversary sees the logit; high values show it
        decisions, 1 shows it probabilities. ``"learned"`` is the paper's: at least 1, and learned by the
        adversary.""",
    )

    def train_network(self, network: nn.Module, data: TrainingData, generator: torch.Generator) -> Outcome:
        """Train the network against the adversary; both learning rates follow the same cosine."""
        rows, weights = data.training, data.weights
        members = cell_members(rows, data.n_groups, weights)
        adversary = Adversary(data.n_groups, self.sharpness, self.cut).to(rows.inputs.device)
        with flat_parameters(adversary) as parameters:
            opponent = FlatAdamW(parameters, learning_rate=self.adversary_learning_rate)

            def make_game(optimizer: FlatAdamW, loop: Loop) -> AdversarialStep:
                both = (optimizer, opponent)
                return AdversarialStep(network, adversary, both, rows, members, weights, loop, self)

            return self.train_game(network, adversary, make_game, data, generator)
