r"""The Lagrangian method: cross-entropy under bounds on differences of rates, with one multiplier per bound.

For each label y and each ordered pair of groups there is one constraint, :math:`r_{y,g} - r_{y,h} \le
\epsilon`, with a multiplier :math:`\lambda_{y,g,h} \ge 0`. The network descends

.. math::

    \text{cross-entropy}
    + \frac{1}{G - 1} \sum_{y,g,h} \lambda_{y,g,h} (\tilde r_{y,g} - \tilde r_{y,h})

with proxy rates :math:`\tilde r`, means of :math:`\sigma(k (z - c))`, and the multipliers ascend the
violation of the *true* rates, means of :math:`[z \ge c]` (the proxy-Lagrangian of Cotter et al. 2019). The
network sees damped multipliers, :math:`(\lambda + \kappa \, \text{violation})_+`: without damping both
players oscillate around the optimum instead of reaching it.

References
----------
Cotter, Jiang, Gupta, Wang, Narayan, You, Sridharan (2019). Optimization with non-differentiable constraints
with applications to fairness, recall, churn, and other goals. Journal of Machine Learning Research 20.
"""

import math
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from gcig.core.batch import GroupedBatch
from gcig.core.modules import logits
from gcig.engine.optimizer import FlatAdamW, clip_norm
from gcig.methods.networks import CLIP_NORM
from gcig.methods.outcome_bounded import OutcomeBoundedClassifier, cell_members
from gcig.methods.parameters import NON_NEGATIVE, POSITIVE, POSITIVE_INTEGER, parameter
from gcig.methods.training_data import TrainingData
from gcig.training.loop import Loop, Outcome


def violations(rates: Tensor, max_gap: float) -> Tensor:
    """Return ``r[y, g] - r[y, h] - max_gap`` per label and ordered pair, shape (2, groups, groups).

    An unknown rate (NaN) violates nothing, nor does a group compared with itself.

    >>> violations(torch.tensor([[0.5, 0.25], [0.5, torch.nan]]), max_gap=0.125)
    tensor([[[-0.1250,  0.1250],
             [-0.3750, -0.1250]],
    <BLANKLINE>
            [[-0.1250,  0.0000],
             [ 0.0000,  0.0000]]])
    """
    return (rates.unsqueeze(2) - rates.unsqueeze(1) - max_gap).nan_to_num(0.0)


def ascend(multipliers: Tensor, violation: Tensor, step: float, largest: float) -> Tensor:
    """Return multipliers after a step of projected gradient ascent, within [0, largest].

    >>> ascend(torch.tensor([0.0, 1.0, 1.9]), torch.tensor([-0.5, -0.5, 0.5]), step=1.0, largest=2.0)
    tensor([0.0000, 0.5000, 2.0000])
    """
    return (multipliers + step * violation).clamp(0.0, largest)


def pulls(multipliers: Tensor) -> Tensor:
    """Return how strongly the rate of each cell is pulled down, shape (2, groups); negative: pushed up.

    >>> pulls(torch.tensor([[[0.0, 0.5], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]]))
    tensor([[ 0.5000, -0.5000],
            [ 0.0000,  0.0000]])
    """
    return (multipliers.sum(2) - multipliers.sum(1)) / (multipliers.shape[1] - 1)


class Multipliers(nn.Module):
    """The dual player: multipliers, and observed rates as moving averages over rows.

    The rate of each cell is averaged over about ``memory`` of its rows, or all if it has fewer, which makes
    all rates about equally precise. The dual learning rate of an epoch is divided by its ``steps``.
    """

    values: Tensor
    hits: Tensor
    seen: Tensor

    def __init__(self, members: Tensor, model: "LagrangianClassifier", steps: int) -> None:
        super().__init__()
        cells = members.shape[1]
        self.model, self.step = model, model.dual_learning_rate / steps
        self.register_buffer("values", members.new_zeros(2, cells // 2, cells // 2))
        self.register_buffer("hits", members.new_zeros(cells))
        self.register_buffer("seen", members.new_zeros(cells))
        present = (members > 0).sum(0).to(members.dtype)
        self.keep = 1 - 1 / present.clamp(1, model.memory)

    @property
    def rates(self) -> Tensor:
        """The rates observed so far, shape (2, groups); NaN before a cell's first row."""
        return (self.hits / self.seen).view(2, -1)

    @property
    def pulls(self) -> Tensor:
        """The pulls of the damped multipliers, shape (2, groups)."""
        violation = violations(self.rates, self.model.max_gap)
        return pulls(ascend(self.values, violation, self.model.damping, self.model.max_multiplier))

    @torch.no_grad()
    def observe(self, outcomes: Tensor, members: Tensor) -> None:
        """Update the rates with a mini-batch and the multipliers with the rates."""
        keep = self.keep ** (members > 0).sum(0)
        self.hits.mul_(keep).add_(members.T @ outcomes)
        self.seen.mul_(keep).add_(members.sum(0))
        violation = violations(self.rates, self.model.max_gap)
        self.values.copy_(ascend(self.values, violation, self.step, self.model.max_multiplier))


class PrimalDualStep:
    """A training step: the network descends, then the multipliers ascend on the same predictions.

    With ``soft_rates`` the multipliers ascend on the proxy rates as well: the ordinary Lagrangian.
    """

    def __init__(
        self,
        network: nn.Module,
        multipliers: Multipliers,
        optimizer: FlatAdamW | torch.optim.Optimizer,
        data: GroupedBatch,
        members: Tensor,
        weights: Tensor | None = None,
        clip_norm: float = CLIP_NORM,
        soft_rates: bool = False,
    ) -> None:
        self.network, self.multipliers, self.optimizer = network, multipliers, optimizer
        self.param_groups, self.clip_norm, self.soft_rates = optimizer.param_groups, clip_norm, soft_rates
        self.data, self.members, self.weights = data, members, weights
        self.targets = data.labels.to(data.inputs.dtype)
        # Shares of all rows, not of the mini-batch, make the gradient unbiased.
        self.shares = members.mean(0).clamp(min=torch.finfo(members.dtype).tiny)

    def load(self) -> None:
        """Load the learning rate of the schedule."""
        if isinstance(self.optimizer, FlatAdamW):
            self.optimizer.load_rate()

    def __call__(self, rows: Tensor) -> dict[str, Tensor]:
        """Update both players and return the terms of the Lagrangian."""
        model, members = self.multipliers.model, self.members[rows]
        scores = logits(self.network, self.data.inputs[rows])
        weight = None if self.weights is None else self.weights[rows]
        prediction = binary_cross_entropy_with_logits(scores, self.targets[rows], weight=weight)
        proxy = torch.sigmoid(model.sharpness * (scores - model.cut))
        costs = members @ (self.multipliers.pulls.flatten() / self.shares)
        constraint = (costs * proxy).mean()
        total = prediction + constraint
        self.optimizer.zero_grad()
        total.backward()
        clip_norm(self.param_groups[0]["params"], self.clip_norm)
        self.optimizer.step()
        outcomes = proxy if self.soft_rates else (scores >= model.cut).to(members.dtype)
        self.multipliers.observe(outcomes.detach(), members)
        return {"prediction": prediction.detach(), "constraint": constraint.detach(), "total": total.detach()}


class LagrangianClassifier(OutcomeBoundedClassifier):
    """A network trained under bounds on the differences of true and of false positive rates between groups.

    Every label and ordered pair of groups has one constraint and one multiplier. The network descends on a
    differentiable proxy of the rates, the multipliers ascend on the true rates (Cotter et al. 2019). Groups
    are needed to fit, not to predict.

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
    predicts_by_network: ClassVar[bool] = True
    fitted_attributes: ClassVar[tuple[str, ...]] = ("multipliers_",)

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
        doc="Sharpness of the sigmoid that replaces the decision in the proxy rates; 1 gives probabilities.",
    )
    memory: int = parameter(
        default=256,
        rule=POSITIVE_INTEGER,
        doc="Rows of a (label, group) cell over which its true rate is averaged during training.",
    )

    def train_network(self, network: nn.Module, data: TrainingData, generator: torch.Generator) -> Outcome:
        """Train the network and the multipliers."""
        rows, weights = data.training, data.weights
        members = cell_members(rows, data.n_groups, weights)
        n_steps = math.ceil(len(rows) / self.resolve_loop(len(rows)).batch_size)
        multipliers = Multipliers(members, self, n_steps)

        def make_game(optimizer: FlatAdamW, _: Loop) -> PrimalDualStep:
            return PrimalDualStep(network, multipliers, optimizer, rows, members, weights)

        outcome = self.train_game(network, multipliers, make_game, data, generator)
        self.multipliers_ = multipliers.values.cpu().numpy()
        return outcome
