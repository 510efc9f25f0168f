r"""The Lagrangian method: the loss on labels under bounds on differences of rates, with one multiplier each.

Cotter et al. (2019), "Optimization with non-differentiable constraints with applications to fairness, recall,
churn, and other goals", Journal of Machine Learning Research 20, https://jmlr.org/papers/v20/18-616.html.
For each cell y of the label, each ordered pair of groups and each decision there is one constraint,
:math:`r_{y,g} - r_{y,h} \le \epsilon`, with a multiplier :math:`\lambda_{y,g,h} \ge 0`. The network descends

.. math::

    \text{loss} + \frac{1}{G - 1} \sum_{y,g,h} \lambda_{y,g,h} (\tilde r_{y,g} - \tilde r_{y,h})

with proxy rates :math:`\tilde r`, the means of smooth decisions, and the multipliers ascend the violation of
the *true* rates. The network sees damped multipliers, :math:`(\lambda + \kappa \, \text{violation})_+`:
without damping both players oscillate around the optimum. Several classes share :math:`\epsilon`, which
bounds the total variation of their decisions, and cells weigh as in the outcome gap.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from gcig._arrays import Floats
from gcig.methods.base import NetworkClassifier, NetworkRegressor
from gcig.methods.outcome_bounded import Game, OutcomeBounded
from gcig.methods.parameters import NON_NEGATIVE, POSITIVE, POSITIVE_INTEGER, parameter
from gcig.methods.training_data import TrainingData
from gcig.training.loop import Loop
from gcig.training.runtime import descend


def violations(rates: Tensor, bound: float) -> Tensor:
    """Return ``r[y, g] - r[y, h] - bound``, (cells, groups, groups, d); an unknown rate violates nothing.

    >>> violations(torch.tensor([[[0.5], [0.25]]]), bound=0.125)[..., 0]
    tensor([[[-0.1250,  0.1250],
             [-0.3750, -0.1250]]])
    """
    return (rates.unsqueeze(2) - rates.unsqueeze(1) - bound).nan_to_num(0.0)


def pulls(multipliers: Tensor) -> Tensor:
    """Return how strongly each rate is pulled down, (cells, groups, d); negative: pushed up.

    >>> pulls(torch.tensor([[[[0.0], [0.5]], [[0.0], [0.0]]]]))[..., 0]
    tensor([[ 0.5000, -0.5000]])
    """
    return (multipliers.sum(2) - multipliers.sum(1)) / (multipliers.shape[1] - 1)


class Multipliers(nn.Module):
    """The dual player: multipliers, and observed rates as moving averages over rows.

    Each is averaged over ``memory`` rows of its cell and group (or all) to be about as precise as the others.
    """

    values: Tensor
    sums: Tensor
    seen: Tensor

    def __init__(self, members: Tensor, n_decisions: int, model: Any, steps: int) -> None:
        super().__init__()
        _, n_cells, n_groups = members.shape
        self.model, self.step = model, model.dual_learning_rate / steps
        self.bound = model.max_gap * min(1.0, 2 / n_decisions)
        self.register_buffer("values", members.new_zeros(n_cells, n_groups, n_groups, n_decisions))
        self.register_buffer("sums", members.new_zeros(n_cells, n_groups, n_decisions))
        self.register_buffer("seen", members.new_zeros(n_cells, n_groups, 1))
        self.keep = 1 - 1 / (members > 0).sum(0).to(members.dtype).clamp(1, model.memory)

    def ascend(self, step: float) -> Tensor:
        """Return the multipliers after a step up the violation of the observed rates."""
        violation = violations(self.sums / self.seen, self.bound)
        return (self.values + step * violation).clamp(0.0, self.model.max_multiplier)

    @property
    def pulls(self) -> Tensor:
        """The pulls of the damped multipliers, (cells, groups, d)."""
        return pulls(self.ascend(self.model.damping))

    @torch.no_grad()
    def observe(self, decisions: Tensor, members: Tensor) -> None:
        """Update the rates with a mini-batch, and the multipliers with the rates."""
        keep = (self.keep ** (members > 0).sum(0)).unsqueeze(2)
        self.sums.mul_(keep).add_(torch.einsum("ncg,nd->cgd", members, decisions))
        self.seen.mul_(keep).add_(members.sum(0).unsqueeze(2))
        self.values.copy_(self.ascend(self.step))


@dataclass(eq=False)
class PrimalDual(Game):
    """The network descends, then the multipliers ascend on the same predictions."""

    steps: int = 1  # per epoch

    def __post_init__(self) -> None:
        super().__post_init__()
        self.opponent = self.multipliers = Multipliers(self.members, self.n_decisions, self.model, self.steps)
        # Cells and decisions weigh as in the outcome gap. Shares of all rows make the gradient unbiased.
        weight = self.task.outcome_cells(self.rows.labels, self.model.outcome)[2]
        weight *= float(self.task.distance_of_rates(torch.ones(self.n_decisions))) / self.n_decisions
        self.scale = weight / self.members.mean(0).clamp_min(1e-30).unsqueeze(2)

    def __call__(self, positions: Tensor) -> dict[str, Tensor]:
        """Update both players, and return the terms of the Lagrangian."""
        outputs, prediction = self.predict(positions)
        members, proxy = self.members[positions], self.task.soft_decisions(outputs, 1 / self.model.sharpness)
        costs = torch.einsum("ncg,cgd->nd", members, self.multipliers.pulls * self.scale)
        constraint = (costs * proxy).sum(1).mean()
        descend(self.flat, self.optimizer, prediction + constraint, self.clip_norm)
        self.multipliers.observe(self.task.decisions(outputs.detach()), members)
        terms = {"prediction": prediction, "constraint": constraint, "total": prediction + constraint}
        return {name: term.detach() for name, term in terms.items()}


class Lagrangian(OutcomeBounded):
    """The parameters and the training of the Lagrangian method."""

    method_key: ClassVar[str] = "lagrangian"
    fitted_attributes: ClassVar[tuple[str, ...]] = ("multipliers_",)
    multipliers_: Floats

    dual_learning_rate: float = parameter(
        default=1.0, rule=POSITIVE, doc="How far a multiplier moves per epoch and unit of violation."
    )
    damping: float = parameter(
        default=5.0,
        rule=NON_NEGATIVE,
        doc="""How strongly the present violation acts on the network, in addition to the multipliers; 0 is
        plain descent and ascent, which tends to oscillate.""",
    )
    max_multiplier: float = parameter(default=10.0, rule=POSITIVE, doc="The largest value of a multiplier.")
    sharpness: float = parameter(
        default=3.0,
        rule=POSITIVE,
        doc="Sharpness of the smooth decisions in the proxy rates; 1 gives probabilities. Numbers have none.",
    )
    memory: int = parameter(
        default=256,
        rule=POSITIVE_INTEGER,
        doc="Rows of a cell and group over which its true rate is averaged during training.",
    )

    def make_game(
        self, network: nn.Module, flat: nn.Parameter, optimizer: Any, data: TrainingData, loop: Loop
    ) -> Game:
        """Return the game against the multipliers."""
        steps = math.ceil(len(data.training) / loop.batch_size)
        return PrimalDual(self, network, flat, optimizer, data, steps=steps)

    def learn(self, game: Game) -> None:
        """Set the multipliers, besides the rates."""
        super().learn(game)
        self.multipliers_ = game.opponent.values.cpu().numpy()  # type: ignore[operator]


class LagrangianClassifier(Lagrangian, NetworkClassifier):
    """A network trained under bounds on the differences of rates between groups.

    Of two classes, the rates are those of the second one: the bounds are on true and on false positive rates.
    Groups are needed to fit, not to predict.

    Attributes
    ----------
    rates_ : array of shape (labels, groups, d)
        The rates over all rows of `fit`; d is 1 for two classes, and the number of classes otherwise.
    met_ : bool
        Whether they meet the bound.
    multipliers_ : array of shape (labels, groups, groups, d)
        ``multipliers_[y, g, h]`` belong to the constraints that, among rows with label y, the rates of group
        g exceed those of group h by at most `max_gap`.

    Examples
    --------
    >>> import gcig
    >>> data = gcig.load_dataset("german")
    >>> model = LagrangianClassifier(max_epochs=3, random_state=0)
    >>> model = model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    >>> model.multipliers_.shape
    (2, 2, 2, 1)
    """


class LagrangianRegressor(Lagrangian, NetworkRegressor):
    """A network for a number, under bounds on the differences of mean predictions between groups.

    Everything else is as in `LagrangianClassifier`: rates are mean predictions among people in the same of
    five quantile bins of the label, in its standard deviations.
    """
