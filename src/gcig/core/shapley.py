"""Shapley values relative to single references, for any model that can be called."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gcig.core.attribution import Score
from gcig.core.modules import evaluating
from gcig.core.task import as_outputs

MAX_POINTS = 65_536  # of one call: memory, without effect on the result


@dataclass(frozen=True)
class Shapley:
    r"""Shapley values by random orders of the columns, one order per reference: for any model.

    Relative to a reference r, the columns of the row x are taken over one after another in a random order,
    and each column gets the change of the score. Over many references this is unbiased, and exact for
    additive scores. Every call draws the same orders, so rows explained in several calls share them.

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
                moving = blocks == own.unsqueeze(1)  # (references, columns)
                following = torch.where(moving.unsqueeze(1), rows, points)
                # A column in which row and reference agree changes nothing, and is not evaluated.
                changed = (following != points).any(-1)
                after = _scores(score, shape, following, changed, before)
                index = first[own].view(-1, 1, 1).expand(-1, len(rows), 1)
                values = values.scatter(2, index, (after - before).unsqueeze(-1).to(values.dtype))
                points, before = following, after
        return values


def _scores(
    score: Score, shape: torch.Size, points: Tensor, mask: Tensor, otherwise: Tensor | None
) -> Tensor:
    """Return the scores (m, n) of the points (m, n, columns) in a mask, and the other values elsewhere."""
    contrast = score.contrast.unsqueeze(0).expand(len(points), -1, -1)[mask]
    parts = [
        as_outputs(score.module(part.unflatten(1, shape)), len(part))
        for part in points[mask].split(MAX_POINTS)
        if len(part)
    ]
    outputs = torch.cat(parts) if parts else contrast
    scores = (outputs * contrast.to(outputs)).sum(-1)
    if otherwise is None:
        return scores.view(mask.shape)
    return otherwise.masked_scatter(mask, scores.to(otherwise))
