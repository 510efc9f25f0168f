r"""Adversarial debiasing: an adversary tries to infer the group from the prediction and the label.

Zhang, Lemoine and Mitchell (2018), "Mitigating unwanted biases with adversarial learning",
https://arxiv.org/abs/1801.07593. The adversary sees the smooth decisions s (:math:`\sigma(k (z - c))` of two
classes, the prediction of a number), their products with indicators of the label's cells, and the indicators:
for two classes s, s y, s (1 - y) as in the paper, and y. The predictor's parameters W move against

.. math:: \nabla_W L_P - \operatorname{proj}_{\nabla_W L_A} \nabla_W L_P - \alpha \nabla_W L_A :

they lower the predictor's loss :math:`L_P`, but not along a direction that changes the adversary's loss
:math:`L_A`, and raise the latter. The projection is over all parameters at once.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gcig.methods.base import NetworkClassifier, NetworkRegressor
from gcig.methods.outcome_bounded import Game, OutcomeBounded
from gcig.methods.parameters import FRACTION, NON_NEGATIVE, POSITIVE, POSITIVE_INTEGER, parameter
from gcig.methods.training_data import TrainingData
from gcig.training.loop import Loop
from gcig.training.runtime import descend


def debiased(predictor: Tensor, adversary: Tensor, alpha: float) -> Tensor:
    """Return the predictor's gradient minus its projection on, and alpha times, the adversary's.

    Both are flat vectors over all parameters. If the adversary has no gradient, nothing is projected.

    >>> debiased(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 0.5]), alpha=1.0)
    tensor([ 1.0000, -0.5000])
    """
    squares = adversary.dot(adversary).clamp_min(torch.finfo(adversary.dtype).tiny)
    return predictor - (predictor.dot(adversary) / squares + alpha) * adversary


def balanced_weights(members: Tensor) -> Tensor:
    """Return row weights, with mean one, under which all cells and groups have the same total weight.

    Without them, labels alone would inform the adversary about the groups, and large groups would dominate.

    >>> balanced_weights(torch.eye(4)[[0, 1, 2, 3, 3]].view(5, 2, 2))
    tensor([1.2500, 1.2500, 1.2500, 0.6250, 0.6250])
    """
    shares = members.mean(0)
    present = (shares > 0).sum()
    return (members / (shares.clamp_min(torch.finfo(shares.dtype).tiny) * present)).sum((1, 2))


class Adversary(nn.Module):
    """Logistic regression of the groups, (n, groups), on the decisions and the cells of the label."""

    def __init__(self, n_decisions: int, n_cells: int, n_groups: int) -> None:
        super().__init__()
        n_inputs = n_decisions * (1 + n_cells) + n_cells - 1
        self.weight = nn.Parameter(torch.zeros(n_groups, n_inputs, dtype=torch.float32))
        self.bias = nn.Parameter(torch.zeros(n_groups, dtype=torch.float32))
        self.n_cells = n_cells

    def forward(self, decisions: Tensor, cells: Tensor) -> Tensor:
        """Return group logits from smooth decisions (n, d) and the cells of the labels (n,)."""
        own = F.one_hot(cells, self.n_cells).to(decisions.dtype)
        products = (decisions.unsqueeze(2) * own.unsqueeze(1)).flatten(1)
        return torch.cat([decisions, products, own[:, 1:]], dim=1) @ self.weight.T + self.bias


@dataclass(eq=False)
class Debiasing(Game):
    """The adversary learns to infer the groups, the predictor to prevent that."""

    n_warm: float = 1.0  # steps in which alpha rises linearly
    n_steps: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.cells, n_cells, _ = self.task.outcome_cells(self.rows.labels, self.model.outcome)
        self.cells = self.cells.clamp_min(0)  # rows in no cell have no weight
        adversary = Adversary(self.n_decisions, n_cells, self.data.n_groups)
        self.opponent = self.adversary = adversary.to(self.members.device)
        rate = self.model.adversary_learning_rate
        self.of_adversary = torch.optim.Adam(self.adversary.parameters(), lr=rate)
        self.balanced = balanced_weights(self.members)
        self.parameters = [each for each in self.network.parameters() if each.requires_grad]

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of both optimizers: their learning rates follow the same cosine."""
        return [*self.optimizer.param_groups, *self.of_adversary.param_groups]

    def __call__(self, positions: Tensor) -> dict[str, Tensor]:
        """Update both players, and return their losses."""
        self.n_steps += 1
        alpha = self.model.alpha * min(1.0, self.n_steps / max(self.n_warm, 1.0))
        outputs, prediction = self.predict(positions)
        for _ in range(self.model.adversary_steps):
            self.of_adversary.zero_grad()
            self._adversary_loss(outputs.detach(), positions).backward()
            self.of_adversary.step()
        adversary = self._adversary_loss(outputs, positions)
        direction = debiased(self._gradient(prediction), self._gradient(adversary), alpha)
        descend(self.flat, self.optimizer, self.flat.dot(direction), self.clip_norm)  # whose gradient it is
        terms = {"prediction": prediction, "adversary": adversary, "total": prediction - alpha * adversary}
        return {name: term.detach() for name, term in terms.items()}

    def _adversary_loss(self, outputs: Tensor, positions: Tensor) -> Tensor:
        decisions = self.task.soft_decisions(outputs, 1 / self.model.sharpness)
        logits = self.adversary(decisions, self.cells[positions])
        losses = F.cross_entropy(logits, self.rows.groups[positions], reduction="none")
        return (self.balanced[positions] * losses).mean()

    def _gradient(self, loss: Tensor) -> Tensor:
        """Return the gradient over all parameters of the network as one vector; zeros for unused ones."""
        parts = torch.autograd.grad(loss, self.parameters, retain_graph=True, materialize_grads=True)
        return torch.cat([part.flatten() for part in parts])


class Adversarial(OutcomeBounded):
    """The parameters and the training of adversarial debiasing."""

    method_key: ClassVar[str] = "adversarial"

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
    sharpness: float = parameter(
        default=5.0,
        rule=POSITIVE,
        doc="""Sharpness of the smooth decisions that the adversary sees: high values show it decisions, 1
        shows it probabilities. Numbers have none.""",
    )

    def make_game(
        self, network: nn.Module, flat: nn.Parameter, optimizer: Any, data: TrainingData, loop: Loop
    ) -> Game:
        """Return the game against the adversary."""
        n_warm = self.warm_up * loop.max_epochs * math.ceil(len(data.training) / loop.batch_size)
        return Debiasing(self, network, flat, optimizer, data, n_warm=n_warm)


class AdversarialClassifier(Adversarial, NetworkClassifier):
    """A network trained against an adversary that infers the group from the prediction and the label.

    If it cannot, the rates of decisions are equal among rows with one label: equalized odds. Groups are
    needed to fit, not to predict.

    Attributes
    ----------
    rates_, met_
        As of `LagrangianClassifier`.

    Examples
    --------
    >>> import gcig
    >>> data = gcig.load_dataset("german")
    >>> model = AdversarialClassifier(max_epochs=3, random_state=0)
    >>> model = model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    >>> model.rates_.shape
    (2, 2, 1)
    """


class AdversarialRegressor(Adversarial, NetworkRegressor):
    """A network for a number, trained against an adversary that infers the group from prediction and label.

    Everything else is as in `AdversarialClassifier`; the adversary sees the label's quantile bin.
    """
