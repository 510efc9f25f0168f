"""Additive sums of decisions, scores and losses by block, cell of the label and group.

Rows are assigned to blocks by their hashed keys. Sums by block are all that outcome measures need: those of
several parts of a table are added; blocks are resampled for intervals (which has the variance of resampling
rows, up to a share of 1 / blocks), and left out in turn for the comparison of two models.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from gcig._arrays import Codes, Floats
from gcig.core.task import Task
from gcig.metrics.rates import quotient

MOST_BLOCKS = 256  # the upper eight bits of a hashed key
N_PARTS = 10  # blocks are joined into tenths that are left out in turn


def count_blocks(numbers_per_block: int) -> int:
    """Return the number of blocks for sums of this many numbers: fewer if they are large."""
    return MOST_BLOCKS if numbers_per_block <= 20_000 else 32


def blocks_of(keys: NDArray[np.uint64], n_blocks: int) -> NDArray[np.int64]:
    """Return the block of each hashed key."""
    return ((keys >> np.uint64(56)) % np.uint64(n_blocks)).astype(np.int64)


def sum_rows(places: NDArray[np.int64], values: Floats, size: int) -> Floats:
    """Add up the rows of values (n, columns) by place, (size, columns)."""
    return np.stack([np.bincount(places, column, minlength=size) for column in values.T], axis=1)


def resample(sums: Floats, n_draws: int, seed: int) -> Floats:
    """Return sums of blocks that are drawn with replacement, (draws, ...), from sums (blocks, ...)."""
    n_blocks = len(sums)
    rng = np.random.default_rng([seed, n_blocks])
    drawn = rng.multinomial(n_blocks, np.full(n_blocks, 1 / n_blocks), size=n_draws).astype(np.float64)
    return np.asarray((drawn @ sums.reshape(n_blocks, -1)).reshape(n_draws, *sums.shape[1:]))


def leave_out(sums: Floats) -> Floats:
    """Return the sums (parts, ...) without each tenth of the blocks."""
    part = np.arange(len(sums)) % N_PARTS
    return np.stack([sums[part != own].sum(axis=0) for own in range(N_PARTS)])


def layout(task: Task) -> dict[str, slice]:
    """Return where the sums of each quantity stand in the last dimension."""
    width = task.n_outputs
    sizes = {"mass": 1, "decided": width}
    if task.key == "number":
        sizes |= {"label": 1, "label_square": 1, "absolute_error": 1, "squared_error": 1}
    else:
        sizes |= {"score": width, "loss": 1}
    places, start = {}, 0
    for name, size in sizes.items():
        places[name] = slice(start, start + size)
        start += size
    return places


def outcome_cells(task: Task, labels: NDArray[Any]) -> tuple[Codes, int, float]:
    """Return the outcome cell of each label, the number of cells, and the weight of a cell in the gap."""
    import torch

    cells, count, weight = task.outcome_cells(torch.from_numpy(np.asarray(labels)), "equalized_odds")
    return cells.numpy(), count, weight


def probabilities(task: Task, outputs: Floats) -> Floats:
    """Return the probabilities (n, width) of outputs: of label 1, or of every class; numbers as they are."""
    if task.key == "binary":
        return np.asarray(1 / (1 + np.exp(-np.clip(outputs, -700, 700))))
    return outputs if task.key == "number" else np.asarray(softmax(outputs, axis=1))


def one_hot(task: Task, decisions: Floats) -> Floats:
    """Return decisions (n, width): the probability of 1, one column per class, or numbers."""
    if task.key != "classes":
        return np.asarray(decisions, dtype=np.float64).reshape(-1, 1)
    return np.asarray(np.eye(task.n_outputs)[np.asarray(decisions, dtype=np.int64)])


def row_quantities(task: Task, scores: Floats, decided: Floats, labels: NDArray[Any]) -> Floats:
    """Return the quantities of each row that are summed, (n, columns) as in `layout`.

    ``scores`` (n, width) are probabilities, or predicted numbers; ``decided`` is (n, width).
    """
    n = len(labels)
    ones = np.ones((n, 1))
    if task.key == "number":
        error = decided[:, 0] - labels
        columns = [
            ones,
            decided,
            *(each.reshape(-1, 1) for each in (labels, labels**2, abs(error), error**2)),
        ]
        return np.concatenate(columns, axis=1)
    eps = np.finfo(np.float64).eps
    codes = np.asarray(labels, dtype=np.int64)
    own = (
        np.where(codes == 1, scores[:, 0], 1 - scores[:, 0])
        if task.key == "binary"
        else scores[np.arange(n), codes]
    )
    loss = -np.log(np.clip(own, eps, 1 - eps))
    return np.concatenate([ones, decided, scores, loss.reshape(-1, 1)], axis=1)


@dataclass(frozen=True, eq=False)
class Counts:
    """Sums by outcome cell and group; measures are functions of them, for any leading dimensions.

    An outcome cell is a label; for numbers one of five quantile bins of the label.
    """

    task: Task
    sums: Floats  # (..., cells, groups, columns), columns as in `layout`
    n_rows: NDArray[np.int64]  # (cells, groups), regardless of weight
    squares: Floats  # (cells, groups): sums of squared weights
    cell_weight: float = 1.0  # of a cell in the outcome gap
    min_cell: int = 1
    probabilistic: bool = True
    favourable: tuple[int, ...] = (1,)  # the favourable classes
    cell_names: tuple[str, ...] = ()
    group_names: tuple[str, ...] = ()

    def of(self, name: str) -> Floats:
        """Return the sums of one quantity, (..., cells, groups, width)."""
        return self.sums[..., layout(self.task)[name]]

    @property
    def mass(self) -> Floats:
        """The weight of each cell and group, (..., cells, groups)."""
        return self.of("mass")[..., 0]

    @property
    def rates(self) -> Floats:
        """Mean decisions, (..., cells, groups, width): the rate of label 1, of each class, or the
        prediction.
        """
        return quotient(self.of("decided"), self.of("mass"))

    @property
    def group_rates(self) -> Floats:
        """Mean decisions of each group, (..., groups, width)."""
        return quotient(self.of("decided").sum(axis=-3), self.of("mass").sum(axis=-3))

    @property
    def favourable_rates(self) -> Floats:
        """The share of each group with a favourable decision, (..., groups)."""
        rates = self.group_rates
        if self.task.key == "binary":
            return rates[..., 0] if self.favourable == (1,) else 1 - rates[..., 0]
        return np.asarray(rates[..., list(self.favourable)].sum(axis=-1))

    @property
    def right(self) -> Floats:
        """The weight of rows decided as labelled, (..., cells, groups)."""
        decided = self.of("decided")
        if self.task.key == "binary":
            wrong_of_0 = decided[..., 0, :, 0]
            return np.stack([self.mass[..., 0, :] - wrong_of_0, decided[..., 1, :, 0]], axis=-2)
        return np.asarray(np.moveaxis(np.diagonal(decided, axis1=-3, axis2=-1), -1, -2))

    @property
    def accuracy(self) -> Floats:
        """The share of rows decided as labelled, (...,)."""
        return quotient(self.right.sum(axis=(-2, -1)), self.mass.sum(axis=(-2, -1)))

    @cached_property
    def sizes(self) -> Floats:
        """Effective number of rows per cell and group: Kish's ``(sum w)^2 / sum w^2``."""
        total = self.mass if self.mass.ndim == 2 else self.mass[0]
        return np.nan_to_num(quotient(total**2, self.squares))

    @property
    def kept(self) -> NDArray[np.bool_]:
        """Which cells enter gaps, (cells, groups)."""
        return np.asarray((self.n_rows >= self.min_cell) | (self.min_cell <= 1))

    @property
    def kept_groups(self) -> NDArray[np.bool_]:
        """Which groups enter gaps of rates over all rows, (groups,)."""
        return np.asarray((self.n_rows.sum(axis=0) >= self.min_cell) | (self.min_cell <= 1))

    @property
    def suppressed_cells(self) -> tuple[str, ...]:
        """The names of the cells that gaps leave out."""
        return self.names_of(~self.kept)

    def names_of(self, chosen: NDArray[np.bool_]) -> tuple[str, ...]:
        """Return the names of chosen cells."""
        return tuple(
            f"label {self.cell_names[cell]} in group {self.group_names[group]!r}"
            for cell, group in np.argwhere(chosen).tolist()
        )

    def with_sums(self, sums: Floats) -> "Counts":
        """Return the same with other sums, such as draws of them."""
        return replace(self, sums=sums)

    def regrouped(self, levels: Sequence[int], names: tuple[str, ...]) -> "Counts":
        """Return the counts of groups that are joined: the level of each group, or -1 to leave it out."""
        member = (np.asarray(levels)[:, None] == np.arange(len(names))).astype(np.float64)
        return replace(
            self,
            sums=np.einsum("...cgf,gl->...clf", self.sums, member),
            n_rows=(self.n_rows @ member).astype(np.int64),
            squares=self.squares @ member,
            group_names=names,
        )


def count_rows(
    task: Task,
    scores: Floats | None,
    decided: Floats,
    labels: NDArray[Any],
    groups: Codes,
    n_groups: int,
    weights: Floats | None = None,
    blocks: tuple[NDArray[np.int64], int] | None = None,
) -> tuple[Floats, NDArray[np.int64], Floats]:
    """Return sums (blocks, cells, groups, columns), and rows and squared weights (cells, groups).

    ``scores`` and ``decided`` are (n, width); ``scores`` is None for a model without probabilities.
    """
    cells, n_cells, _ = outcome_cells(task, labels)
    place = np.asarray(cells, dtype=np.int64) * n_groups + groups
    size, w = n_cells * n_groups, np.ones(len(labels)) if weights is None else weights
    known = np.full(decided.shape, 0.5) if scores is None else scores
    quantities = row_quantities(task, known, decided, labels) * w[:, None]
    block, n_blocks = (np.zeros(len(labels), dtype=np.int64), 1) if blocks is None else blocks
    sums = sum_rows(block * size + place, quantities, n_blocks * size)
    return (
        sums.reshape(n_blocks, n_cells, n_groups, -1),
        np.bincount(place, minlength=size).reshape(n_cells, n_groups).astype(np.int64),
        np.bincount(place, w**2, minlength=size).reshape(n_cells, n_groups).astype(np.float64),
    )
