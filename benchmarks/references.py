"""GCIG of a network under several references, by code of its own.

Nothing here is shared with training or with `gcig.metrics`: attributions are integrated gradients by autograd
and six Gauss-Legendre nodes, in double precision, on the original columns (one-hot blocks summed), normalised
by their l1 norm. `panel` measures one network on test rows; references come from its training rows.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.polynomial.legendre import leggauss
from numpy.typing import NDArray
from scipy.stats import spearmanr
from torch import Tensor, nn

__all__ = ["REFERENCES", "Table", "panel"]

REFERENCES = ("mean", "label-free", "medoid", "mode", "members", "common")
_NODES, _WEIGHTS = leggauss(6)
_ROWS, _MEMBERS = 500, 64  # test rows explained; members per half of the estimate


@dataclass(frozen=True)
class Table:
    """Encoded rows (n, p), labels and group codes."""

    inputs: Tensor
    labels: NDArray[np.int64]
    groups: NDArray[np.int64]

    def cell(self, label: int, group: int) -> Tensor:
        """Return the rows of one (label, group) cell."""
        return self.inputs[(self.labels == label) & (self.groups == group)]


def panel(
    network: nn.Module,
    test: Table,
    training: Table,
    origin: NDArray[np.int64],
    protected: NDArray[np.int64] | None = None,
    seed: int = 0,
) -> dict[str, float]:
    """Measure GCIG under every reference, and reference offset, faithfulness, columns and attribute effect.

    Parameters
    ----------
    origin : (p,) the original column of each encoded column.
    protected : positions of the encoded columns that carry the protected attribute, if any do.
    """
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(test.labels))[:_ROWS]
    few = Table(test.inputs[rows], test.labels[rows], test.groups[rows])
    n_groups = int(training.groups.max()) + 1
    explain = _Explain(network, few, torch.as_tensor(origin))
    cells = {(y, g): training.cell(y, g) for y in (0, 1) for g in range(n_groups)}
    means = {cell: members.mean(0) for cell, members in cells.items()}
    free = {(y, g): training.inputs[training.groups == g].mean(0) for y, g in cells}
    medoids = {cell: members[_nearest(members, means[cell])] for cell, members in cells.items()}
    modes = {cell: members[_modal(members, origin)] for cell, members in cells.items()}
    found = {
        "mean": explain.gcig(means),
        "label-free": explain.gcig(free),
        "medoid": explain.gcig(medoids),
        "mode": explain.gcig(modes),
        "members": explain.gcig_members(cells, rng),
        "common": explain.common(training),
    }
    shares = explain.units(means).abs().mean((0, 1))
    share = (shares / shares.sum()).numpy()
    found["columns"] = float(np.exp(-(share[share > 0] * np.log(share[share > 0])).sum()))
    found["reference_offset"] = _offset(network, means, cells, training)
    found["faithfulness"] = float(spearmanr(share, _importance(network, few, origin, rng)).statistic)
    if protected is not None and len(protected):
        found["attribute_effect"] = _attribute_effect(network, few, training, protected, rng)
    return found


@dataclass(frozen=True)
class _Explain:
    """Explanations of some rows relative to any references."""

    network: nn.Module
    rows: Table
    origin: Tensor

    def attributions(self, references: Tensor) -> Tensor:
        """Return integrated gradients (groups, n, original columns) from references (groups, n, p)."""
        deltas = self.rows.inputs - references
        total = torch.zeros_like(references)
        for node, weight in zip((_NODES + 1) / 2, _WEIGHTS / 2, strict=True):
            points = (references + float(node) * deltas).requires_grad_()
            (slopes,) = torch.autograd.grad(self.network(points.flatten(0, 1)).sum(), points)
            total += float(weight) * slopes
        blocks = torch.zeros(*total.shape[:-1], int(self.origin.max()) + 1, dtype=total.dtype)
        return blocks.index_add_(-1, self.origin, deltas * total)

    def units(self, of_cell: dict[tuple[int, int], Tensor]) -> Tensor:
        """Return normalised attributions from one reference per cell."""
        n_groups = len(of_cell) // 2
        references = torch.stack(
            [torch.stack([of_cell[int(y), g] for y in self.rows.labels]) for g in range(n_groups)]
        )
        return _unit(self.attributions(references))

    def gcig(self, of_cell: dict[tuple[int, int], Tensor]) -> float:
        return float(_distance(self.units(of_cell)).mean())

    def gcig_members(self, cells: dict[tuple[int, int], Tensor], rng: np.random.Generator) -> float:
        """Average attributions over members; two halves of them remove what their choice adds by chance."""
        halves = [self._over_members(cells, rng) for _ in range(2)]
        first, second = (half - half.mean(0) for half in halves)
        squares = 2 / (len(first) - 1) * (first * second).sum((0, 2))
        return float(squares.clamp(min=0).sqrt().mean())

    def _over_members(self, cells: dict[tuple[int, int], Tensor], rng: np.random.Generator) -> Tensor:
        total = None
        for _ in range(_MEMBERS):
            drawn = {cell: members[rng.integers(len(members), size=_ROWS)] for cell, members in cells.items()}
            references = torch.stack(
                [
                    torch.stack([drawn[int(y), g][i] for i, y in enumerate(self.rows.labels)])
                    for g in range(len(cells) // 2)
                ]
            )
            found = self.attributions(references)
            total = found if total is None else total + found
        assert total is not None
        return _unit(total)

    def common(self, training: Table) -> float:
        """Compare the groups' mean explanations relative to one reference per label, the mean of its rows."""
        of_label = [training.inputs[training.labels == y].mean(0) for y in (0, 1)]
        references = torch.stack([of_label[int(y)] for y in self.rows.labels]).unsqueeze(0)
        units, total = _unit(self.attributions(references))[0], 0.0
        weight = 0.0
        for y in (0, 1):
            own = self.rows.labels == y
            # A group without rows of the label has no mean explanation to compare.
            means = [units[own & (self.rows.groups == g)].mean(0) for g in np.unique(self.rows.groups[own])]
            if len(means) > 1:
                total += float(own.mean()) * float(_distance(torch.stack(means).unsqueeze(1)))
                weight += float(own.mean())
        return total / weight if weight else float("nan")


def _unit(attributions: Tensor) -> Tensor:
    return attributions / (attributions.abs().sum(-1, keepdim=True) + 1e-12)


def _distance(units: Tensor) -> Tensor:
    """Return the root mean square distance over pairs of groups, shape (n,)."""
    squares = (units - units.mean(0)).square().sum((0, 2))
    return (2 / (len(units) - 1) * squares).sqrt()


def _nearest(members: Tensor, point: Tensor) -> int:
    return int((members - point).square().sum(1).argmin())


def _modal(members: Tensor, origin: NDArray[np.int64]) -> int:
    """Return the member that has the most frequent category, or a number near the median, in most columns."""
    agree = torch.zeros(len(members), dtype=members.dtype)
    for column in np.unique(origin):
        block = members[:, origin == column]
        if block.shape[1] > 1:
            agree += block.argmax(1) == block.mean(0).argmax()
        else:
            distance = (block[:, 0] - block[:, 0].median()).abs()
            agree += (distance < 0.25).to(agree) - 1e-3 * distance
    return int(agree.argmax())


@torch.no_grad()
def _offset(
    network: nn.Module,
    means: dict[tuple[int, int], Tensor],
    cells: dict[tuple[int, int], Tensor],
    training: Table,
) -> float:
    spread = network(training.inputs).std()
    gaps = [(network(means[cell][None]) - network(members).mean()).abs() for cell, members in cells.items()]
    return float(torch.cat(gaps).mean() / spread)


@torch.no_grad()
def _importance(
    network: nn.Module, rows: Table, origin: NDArray[np.int64], rng: np.random.Generator
) -> list[float]:
    scores, found = network(rows.inputs), []
    for column in np.unique(origin):
        permuted, block = rows.inputs.clone(), origin == column
        permuted[:, block] = rows.inputs[rng.permutation(len(rows.labels))][:, block]
        found.append(float((network(permuted) - scores).abs().mean()))
    return found


@torch.no_grad()
def _attribute_effect(
    network: nn.Module, rows: Table, training: Table, protected: NDArray[np.int64], rng: np.random.Generator
) -> float:
    exchanged = rows.inputs.clone()
    for group in np.unique(rows.groups):
        own = np.flatnonzero(rows.groups == group)
        others = training.inputs[training.groups != group]
        exchanged[own[:, None], protected] = others[rng.integers(len(others), size=len(own))][:, protected]
    return float(((network(exchanged) >= 0) != (network(rows.inputs) >= 0)).double().mean())
