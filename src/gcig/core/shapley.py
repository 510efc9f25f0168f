r"""Shapley values with a single reference, for models without gradients.

The value of a coalition S of columns is :math:`v(S) = E\, f(x_S, r_{\bar S})`: the columns in S are taken
from the row, the others from the reference. Numbers of the reference are fixed; categories are drawn with the
frequencies of the cell. With :math:`\pi` a random order of the columns,

.. math:: \phi_j = E_\pi\, v(\text{before } j \cup j) - v(\text{before } j) .

Orders come in antithetic pairs, an order and its reverse, and draws of categories are spread evenly over the
pairs (Latin hypercube). All groups share orders and draws, so most of the noise cancels in their differences.
The number of model evaluations is pairs x (2 columns - 1) per row and group.

The effect of a drawn category on the row itself, :math:`f(x_{-j}, l)`, is a control variate: its mean over
the frequencies of the cell is known, so the deviation of the draw from it is subtracted. Additive scores are
then exact.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gcig._arrays import Floats
from gcig.core.attribution import Score
from gcig.core.modules import evaluating
from gcig.core.task import as_outputs

Value = Callable[[Floats], Floats]
Draw = Callable[[Floats], Floats]
Advance = Callable[[float], object]

MAX_POINTS = 65_536
ALWAYS_EXACT = 256  # points per row and reference that are affordable even if sampling needs fewer
_MIN_DRAWS = 8  # draws of categories if all coalitions are enumerated


class Levels(NamedTuple):
    """The levels of a column that is drawn."""

    column: int
    values: Floats  # (levels,) the possible entries, ascending
    frequencies: Floats  # (groups, levels)


class ShapleyValues(NamedTuple):
    """Estimates for rows under every group's reference."""

    values: Floats  # (groups, n, columns); the values of a row add up to its `change`
    replicates: Floats | None  # (replicates, groups, n, columns): estimates from single pairs or draws
    change: Floats  # (groups, n): f(x) minus the mean of f over draws of the reference


def is_exact(n_columns: int, n_pairs: int, *, random: bool) -> bool:
    """Return whether all coalitions are enumerated: sampling would evaluate at least as many points.

    Up to ``ALWAYS_EXACT`` points are evaluated in any case.
    """
    points: int = 2**n_columns * (_MIN_DRAWS if random else 1)
    return points <= max(ALWAYS_EXACT, n_pairs * (2 * n_columns - 1))


def count_points(n_columns: int, n_pairs: int, *, random: bool) -> int:
    """Return the number of evaluations per row and reference."""
    if is_exact(n_columns, n_pairs, random=random):
        coalitions: int = 2**n_columns
        return _count_draws(n_columns, n_pairs, random=random) * coalitions
    return n_pairs * (2 * n_columns - 1)


def _count_draws(n_columns: int, n_pairs: int, *, random: bool) -> int:
    """Return the number of draws of the reference if all coalitions are enumerated."""
    return max(_MIN_DRAWS, n_pairs * (2 * n_columns - 1) // 2**n_columns) if random else 1


def shapley_values(
    value: Value,
    rows: Floats,
    draw: Draw,
    *,
    n_pairs: int,
    random: bool,
    rng: np.random.Generator,
    levels: Sequence[Levels] = (),
    max_points: int = MAX_POINTS,
    advance: Advance | None = None,
) -> ShapleyValues:
    """Compute the Shapley values of rows (n, columns) under every group's reference.

    ``value`` maps points (m, columns) to scores (m,), with at most ``max_points`` points per call. ``draw``
    maps uniforms (..., columns) in [0, 1) to references (groups, ..., columns); ``random`` says whether they
    depend on the uniforms. Draws depend only on ``rng`` and the shape of the rows. With ``n_pairs``
    antithetic pairs of orders, all coalitions are enumerated instead if that takes no more evaluations, or at
    most ``ALWAYS_EXACT``. The draws of columns in ``levels`` are controlled for, at the cost of one
    evaluation per row and level. ``advance`` is called with the number of rows finished since its last call;
    each of d draws of a row counts 1/d.
    """
    n, c = rows.shape
    if not (n and c):
        raise ValueError(f"rows must have at least one row and one column, not shape {rows.shape}")
    score = partial(_score_in_parts, value, max_points)
    at_end = score(rows)
    enumerated = is_exact(c, n_pairs, random=random)
    n_draws = _count_draws(c, n_pairs, random=random) if enumerated else n_pairs
    uniforms = _spread_evenly(n_draws, n, c, rng)
    main = [_main_effects(score, rows, each) for each in levels]
    parts, starts = [], []
    for own in uniforms:
        orders = None if enumerated else rng.random((n, c)).argsort(axis=1)
        references = draw(own)
        groups = len(references)
        values, start = np.empty((groups, n, c)), np.empty((groups, n))
        size = max(1, max_points // (groups * (2**c if enumerated else 2 * c - 1)))
        for part in (slice(first, first + size) for first in range(0, n, size)):
            ends = rows[part], references[:, part], at_end[part]
            found = _enumerate(score, *ends) if orders is None else _walk(score, *ends, orders[part])
            values[:, part], start[:, part] = found
            if advance is not None:
                advance(len(rows[part]) / n_draws)
        for each, effects in zip(levels, main, strict=True):
            excess = _excess(each, effects, references[..., each.column])
            values[..., each.column] += excess
            start -= excess
        parts.append(values)
        starts.append(start)
    replicates = np.stack(parts)
    change = at_end - np.mean(starts, axis=0)
    mean = replicates.mean(axis=0)
    return ShapleyValues(mean, None if len(parts) == 1 else replicates, change)


def _main_effects(score: Value, rows: Floats, levels: Levels) -> Floats:
    """Return the scores (n, levels) of each row with one column at each of its levels."""
    points = np.repeat(rows[:, None], len(levels.values), axis=1)
    points[..., levels.column] = levels.values
    return score(points.reshape(-1, rows.shape[1])).reshape(len(rows), -1)


def _excess(levels: Levels, effects: Floats, drawn: Floats) -> Floats:
    """Return the effect (groups, n) of drawn entries (groups, n) minus its mean over the group's levels."""
    place = np.searchsorted(levels.values, drawn)
    return np.asarray(effects[np.arange(len(effects)), place] - levels.frequencies @ effects.T)


def _walk(
    score: Value, rows: Floats, starts: Floats, at_end: Floats, orders: NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """Estimate from each row's order of columns and its reverse: values and scores at the references."""
    m, c = rows.shape
    rank = orders.argsort(axis=1)
    steps = np.arange(c)[:, None, None]
    forward = rank < steps  # (c, m, columns): the coalition before each step; the first is empty
    backward = rank >= c - steps[1:]
    masks = np.concatenate([forward, backward])
    scores = _evaluate(score, rows, starts, masks)
    end = np.broadcast_to(at_end, (len(starts), 1, m))
    there = np.diff(np.concatenate([scores[:, :c], end], axis=1), axis=1)
    back = np.diff(np.concatenate([scores[:, :1], scores[:, c:], end], axis=1), axis=1)
    by_rank = (there + back[:, ::-1]) / 2  # (groups, rank, m)
    index = np.broadcast_to(rank[None], (len(starts), m, c))
    values = np.take_along_axis(by_rank.swapaxes(1, 2), index, axis=2)
    return values, scores[:, 0]


def _enumerate(score: Value, rows: Floats, starts: Floats, at_end: Floats) -> tuple[Floats, Floats]:
    """Sum over all coalitions by the formula: values and scores at the references."""
    c = rows.shape[1]
    coalitions = (np.arange(2**c)[:, None] >> np.arange(c)) & 1 == 1
    scores = _evaluate(score, rows, starts, np.repeat(coalitions[:-1, None], len(rows), axis=1))
    end = np.broadcast_to(at_end, (len(starts), 1, len(rows)))
    scores = np.concatenate([scores, end], axis=1)
    return np.einsum("gsm,sc->gmc", scores, _coalition_weights(coalitions)), scores[:, 0]


def _coalition_weights(coalitions: NDArray[np.bool_]) -> Floats:
    """Return the weight of each coalition in the Shapley value of each column, (coalitions, columns)."""
    c = coalitions.shape[1]
    factorial = np.cumprod([1.0, *range(1, c + 1)])
    size = coalitions.sum(axis=1, keepdims=True)
    joined = factorial[np.maximum(size - 1, 0)] * factorial[c - size] / factorial[c]
    apart = factorial[size] * factorial[np.maximum(c - size - 1, 0)] / factorial[c]
    return np.asarray(np.where(coalitions, joined, -apart), dtype=np.float64)


def _evaluate(score: Value, rows: Floats, starts: Floats, masks: NDArray[np.bool_]) -> Floats:
    """Return the scores (groups, masks, m) of rows that take the columns outside masks from references."""
    points = np.where(masks[None], rows[None, None], starts[:, None])
    # If row and reference agree in a column, adding it gives the same point, which is not evaluated again.
    new = np.ones(points.shape[:-1], dtype=bool)
    new[:, 1:] = (points[:, 1:] != points[:, :-1]).any(axis=-1)
    place = np.zeros(new.shape, dtype=np.int64)
    place[new] = np.arange(np.count_nonzero(new))
    return score(points[new])[np.maximum.accumulate(place, axis=1)]


def _score_in_parts(value: Value, max_points: int, points: Floats) -> Floats:
    parts = [value(points[i : i + max_points]) for i in range(0, len(points), max_points)]
    return np.concatenate(parts).astype(np.float64, copy=False)


def _spread_evenly(n_draws: int, n: int, c: int, rng: np.random.Generator) -> Floats:
    """Return uniforms (draws, n, c); the draws of an entry fall into different parts of [0, 1)."""
    strata = rng.random((n_draws, n, c)).argsort(axis=0)
    return np.asarray((strata + rng.random((n_draws, n, c))) / n_draws)


@dataclass(frozen=True)
class Shapley:
    r"""Shapley values by random orders of the columns, one order per reference: for any model.

    Relative to a reference r, the columns of the row x are taken over one after another in a random order, and
    each column gets the change of the score. Over many references this is unbiased, and exact for additive
    scores. Every call draws the same orders, so rows explained in several calls share them.

    Parameters
    ----------
    blocks : tuple of int, optional
        The column of the table of each encoded column: the columns of a block change together, and the first
        of them gets their value. By default every encoded column is one.
    seed : int
        Of the orders.
    """

    complete: ClassVar[bool] = True
    blocks: tuple[int, ...] | None = None
    seed: int = 0

    def attribute(
        self, score: Score, rows: Tensor, references: Tensor, *, create_graph: bool = False
    ) -> Tensor:
        """Return the values (references, n, columns) of rows (n, columns)."""
        with torch.set_grad_enabled(create_graph):
            flat = rows.detach().flatten(1), references.detach().flatten(2)
            return self._attribute(score, rows.shape[1:], *flat).view_as(references)

    def _attribute(self, score: Score, shape: torch.Size, rows: Tensor, references: Tensor) -> Tensor:
        blocks = torch.arange(rows.shape[1]) if self.blocks is None else torch.tensor(self.blocks)
        _, blocks = torch.unique(blocks, return_inverse=True)
        count = int(blocks.max()) + 1
        generator = torch.Generator().manual_seed(self.seed)
        orders = torch.rand(len(references), count, generator=generator).argsort(1).to(rows.device)
        blocks = blocks.to(rows.device)
        first = torch.stack([(blocks == block).nonzero()[0, 0] for block in range(count)])
        values = references.new_zeros(references.shape)
        points = references.clone()
        with evaluating(score.module):
            before = _scores(score, shape, points, torch.ones_like(points[..., 0], dtype=torch.bool), None)
            for place in range(count):
                own = orders[:, place]
                taken = blocks == own.unsqueeze(1)  # (references, columns)
                following = torch.where(taken.unsqueeze(1), rows, points)
                # A column in which row and reference agree changes nothing, and is not evaluated.
                changed = (following != points).any(-1)
                after = _scores(score, shape, following, changed, before)
                index = first[own].view(-1, 1, 1).expand(-1, len(rows), 1)
                values = values.scatter(2, index, (after - before).unsqueeze(-1).to(values.dtype))
                points, before = following, after
        return values


def _scores(
    score: Score, shape: torch.Size, points: Tensor, chosen: Tensor, otherwise: Tensor | None
) -> Tensor:
    """Return the scores (m, n) of the chosen points (m, n, columns), and the other values elsewhere."""
    contrast = score.contrast.unsqueeze(0).expand(len(points), -1, -1)[chosen]
    some = points[chosen]
    if len(some):
        parts = [
            as_outputs(score.module(part.unflatten(1, shape)), len(part)) for part in some.split(MAX_POINTS)
        ]
        outputs = torch.cat(parts)
        found = (outputs * contrast.to(outputs)).sum(-1)
    else:
        found = contrast.new_zeros(0)
    if otherwise is None:
        return found.view(chosen.shape)
    result = otherwise.clone()
    result[chosen] = found.to(result)
    return result
