"""Made-up rows: between two rows of the same label and group.

A teacher can answer for rows that nobody has seen, so that a small table need not stay small. Rows between
two of the same label and group keep the means of these cells, which are the baselines of explanations.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from gcig.core.batch import GroupedBatch

__all__ = ["Filled", "fill_up"]

_FARTHEST = 0.5  # of the way from one row to the other: a row stays nearer to the one whose codes it has


@dataclass(frozen=True)
class Filled:
    """Rows, the made-up ones last, and for each the number of the row whose label and group it has."""

    rows: GroupedBatch
    origins: Tensor


def fill_up(rows: GroupedBatch, total: int, generator: torch.Generator) -> Filled:
    """Add made-up rows until there are `total`; none where there are as many already.

    Examples
    --------
    >>> inputs, labels = torch.tensor([[0.0], [1.0], [9.0]]), torch.tensor([0, 0, 1])
    >>> rows = GroupedBatch(inputs, labels, groups=torch.zeros_like(labels))
    >>> filled = fill_up(rows, 100, torch.Generator().manual_seed(0)).rows
    >>> len(filled), bool((filled.inputs[filled.labels == 0] <= 1).all())
    (100, True)
    """
    device, n_made_up = rows.inputs.device, total - len(rows)
    if n_made_up <= 0:
        return Filled(rows, torch.arange(len(rows), device=device))
    origins = torch.randint(len(rows), (n_made_up,), generator=generator)
    mates = _same_cell(rows, origins, generator).to(device)
    shares = _FARTHEST * torch.rand(n_made_up, generator=generator).to(rows.inputs)
    origins = torch.cat([torch.arange(len(rows)), origins]).to(device)
    inputs = rows.inputs[origins]
    made_up = inputs[len(rows) :]
    shares = shares.view(-1, *[1] * (inputs.dim() - 1))
    made_up += shares * (rows.inputs[mates] - made_up)
    return Filled(GroupedBatch(inputs, rows.labels[origins], rows.groups[origins]), origins)


def _same_cell(rows: GroupedBatch, origins: Tensor, generator: torch.Generator) -> Tensor:
    """For each row number another of the same label and group, drawn at random."""
    cells = (rows.groups * 2 + rows.labels).cpu()
    order, counts = torch.argsort(cells, stable=True), torch.bincount(cells)
    first = counts.cumsum(0) - counts
    cell = cells[origins]
    within = (torch.rand(len(origins), generator=generator) * counts[cell]).long()
    return order[first[cell] + within]
