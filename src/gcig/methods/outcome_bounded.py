"""Methods that bound the differences of rates between groups, and how they choose the epoch that is kept.

The *rates* of a cell of the label and a group are the mean decisions of its rows: the true positive rate, for
label 1 of two classes; the shares of the classes that are decided for; the mean prediction of a number, in
standard deviations of the label. A model meets the bound if in every cell the rates of any two groups are at
most ``max_gap`` apart (by `Task.distance_of_rates`).
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gcig._arguments import one_of
from gcig._arrays import Floats
from gcig.core.outcome import cell_rates, largest_gap
from gcig.core.references import Rows
from gcig.core.task import KEEP_OUTCOMES, Task, as_outputs
from gcig.methods.base import validate_network
from gcig.methods.parameters import FRACTION, Parametrised, parameter
from gcig.methods.training_data import TrainingData
from gcig.metrics.utility import MAIN
from gcig.training.batches import all_outputs
from gcig.training.loop import DivergenceError, Loop, Outcome, Validation, train
from gcig.training.runtime import CLIP_NORM, flattened, one_thread

_FIRST_ELIGIBLE_SHARE = 0.25  # of the epochs; multipliers and adversaries start from zero and need time


def members_of_cells(rows: Rows, task: Task, n_groups: int, outcome: str = "equalized_odds") -> Tensor:
    """Return the weight of each row in each cell and group, (n, cells, groups).

    >>> from gcig.core.task import Binary
    >>> rows = Rows(torch.zeros(2, 1), torch.tensor([0, 1]), torch.tensor([1, 0]))
    >>> members_of_cells(rows, Binary(), n_groups=2)
    tensor([[[0., 1.],
             [0., 0.]],
    <BLANKLINE>
            [[0., 0.],
             [1., 0.]]])
    """
    cells, n_cells, _ = task.outcome_cells(rows.labels, outcome)
    weights = (cells >= 0).to(rows.inputs.dtype)  # a row in no cell counts nowhere
    if rows.weights is not None:
        weights = weights * rows.weights
    of_cell, of_group = F.one_hot(cells.clamp_min(0), n_cells), F.one_hot(rows.groups, n_groups)
    return weights.view(-1, 1, 1) * of_cell.unsqueeze(2) * of_group.unsqueeze(1)


@dataclass(eq=False)
class BoundedEpochs:
    """Checkpoint selection: the most useful of the epochs that meet a bound, or the one nearest to it.

    Rates are those of the training and the held-out rows together, because cells of the held-out set are
    often too small; utility is that of the held-out rows. A model with one decision for nearly everyone has
    equal rates for the wrong reason: an epoch whose rates of different labels are less than half as far apart
    as the best epoch's ranks below all others.
    """

    network: nn.Module
    data: TrainingData
    outcome: str
    max_gap: float
    max_epochs: int
    best_separation: float = field(default=0.0, init=False)

    def __call__(self, epoch: int) -> Validation:
        """Score an epoch: below 1 if the bound is met, and then the lower the higher the utility."""
        data, validation = self.data, validate_network(self.network, self.data)
        decisions = data.task.decisions(all_outputs(self.network, data.all.inputs))
        _, gaps, gap = measure_rates(decisions, data, self.outcome)
        separation = self._separation(decisions)
        self.best_separation = max(self.best_separation, separation)
        above = float((gaps - self.max_gap).clamp_min(0).sum())
        useful = min(1.0, max(0.0, validation.metrics[f"val_{MAIN[data.task.key]}"]))
        criterion = 1 + above if above > 0 else 1 - useful
        if separation < self.best_separation / 2:
            criterion = 3 + above
        metrics = {**validation.metrics, "outcome_gap": gap}
        return Validation(criterion, metrics, eligible=epoch >= _FIRST_ELIGIBLE_SHARE * self.max_epochs)

    def _separation(self, decisions: Tensor) -> float:
        """Return the mean distance between the rates of two labels, of all groups together."""
        rows, task = self.data.all, self.data.task
        cells = task.cells(rows.labels)
        rates, _ = cell_rates(decisions, cells, torch.zeros_like(cells), task.n_cells, 1, rows.weights)
        return float(task.distance_of_rates(rates - rates.transpose(0, 1)).mean())


def measure_rates(decisions: Tensor, data: TrainingData, outcome: str) -> tuple[Tensor, Tensor, float]:
    """Return the rates of all rows (cells, groups, d), the largest gap of each cell, and the outcome gap."""
    task, rows = data.task, data.all
    cells, n_cells, cell_weight = task.outcome_cells(rows.labels, outcome)
    rates, present = cell_rates(decisions, cells, rows.groups, n_cells, data.n_groups, rows.weights)
    each = [largest_gap(task, rates[c : c + 1], present[c : c + 1], 1.0) for c in range(n_cells)]
    gaps = torch.stack(each)
    return rates, gaps, float(cell_weight * gaps.sum())


@dataclass(eq=False)
class Game:
    """A network and its opponent: the step of training that a subclass defines by calling it."""

    model: Any  # the estimator, whose parameters are those of the game
    network: nn.Module
    flat: nn.Parameter  # all trainable parameters of the network
    optimizer: torch.optim.Optimizer
    data: TrainingData
    clip_norm: float | None = CLIP_NORM

    def __post_init__(self) -> None:
        self.rows, self.task = self.data.training, self.data.task
        self.members = members_of_cells(self.rows, self.task, self.data.n_groups, self.model.outcome)
        self.n_decisions = self.task.decisions(self.members.new_zeros(1, self.task.n_outputs)).shape[1]
        self.opponent: nn.Module = nn.Module()

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of parameters whose learning rates follow the schedule."""
        return self.optimizer.param_groups

    def predict(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the outputs for a mini-batch, (n, K), and the mean loss on labels."""
        outputs = as_outputs(self.network(self.rows.inputs[positions]), len(positions))
        each = self.task.loss(outputs, self.rows.labels[positions])
        return outputs, (each if self.rows.weights is None else each * self.rows.weights[positions]).mean()

    @abstractmethod
    def __call__(self, positions: Tensor) -> Mapping[str, Tensor]:
        """Update both players, and return the terms of the loss."""


class OutcomeBounded(Parametrised):
    """The parameters and the training of methods that play a `Game`, which a subclass makes.

    Of the epochs that meet the bound, the one with the highest utility on held-out rows is kept; if none
    does, the one nearest to it. The bound concerns decisions at `threshold`; with ``threshold="f1"``, which
    is chosen after training, it concerns decisions at one half.
    """

    predicts_by_network: ClassVar[bool] = True
    fitted_attributes: ClassVar[tuple[str, ...]] = ("rates_", "met_")
    rates_: Floats
    met_: bool

    max_gap: float = parameter(
        default=0.01,
        rule=FRACTION,
        doc="""The bound: the largest difference of a rate between two groups; of a number, of mean
        predictions in standard deviations of the label.""",
    )
    outcome: str = parameter(
        default="equalized_odds",
        rule=one_of(*KEEP_OUTCOMES),
        doc="""Among whom rates are compared: rows with the same label (or in the same fifth of the labels of
        a number), rows of the second of two classes, or all rows.""",
    )

    @abstractmethod
    def make_game(
        self, network: nn.Module, flat: nn.Parameter, optimizer: Any, data: TrainingData, loop: Loop
    ) -> Game:
        """Return the game of one fit."""

    def train_network(
        self: Any, network: nn.Module, data: TrainingData, generator: torch.Generator
    ) -> tuple[nn.Module, Outcome]:
        """Train a network and its opponent, and set `rates_` and `met_`."""
        data.task.check_outcome(self.outcome)
        device, n_rows = data.training.inputs.device, len(data.training)
        loop = self.resolve_loop(n_rows)
        select = None
        if data.validation is not None:
            select = BoundedEpochs(network, data, self.outcome, self.max_gap, loop.max_epochs)
        network.train()
        with one_thread(device), flattened(network) as flat:
            rate = self.resolve_learning_rate(loop.batch_size)
            optimizer = torch.optim.AdamW([flat], lr=rate, weight_decay=self.weight_decay, fused=True)
            game = self.make_game(network, flat, optimizer, data, loop)
            state = nn.ModuleList([network, game.opponent])
            try:
                outcome = train(
                    game,
                    state,
                    game,
                    n_rows=n_rows,
                    loop=loop,
                    generator=generator,
                    device=device,
                    validate=select,
                    progress=bool(self.verbose),
                )
            except DivergenceError as error:
                error.network = network
                raise
        network.eval()
        self.learn(game)
        return network, outcome

    def learn(self, game: Game) -> None:
        """Set what is learned besides the network."""
        decisions = game.task.decisions(all_outputs(game.network, game.data.all.inputs))
        rates, gaps, _ = measure_rates(decisions, game.data, self.outcome)
        self.rates_, self.met_ = rates.cpu().numpy(), bool((gaps <= self.max_gap).all())
