"""Encoded columns: which belong together, and which carry the protected attribute."""

import torch
from torch import Tensor

__all__ = ["find_blocks", "protected_columns"]

_MAX_VALUES = 32  # distinct values of a number that may stand for a group
_CHECKED_ROWS = 4096


def find_blocks(inputs: Tensor, origin: Tensor) -> Tensor:
    """Return the block of each encoded column: its original column, or the dummy block that it is part of.

    Dummy columns in a table of numbers are recognised: neighbouring columns of zeros and ones that add up
    to one in every row are one category, however they were encoded.

    Parameters
    ----------
    inputs : Tensor of shape (n, columns)
    origin : Tensor of shape (columns,)
        The original column of each.

    Returns
    -------
    Tensor of shape (columns,)
        Block numbers from 0, in the order of their first column.

    Examples
    --------
    >>> rows = torch.tensor([[1.0, 0.0, 0.3], [0.0, 1.0, -0.2], [1.0, 0.0, 0.5]])
    >>> find_blocks(rows, torch.arange(3))
    tensor([0, 0, 1])
    """
    rows = inputs[:: max(1, len(inputs) // _CHECKED_ROWS)]
    blocks = origin.clone()
    single = torch.bincount(origin)[origin] == 1
    binary = ((rows == 0) | (rows == 1)).all(0) & single & (rows != rows[:1]).any(0)
    start = 0
    while start < len(origin):
        total, stop = torch.zeros(len(rows), dtype=rows.dtype, device=rows.device), start
        while stop < len(origin) and bool(binary[stop]) and float(total.max()) <= 1:
            total = total + rows[:, stop]
            stop += 1
            if stop - start > 1 and bool((total == 1).all()):
                blocks[start:stop] = blocks[start]
                break
        start = stop if stop > start and bool((blocks[start:stop] == blocks[start]).all()) else start + 1
    numbers: Tensor = torch.unique(blocks, return_inverse=True)[1]
    return numbers


def protected_columns(inputs: Tensor, groups: Tensor, origin: Tensor) -> Tensor:
    """Return the positions of the encoded columns that reveal the group: every value belongs to one group.

    A category reveals the group if each of its levels does, a number if it has few distinct values and each
    of them does.

    >>> rows = torch.tensor([[1.0, 0.0, 0.3], [0.0, 1.0, -0.2], [1.0, 0.0, 0.5]])
    >>> protected_columns(rows, torch.tensor([0, 1, 0]), torch.tensor([0, 0, 1]))
    tensor([0, 1])
    """
    found = []
    for column in origin.unique().tolist():
        block = (origin == column).nonzero().flatten()
        values = inputs[:, block]
        few = values[: 4 * _CHECKED_ROWS]
        codes = few.argmax(1) if len(block) > 1 else torch.unique(few[:, 0], return_inverse=True)[1]
        if len(block) == 1 and int(codes.max()) >= _MAX_VALUES:
            continue
        pairs = torch.unique(codes * (int(groups.max()) + 1) + groups[: len(few)])
        if len(pairs) == len(torch.unique(codes)) and len(torch.unique(codes)) > 1:
            found.append(block)
    return torch.cat(found) if found else origin.new_zeros(0)
