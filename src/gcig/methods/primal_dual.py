r"""Cross-entropy under bounds on differences of rates: descent for the network, ascent for the multipliers.

For each label y and each ordered pair of groups there is one constraint, :math:`r_{y,g} - r_{y,h} \le
\epsilon`, with a multiplier :math:`\lambda_{y,g,h} \ge 0`. The network descends

.. math::

    \text{cross-entropy}
    + \frac{1}{G - 1} \sum_{y,g,h} \lambda_{y,g,h} (\tilde r_{y,g} - \tilde r_{y,h})

where the proxy rates :math:`\tilde r` are means of :math:`\sigma(k (z - c))`, and the multipliers ascend the
violation of the *true* rates, means of :math:`[z \ge c]` (the proxy-Lagrangian of Cotter et al. 2019). The
network sees the multipliers damped, :math:`(\lambda + \kappa \, \text{violation})_+`: without it both players
circle around the optimum instead of reaching it.

References
----------
Cotter, Jiang, Gupta, Wang, Narayan, You, Sridharan (2019). Optimization with non-differentiable constraints
with applications to fairness, recall, churn, and other goals. Journal of Machine Learning Research 20.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from gcig.core.batch import GroupedBatch
from gcig.core.modules import logits
from gcig.engine.optimizer import FlatAdamW, clip_norm, flat_parameters
from gcig.methods.outcome_judge import OutcomeJudge, cell_members
from gcig.training.loop import Loop, Outcome, train
from gcig.training.runtime import one_thread

__all__ = [
    "Multipliers",
    "PrimalDual",
    "PrimalDualStep",
    "ascend",
    "pulls",
    "train_primal_dual",
    "violations",
]

Optimizer = FlatAdamW | torch.optim.Optimizer


@dataclass(frozen=True)
class PrimalDual:
    """Everything about training but the data and the network; see `LagrangianClassifier`.

    ``dual_rates="proxy"`` gives both players the proxy rates: the ordinary Lagrangian.
    """

    loop: Loop
    learning_rate: float = 2e-3
    weight_decay: float = 1e-4
    clip_norm: float = 5.0
    max_gap: float = 0.01
    dual_learning_rate: float = 1.0
    damping: float = 5.0
    max_multiplier: float = 10.0
    sharpness: float = 3.0
    memory: int = 256
    dual_rates: str = "true"
    cut: float = 0.0
    progress: bool = False


def violations(rates: Tensor, max_gap: float) -> Tensor:
    """``r[y, g] - r[y, h] - max_gap`` of every label and ordered pair, shape (2, groups, groups).

    A rate that is not known (NaN) violates nothing; neither does a group compared with itself.

    >>> violations(torch.tensor([[0.5, 0.25], [0.5, torch.nan]]), max_gap=0.125)
    tensor([[[-0.1250,  0.1250],
             [-0.3750, -0.1250]],
    <BLANKLINE>
            [[-0.1250,  0.0000],
             [ 0.0000,  0.0000]]])
    """
    return (rates.unsqueeze(2) - rates.unsqueeze(1) - max_gap).nan_to_num(0.0)


def ascend(multipliers: Tensor, violation: Tensor, step: float, largest: float) -> Tensor:
    """Multipliers after a step of projected gradient ascent, within [0, largest].

    >>> ascend(torch.tensor([0.0, 1.0, 1.9]), torch.tensor([-0.5, -0.5, 0.5]), step=1.0, largest=2.0)
    tensor([0.0000, 0.5000, 2.0000])
    """
    return (multipliers + step * violation).clamp(0.0, largest)


def pulls(multipliers: Tensor) -> Tensor:
    """How strongly the rate of each cell is pulled down, shape (2, groups); negative where it is pushed up.

    >>> pulls(torch.tensor([[[0.0, 0.5], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]]))
    tensor([[ 0.5000, -0.5000],
            [ 0.0000,  0.0000]])
    """
    return (multipliers.sum(2) - multipliers.sum(1)) / (multipliers.shape[1] - 1)


class Multipliers(nn.Module):
    """The dual player: multipliers, and the rates that it observes, as moving averages over rows.

    Each cell remembers about ``memory`` of its own rows, and never more than it has: small cells are averaged
    over many mini-batches, and all rates are about equally precise.

    Parameters
    ----------
    members : Tensor of shape (n, 2 x groups)
        Cells of all training rows.
    steps : int
        Mini-batches in an epoch; the dual learning rate is that of an epoch.
    """

    values: Tensor
    hits: Tensor
    seen: Tensor

    def __init__(self, members: Tensor, settings: PrimalDual, steps: int) -> None:
        super().__init__()
        cells = members.shape[1]
        self.settings, self.step = settings, settings.dual_learning_rate / steps
        self.register_buffer("values", members.new_zeros(2, cells // 2, cells // 2))
        self.register_buffer("hits", members.new_zeros(cells))
        self.register_buffer("seen", members.new_zeros(cells))
        present = (members > 0).sum(0).to(members.dtype)
        self.keep = 1 - 1 / present.clamp(1, settings.memory)

    @property
    def rates(self) -> Tensor:
        """The rates as observed so far, shape (2, groups); NaN before a cell's first row."""
        return (self.hits / self.seen).view(2, -1)

    @property
    def pulls(self) -> Tensor:
        """What the network feels of the damped multipliers, shape (2, groups)."""
        if not self.settings.damping:
            return pulls(self.values)
        violation = violations(self.rates, self.settings.max_gap)
        return pulls(ascend(self.values, violation, self.settings.damping, self.settings.max_multiplier))

    @torch.no_grad()
    def observe(self, outcomes: Tensor, members: Tensor) -> None:
        """Update the rates with a mini-batch, and the multipliers with the rates."""
        keep = self.keep ** (members > 0).sum(0)
        self.hits.mul_(keep).add_(members.T @ outcomes)
        self.seen.mul_(keep).add_(members.sum(0))
        violation = violations(self.rates, self.settings.max_gap)
        self.values.copy_(ascend(self.values, violation, self.step, self.settings.max_multiplier))


class PrimalDualStep:
    """One mini-batch: the network descends, then the multipliers ascend on the same predictions."""

    def __init__(
        self,
        network: nn.Module,
        multipliers: Multipliers,
        optimizer: Optimizer,
        parameters: list[nn.Parameter],
        data: GroupedBatch,
        members: Tensor,
        settings: PrimalDual,
        weights: Tensor | None = None,
    ) -> None:
        self.network, self.multipliers = network, multipliers
        self.optimizer, self.parameters = optimizer, parameters
        self.data, self.members, self.settings, self.weights = data, members, settings, weights
        self.targets = data.labels.to(data.inputs.dtype)
        # Shares of all rows, not of the mini-batch: its gradient is then that of all rows on average.
        self.shares = members.mean(0).clamp(min=torch.finfo(members.dtype).tiny)

    def __call__(self, rows: Tensor) -> dict[str, Tensor]:
        """Update both players; returns the terms of the Lagrangian."""
        settings, members = self.settings, self.members[rows]
        scores = logits(self.network, self.data.inputs[rows])
        weight = None if self.weights is None else self.weights[rows]
        prediction = binary_cross_entropy_with_logits(scores, self.targets[rows], weight=weight)
        proxy = torch.sigmoid(settings.sharpness * (scores - settings.cut))
        costs = members @ (self.multipliers.pulls.flatten() / self.shares)
        constraint = (costs * proxy).mean()
        total = prediction + constraint
        self.optimizer.zero_grad()
        total.backward()
        clip_norm(self.parameters, settings.clip_norm)
        self.optimizer.step()
        outcomes = proxy if settings.dual_rates == "proxy" else (scores >= settings.cut).to(members.dtype)
        self.multipliers.observe(outcomes.detach(), members)
        return {
            "prediction": prediction.detach(),
            "constraint": constraint.detach(),
            "total": total.detach(),
        }


def train_primal_dual(
    network: nn.Module,
    data: GroupedBatch,
    settings: PrimalDual,
    *,
    n_groups: int,
    generator: torch.Generator,
    weights: Tensor | None = None,
    validation: GroupedBatch | None = None,
) -> tuple[Outcome, Multipliers]:
    """Train a network in place; returns what training did, and the multipliers of the epoch that was kept."""
    device = data.inputs.device
    members = cell_members(data, n_groups, weights)
    multipliers = Multipliers(members, settings, math.ceil(len(data) / settings.loop.batch_size))
    judge = None
    if validation is not None:
        judge = OutcomeJudge(
            network, validation, data, n_groups, settings.max_gap, settings.loop.max_epochs, settings.cut
        )
    network.train()
    with one_thread(device), flat_parameters(network) as parameters:
        optimizer = FlatAdamW(
            parameters, learning_rate=settings.learning_rate, weight_decay=settings.weight_decay
        )
        outcome = train(
            PrimalDualStep(network, multipliers, optimizer, parameters, data, members, settings, weights),
            nn.ModuleDict({"network": network, "multipliers": multipliers}),
            optimizer,
            n_rows=len(data),
            loop=settings.loop,
            generator=generator,
            device=device,
            validate=judge,
            progress=settings.progress,
        )
    return outcome, multipliers
