"""Encoded columns: which belong together, and which reveal the group."""

from typing import NamedTuple

import torch
from torch import Tensor

# Speed alone: rows that are compared, rows that rule out nearly every column, rows that stay in the cache.
_CHECKED_ROWS, _FIRST_ROWS, _CHUNK_ROWS = 16_384, 512, 4096
# Definitions: more distinct values of a number do not stand for a group, and with fewer rows per value most
# values occur in a single group by chance.
_MAX_VALUES, _MIN_ROWS_PER_VALUE = 32, 10


def find_blocks(inputs: Tensor, origin: Tensor) -> Tensor:
    """Return the block of each encoded column: its original column, or the dummy block that it is part of.

    ``origin`` (columns,) is the original column of each. Dummy columns in a table of numbers are recognised:
    neighbouring columns with two values each, exactly one of which is at its higher value in every row, are
    one category, however they were encoded. Blocks are numbered from 0, in the order of the original columns.

    >>> rows = torch.tensor([[1.0, 0.0, 0.3], [0.0, 1.0, -0.2], [1.0, 0.0, 0.5]])
    >>> find_blocks(rows, torch.arange(3))
    tensor([0, 0, 1])
    """
    alone = (torch.bincount(origin)[origin] == 1).nonzero().flatten()
    values = inputs if len(alone) == inputs.shape[1] else inputs.index_select(1, alone)
    low, high = values.amin(0), values.amax(0)
    two_valued, parts = torch.ones_like(low, dtype=torch.bool), []
    for part in values.split(_CHUNK_ROWS):
        parts.append(part == high)
        two_valued &= (parts[-1] | (part == low)).all(0)
    raised = torch.cat(parts).T.contiguous()  # the rows of a column in one place
    columns = zip(alone.tolist(), raised, two_valued.tolist(), (low == high).tolist(), strict=True)
    candidates = {place: None if constant else column for place, column, fits, constant in columns if fits}
    blocks, start = origin.clone(), 0
    while start < len(origin):
        stop = start + 1
        if candidates.get(start) is not None:
            stop = _end_of_block(candidates, start)
        blocks[start:stop] = blocks[start].clone()
        start = stop
    numbers: Tensor = torch.unique(blocks, return_inverse=True)[1]
    return numbers


def _end_of_block(candidates: dict[int, Tensor | None], start: int) -> int:
    """Return the end of the dummy block that begins at `start`, or `start` + 1 if there is none.

    `candidates` says for each column with two values which rows have the higher one. It is None for a
    constant column: levels that do not occur in the rows may lie inside a block.
    """
    n_raised, column = torch.zeros((), dtype=torch.int8), start
    while column in candidates:
        raised = candidates[column]
        column += 1
        if raised is None:
            continue
        n_raised = n_raised.to(raised.device) + raised.to(torch.int8)
        least, most = n_raised.aminmax()
        if most > 1:
            break
        if least == 1:
            return column
    return start + 1


def spread_origin(origin: Tensor, shape: torch.Size) -> Tensor:
    """Return the group of each entry of a flattened row.

    >>> spread_origin(torch.arange(2).unsqueeze(1), torch.Size([2, 3]))
    tensor([0, 0, 0, 1, 1, 1])
    """
    try:
        spread = origin.broadcast_to(shape)
    except RuntimeError as error:
        raise ValueError(
            f"origin must have the shape of a row, {tuple(shape)}, or one that broadcasts to it, not "
            f"{tuple(origin.shape)}"
        ) from error
    if spread.is_floating_point() or int(spread.min()) < 0:
        raise ValueError("origin must consist of integers from 0: the group of inputs of each entry")
    return spread.flatten().long()


class AttributeColumns(NamedTuple):
    """Columns that reveal the group, or one of the attributes that are crossed in it."""

    columns: Tensor  # positions of encoded columns that tell the same groups apart
    levels: Tensor  # (groups,) the level of the attribute that each group has; -1 for a group without rows


def protected_attributes(inputs: Tensor, groups: Tensor, origin: Tensor) -> list[AttributeColumns]:
    """Return the protected attributes among the encoded columns; ``origin`` is the block of each column.

    A column is protected if the groups fall into two or more sets, its levels, such that each of its values
    occurs in one set only. The sets are single groups if the column reveals the group, and the levels of one
    attribute if several are crossed. A category or a number with few distinct values is considered; columns
    with few rows per value are not.
    """
    some = _spread(len(inputs), _CHECKED_ROWS)
    first = some[_spread(len(some), _FIRST_ROWS)]
    few, groups_of_few, groups = inputs[first], groups[first], groups[some]
    few_suffice = len(groups_of_few.unique()) == len(groups.unique())
    attributes: dict[tuple[int, ...], list[Tensor]] = {}
    for block in range(int(origin.max()) + 1):
        columns = (origin == block).nonzero().flatten()
        if few_suffice and not _may_reveal(few[:, columns], groups_of_few):
            continue
        entries = inputs[:, columns][some]
        two_valued = (entries == entries.amin(0)) | (entries == entries.amax(0))
        one_hot = len(columns) > 1 and bool(two_valued.all())
        # A number comes first in its block, before an indicator of missing entries and bins.
        values, codes = torch.unique(entries.argmax(1) if one_hot else entries[:, 0], return_inverse=True)
        if len(values) < 2 or len(some) < _MIN_ROWS_PER_VALUE * len(values):
            continue
        if not one_hot and len(values) > _MAX_VALUES:
            continue
        levels = _levels(codes, groups)
        if len(set(levels) - {-1}) > 1:
            attributes.setdefault(levels, []).append(columns)
    return [
        AttributeColumns(torch.cat(parts), origin.new_tensor(levels)) for levels, parts in attributes.items()
    ]


def _may_reveal(entries: Tensor, groups: Tensor) -> bool:
    """Return whether a block may reveal the group, judged by a few rows of every group.

    The rows are too few to say whether a block is a category or begins with a number, so both must fail.
    """
    codings = [entries[:, 0], entries.argmax(1)]
    levels = (_levels(torch.unique(each, return_inverse=True)[1], groups) for each in codings)
    return any(len(set(each) - {-1}) > 1 for each in levels)


def _levels(codes: Tensor, groups: Tensor) -> tuple[int, ...]:
    """Return the set that each group belongs to: groups that share a value of the column share a set."""
    occurs = torch.zeros(int(codes.max()) + 1, int(groups.max()) + 1, dtype=torch.bool)
    occurs[codes.cpu(), groups.cpu()] = True
    levels = [g if bool(of_group.any()) else -1 for g, of_group in enumerate(occurs.T)]
    for of_value in occurs:
        members = {levels[g] for g in of_value.nonzero().flatten().tolist()}
        levels = [min(members) if level in members else level for level in levels]
    order = {level: i for i, level in enumerate(sorted(set(levels) - {-1}))}
    return tuple(order.get(level, -1) for level in levels)


def _spread(n_rows: int, most: int) -> Tensor:
    """Return the positions of at most `most` rows, evenly spaced, since a table may be sorted."""
    count = min(n_rows, most)
    return torch.arange(count) * n_rows // max(count, 1)
