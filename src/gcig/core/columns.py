"""Encoded columns: which belong together, and which reveal the group."""

import torch
from torch import Tensor

_CHECKED_ROWS = 16_384
_MAX_VALUES = 32  # distinct values of a number that may stand for a group
_MIN_ROWS_PER_VALUE = 10  # with fewer rows, most values occur in a single group by chance


def find_blocks(inputs: Tensor, origin: Tensor) -> Tensor:
    """Return the block of each encoded column: its original column, or the dummy block that it is part of.

    Dummy columns in a table of numbers are recognised: neighbouring columns with two values each, exactly
    one of which is at its higher value in every row, are one category, however they were encoded.

    Parameters
    ----------
    inputs : Tensor of shape (n, columns)
    origin : Tensor of shape (columns,)
        The original column of each.

    Returns
    -------
    Tensor of shape (columns,)
        Block numbers from 0, in the order of the original columns.

    Examples
    --------
    >>> rows = torch.tensor([[1.0, 0.0, 0.3], [0.0, 1.0, -0.2], [1.0, 0.0, 0.5]])
    >>> find_blocks(rows, torch.arange(3))
    tensor([0, 0, 1])
    """
    low, high = inputs.amin(0), inputs.amax(0)
    two_valued = ((inputs == low) | (inputs == high)).all(0) & (torch.bincount(origin)[origin] == 1)
    candidates, constant = two_valued.tolist(), (low == high).tolist()
    blocks, start = origin.clone(), 0
    while start < len(origin):
        stop = start + 1
        if candidates[start] and not constant[start]:
            stop = _end_of_block(inputs, high, start, candidates, constant)
        blocks[start:stop] = blocks[start]
        start = stop
    numbers: Tensor = torch.unique(blocks, return_inverse=True)[1]
    return numbers


def _end_of_block(
    inputs: Tensor, high: Tensor, start: int, candidates: list[bool], constant: list[bool]
) -> int:
    """Return the end of the dummy block that begins at `start`, or `start` + 1 if there is none.

    Constant columns, levels that do not occur in the rows, may lie inside a block.
    """
    n_raised = torch.zeros(len(inputs), dtype=torch.int8, device=inputs.device)
    for column in range(start, len(candidates)):
        if not candidates[column]:
            break
        if constant[column]:
            continue
        n_raised += inputs[:, column] == high[column]
        least, most = n_raised.aminmax()
        if most > 1:
            break
        if least == 1:
            return column + 1
    return start + 1


def protected_columns(inputs: Tensor, groups: Tensor, origin: Tensor) -> Tensor:
    """Return the positions of the encoded columns that reveal the group: every value belongs to one group.

    A category reveals the group if each of its levels does; a number, if it has few distinct values and each
    of them does. Columns with few rows per value are not considered.

    Parameters
    ----------
    inputs : Tensor of shape (n, columns)
    groups : Tensor of shape (n,)
    origin : Tensor of shape (columns,)
        The block of each column; see `find_blocks`.

    Examples
    --------
    >>> group = torch.arange(40) % 2
    >>> rows = torch.stack([1.0 - group, group, torch.arange(40) // 2 % 3], dim=1)
    >>> protected_columns(rows, group, torch.tensor([0, 0, 1]))
    tensor([0, 1])
    """
    chosen = _spread(len(inputs))
    rows, groups = inputs[chosen], groups[chosen]
    found = []
    for block in range(int(origin.max()) + 1):
        columns = (origin == block).nonzero().flatten()
        entries = rows[:, columns]
        two_valued = (entries == entries.amin(0)) | (entries == entries.amax(0))
        one_hot = len(columns) > 1 and bool(two_valued.all())
        # A number comes first in its block, before an indicator of missing entries and bins.
        levels, codes = torch.unique(entries.argmax(1) if one_hot else entries[:, 0], return_inverse=True)
        if len(levels) < 2 or len(rows) < _MIN_ROWS_PER_VALUE * len(levels):
            continue
        if not one_hot and len(levels) > _MAX_VALUES:
            continue
        pairs = torch.unique(codes * (int(groups.max()) + 1) + groups)
        if len(pairs) == len(levels) and len(torch.unique(groups)) > 1:
            found.append(columns)
    return torch.cat(found) if found else origin.new_zeros(0)


def _spread(n_rows: int) -> Tensor:
    """Return the positions of at most `_CHECKED_ROWS` rows, evenly spaced, since a table may be sorted."""
    count = min(n_rows, _CHECKED_ROWS)
    return torch.arange(count) * n_rows // max(count, 1)
