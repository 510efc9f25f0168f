r"""Columns on which attributions are compared: original, encoded or raw.

One-hot columns add up to one, so a constant can move between their weights and the bias without changing a
prediction. With s the average gradients of a block, b the reference and f the frequencies of the categories,

- raw attributions :math:`(x_j - b_j) s_j` change with that constant;
- encoded ones :math:`(x_j - b_j)(s_j - \sum_k f_k s_k)` do not, nor do
- original ones :math:`\sum_j (x_j - b_j) s_j`.
"""

import itertools
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gcig._arrays import Codes, Floats, Rows
from gcig.adapters import AdaptedModel
from gcig.core.columns import find_blocks
from gcig.core.gcig import column_matrix, sum_blocks


@dataclass(frozen=True, eq=False)
class ComparedColumns:
    """The columns of a model that are compared, and the sums that turn encoded into original columns."""

    names: tuple[str, ...]  # names of the original columns; dummy columns of one category are one column
    raw_names: tuple[str, ...]  # names of the attributed columns
    blocks: Tensor  # (attributed columns,) the original column of each
    input_blocks: Codes  # (p,) the original column of each column of encoded rows
    frequencies: Tensor  # (attributed columns,) frequency of each category; 0 outside one-hot blocks
    ranges: Tensor  # (attributed columns,) distance between the two values of a one-hot column; otherwise 1

    @classmethod
    def find(cls, adapted: AdaptedModel, rows: Rows, mean: Floats) -> "ComparedColumns":
        """Find one-hot blocks in encoded rows (n, p), unless the model knows them from its training rows.

        ``mean`` (p,) is that of the reference rows. Without rows, blocks whose
        means are shares that add up to
        one are one-hot.
        """
        origin = np.asarray(adapted.input_origin)
        found = adapted.blocks
        if found is None:
            found = find_blocks(torch.tensor(rows), torch.tensor(origin)).numpy() if len(rows) else origin
        # Original columns without any encoded column stay, with attributions of zero.
        merged = np.arange(len(adapted.original_names))
        for block in np.unique(found):
            members = np.unique(origin[found == block])
            merged[members] = members[0]
        first, position = np.unique(merged, return_inverse=True)
        names = tuple(
            _common_name([adapted.original_names[o] for o in np.flatnonzero(merged == i)]) for i in first
        )
        if len(set(names)) < len(names):
            names = tuple(adapted.original_names[i] for i in first)
        blocks = position[np.asarray(adapted.origin)]
        frequencies, ranges = np.zeros(len(blocks)), np.ones(len(blocks))
        if len(blocks) == len(origin):
            frequencies, ranges = _frequencies(blocks, rows, np.asarray(mean, dtype=np.float64))
        shares, widths = torch.from_numpy(frequencies), torch.from_numpy(ranges)
        return cls(names, adapted.columns, torch.from_numpy(blocks), position[origin], shares, widths)

    @property
    def encodes(self) -> bool:
        """True if raw and original columns differ."""
        return not np.array_equal(self.blocks.numpy(), np.arange(len(self.names)))

    @property
    def centres(self) -> bool:
        """True if raw and encoded columns differ."""
        return bool(self.frequencies.any())

    @property
    def matrix(self) -> Tensor:
        """The matrix (p, original columns) that sums the columns of encoded rows."""
        return column_matrix(torch.from_numpy(np.asarray(self.input_blocks)), len(self.names))

    def of(self, kind: str) -> tuple[str, ...]:
        """Return the names of the columns of a kind."""
        return self.names if kind == "original" else self.raw_names

    def sum(self, values: Tensor) -> Tensor:
        """Sum attributions (..., attributed columns) over blocks."""
        return sum_blocks(values, self.blocks, len(self.names)) if self.encodes else values

    def centre(self, slopes: Tensor) -> Tensor:
        """Subtract from slopes (..., attributed columns) the frequency-weighted mean of their block."""
        ranges = self.ranges.to(slopes)
        weights = self.frequencies.to(slopes) * ranges
        means = sum_blocks(slopes * weights, self.blocks, len(self.names))
        return slopes - means[..., self.blocks.to(slopes.device)] * (weights > 0).to(slopes) / ranges


def _common_name(names: list[str]) -> str:
    """Return the common beginning of the names of dummy columns.

    >>> _common_name(["race_black", "race_white"]), _common_name(["age"])
    ('race', 'age')
    """
    if len(names) == 1:
        return names[0]
    letters = itertools.takewhile(lambda each: len(set(each)) == 1, zip(*names, strict=False))
    shared = "".join(letter for letter, *_ in letters).rstrip(" _-=.:[(")
    return shared or f"{names[0]} ... {names[-1]}"


def _frequencies(blocks: Codes, rows: Rows, mean: Floats) -> tuple[Floats, Floats]:
    """Return the frequency of each one-hot column, and the distance between its two values.

    A block is one-hot if exactly one of its columns is raised in every row.
    """
    frequencies, ranges = np.zeros(len(blocks)), np.ones(len(blocks))
    for block in np.flatnonzero(np.bincount(blocks) > 1):
        own = np.flatnonzero(blocks == block)
        if not len(rows):
            share = mean[own]
            if (share >= 0).all() and (share <= 1).all() and abs(share.sum() - 1) < 1e-4:
                frequencies[own] = share
            continue
        values = rows[:, own].astype(np.float64)
        low, high = values.min(axis=0), values.max(axis=0)
        span = np.where(high > low, high - low, 1.0)
        raised = (values == high) & (high > low)
        two_valued = (raised | (values == low)).all()
        if two_valued and (raised.sum(axis=1) == 1).all():
            share = np.clip((mean[own] - low) / span, 0.0, 1.0)
            frequencies[own], ranges[own] = share / max(share.sum(), 1e-12), span
    return frequencies, ranges
