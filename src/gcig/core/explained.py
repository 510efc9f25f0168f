r"""The table of attributions: explain once, group any way.

`a[r, i]` is the explanation of person i relative to person r with the same label (or bin), one number per
column, in units of the spread of the score. The attribution does not know r's group: groups enter afterwards,
as weights of the references. From one table, without another call of the model:

- the reason gap and its parts (`gcig.core.gap`), unbiased: about 0 if groups were drawn by coin;
- chance, exactly: the same after permuting the references' groups within labels;
- intervals for people and references: leaving out a tenth of either in turn (a jackknife of the square, the
  two variances added);
- the same for any other grouping of the references.

Whoever is explained is not a reference. Few people and many references are best: the sampling of references
is nearly all of the error. Who is chosen depends on the rows' keys and a seed alone.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import t as student_t
from torch import Tensor, nn

from gcig.core.attribution import Attribution, Score
from gcig.core.gap import reason_gap, signed_root
from gcig.core.references import Rows
from gcig.core.task import Task

# Definitions: parts of people and of references for intervals; the least people per label, and the least
# references per label and group.
N_BLOCKS, LEAST_PEOPLE, LEAST_REFERENCES = 10, 20, 11
REACH = float(student_t.ppf(0.975, N_BLOCKS - 1))
_ROWS_AT_ONCE = 16  # people explained at once: memory, without effect on the result


@dataclass(frozen=True)
class Block:
    """The explanations of people with one label."""

    share: float  # of all people
    attributions: Tensor  # (references, people, columns), in units of the spread
    references: Tensor  # (references,) positions in the reference rows
    people: Tensor  # (people,) positions in the explained rows
    weights: Tensor  # (references,)
    people_weights: Tensor  # (people,)
    compared: Tensor | None = None  # (groups,) which groups have enough references; None for all

    def membership(self, groups: Tensor, n_groups: int) -> Tensor:
        """Return the weight of each reference in each group, (..., groups, references); -1: in none."""
        codes = torch.arange(n_groups, device=groups.device).unsqueeze(1)
        return (groups.unsqueeze(-2) == codes).to(self.attributions.dtype) * self.weights


@dataclass(frozen=True)
class Figure:
    """A figure with its 95 % interval, the p-value of permuted groups, and their 95 % point.

    ``detectable`` is the smallest value that these rows would reveal in four of five cases.
    """

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan
    chance: float = math.nan
    detectable: float = math.nan


@dataclass(frozen=True)
class ReasonFigures:
    """The reason gap and its parts."""

    gap: Figure = Figure()
    common: Figure = Figure()
    varying: Figure = Figure()
    # (2 x blocks, 3): squares without each tenth of the references, then of the people
    replicates: Tensor | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class ExplainedTable:
    """Blocks of all labels; the groups of the reference rows are given to every method."""

    blocks: tuple[Block, ...]
    spread: float

    def compared(self, groups: Tensor, n_groups: int) -> "ExplainedTable":
        """Return the table with the labels of which at least two groups have enough references."""
        blocks = []
        for block in self.blocks:
            counts = torch.bincount(groups[block.references] + 1, minlength=n_groups + 1)[1:]
            enough = counts >= LEAST_REFERENCES
            if int(enough.sum()) > 1 and len(block.people) >= LEAST_PEOPLE:
                blocks.append(replace(block, compared=enough))
        return replace(self, blocks=tuple(blocks))

    def squares(self, groups: Tensor, n_groups: int) -> Tensor:
        """Return the squared gap and its squared varying part, (..., 2).

        ``groups`` (..., reference rows) are codes, or -1; leading dimensions are several groupings.
        """
        total, parts = 0.0, []
        for block in self.blocks:
            weights = block.membership(groups[..., block.references], n_groups)
            parts.append(block.share * torch.stack(_squares(block, weights), -1))
            total += block.share
        return torch.stack(parts).sum(0) / total

    def figures(
        self, groups: Tensor, n_groups: int, *, n_permutations: int = 400, seed: int = 0
    ) -> ReasonFigures:
        """Return the reason gap and its parts with intervals, p-values and chance levels."""
        table = self.compared(groups, n_groups)
        if not table.blocks:
            return ReasonFigures()
        squares = _parts(table.squares(groups, n_groups))
        replicates = table.replicates(groups, n_groups)
        error = jackknife_variance(replicates).sqrt()
        null = _parts(table.squares(table._permuted(groups, n_permutations, seed), n_groups))
        gap, common, varying = (_figure(squares[j], error[j], null[:, j]) for j in range(3))
        return ReasonFigures(gap, common, varying, replicates)

    def by_column(self, groups: Tensor, group: int, other: int) -> tuple[Tensor, Tensor]:
        """Return, by column, how much more it contributes relative to `other` than to `group`, on average
        over people, and the standard deviation of that difference over people.
        """
        common = varying = torch.zeros(())
        total = 0.0
        for block in self.blocks:
            weights = block.membership(groups[block.references], max(group, other) + 1)[[group, other]]
            if not bool(weights.any(1).all()):
                continue  # one of the two groups has nobody with this label
            means = torch.einsum("gr,ric->gic", weights, block.attributions) / weights.sum(1)[:, None, None]
            difference, people = means[1] - means[0], block.people_weights / block.people_weights.sum()
            middle = people @ difference
            common = common + block.share * middle
            varying = varying + block.share * (people @ (difference - middle).square())
            total += block.share
        return torch.as_tensor(common) / total, (torch.as_tensor(varying) / total).sqrt()

    def _permuted(self, groups: Tensor, count: int, seed: int) -> Tensor:
        """Return the groups permuted within the references of each label, (count, reference rows)."""
        generator = torch.Generator().manual_seed(seed)
        permuted = groups.cpu().expand(count, -1).clone()
        for block in self.blocks:
            own = block.references.cpu()
            order = torch.rand(count, len(own), generator=generator, dtype=torch.float32).argsort(1)
            permuted[:, own] = groups.cpu()[own][order]
        return permuted.to(groups.device)

    def replicates(self, groups: Tensor, n_groups: int) -> Tensor:
        """Return the squares (2 x blocks, 3) of gap, common and varying part without a tenth of the
        references, and without a tenth of the people, in turn.
        """
        tenths = torch.arange(N_BLOCKS, device=groups.device).unsqueeze(1)
        left_out = self.reference_blocks(len(groups)) == tenths
        references = self.squares(torch.where(left_out, -1, groups), n_groups)
        people = [self.without_people(part).squares(groups, n_groups) for part in range(N_BLOCKS)]
        return _parts(torch.cat([references, torch.stack(people)]))

    def reference_blocks(self, n_rows: int) -> Tensor:
        """Return the tenth to which each of all reference rows belongs, (reference rows,); -1: in none."""
        device = self.blocks[0].references.device
        place = torch.full((n_rows,), -1, device=device)
        for block in self.blocks:
            place[block.references] = torch.arange(len(block.references), device=device) % N_BLOCKS
        return place

    def without_people(self, part: int) -> "ExplainedTable":
        """Return the table without a tenth of the people."""
        blocks = []
        for block in self.blocks:
            rows = (torch.arange(len(block.people)) % N_BLOCKS != part).nonzero().flatten()
            rows = rows.to(block.attributions.device)
            attributions, weights = block.attributions.index_select(1, rows), block.people_weights[rows]
            others = replace(
                block, attributions=attributions, people=block.people[rows], people_weights=weights
            )
            blocks.append(others)
        return replace(self, blocks=tuple(blocks))


def _squares(block: Block, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return the squared gap and its varying part of one block, each (...,)."""
    people = block.people_weights
    cells = torch.zeros(len(people), dtype=torch.long, device=people.device)
    defined = None
    if block.compared is not None and not bool(block.compared.all()):
        defined = block.compared.unsqueeze(1).expand(-1, len(people))
    return reason_gap(block.attributions, weights, cells, people=people, defined=defined)


def _parts(squares: Tensor) -> Tensor:
    """Return the squares (..., 3) of gap, common and varying part, from gap and varying part (..., 2)."""
    gap, varying = squares.unbind(-1)
    return torch.stack([gap, gap - varying, varying], -1)


def jackknife_variance(replicates: Tensor) -> Tensor:
    """Return the variance of a figure from its replicates (2 x blocks, ...): of references plus of people."""
    total: Tensor = sum(
        (N_BLOCKS - 1) / N_BLOCKS * (each - each.mean(0)).square().sum(0)
        for each in replicates.split(N_BLOCKS)
    )
    return total


def _figure(square: Tensor, error: Tensor, null: Tensor) -> Figure:
    def root(value: Tensor | float) -> float:
        return float(signed_root(torch.as_tensor(value)))

    chance, noise = float(null.quantile(0.95)), float(null.std())
    return Figure(
        value=root(square),
        low=root(square - REACH * error),
        high=root(square + REACH * error),
        p=float((1 + (null >= square).sum()) / (1 + len(null))),
        chance=root(chance),
        detectable=root(_detectable(chance, noise)),
    )


def _detectable(chance: float, noise: float) -> float:
    r"""Return the square that exceeds `chance` in four of five cases.

    The variance of an estimated square u is that of chance, s^2, plus :math:`4 u v` with v the variance of
    the difference itself; :math:`v = s / \sqrt 2` if it has one direction, and less if it has several. This
    is the solution of :math:`u - \text{chance} = 0.84 \sqrt{s^2 + 4 u v}`.
    """
    k = 0.84**2  # of the normal quantile of four in five
    middle = chance + k * math.sqrt(2) * noise
    return middle + math.sqrt(max(0.0, middle**2 - chance**2 + k * noise**2))


def hashed_keys(keys: NDArray[np.int64], seed: int) -> NDArray[np.uint64]:
    """Return pseudo-random numbers that depend on each key and the seed alone (SplitMix64).

    >>> hashed_keys(np.array([0, 1]), 0) == hashed_keys(np.array([0, 1, 2]), 0)[:2]
    array([ True,  True])
    """
    with np.errstate(over="ignore"):
        z = keys.astype(np.uint64) + np.uint64(seed % 2**64) * np.uint64(0xD1342543DE82EF95)
        for multiplier, shift in (
            (0x9E3779B97F4A7C15, 30),
            (0xBF58476D1CE4E5B9, 27),
            (0x94D049BB133111EB, 31),
        ):
            z = (z + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(multiplier)
            z ^= z >> np.uint64(shift)
    return z


def choose(
    cells: NDArray[np.int64],
    groups: NDArray[np.int64],
    keys: NDArray[np.uint64],
    people: int,
    references: int,
) -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]]:
    """Return the positions of people and of references by cell, from one set of rows, apart.

    The rows with the smallest keys of a cell, at most a quarter of it, are people; of the others, the rows of
    each group with the smallest keys are references.
    """
    explained: list[NDArray[np.int64]] = []
    others: list[NDArray[np.int64]] = []
    for cell in range(int(cells.max(initial=-1)) + 1):
        own = np.flatnonzero(cells == cell)
        own = own[np.argsort(keys[own], kind="stable")]
        count = min(people, max(len(own) // 4, min(LEAST_PEOPLE, len(own) // 2)))
        explained.append(own[:count])
        others.append(smallest_by_group(own[count:], groups, references))
    return explained, others


def smallest_by_group(
    rows: NDArray[np.int64], groups: NDArray[np.int64], references: int
) -> NDArray[np.int64]:
    """Return the first rows of each group, in their order."""
    codes = groups[rows]
    rank = np.zeros(len(rows), dtype=np.int64)
    for group in np.unique(codes):
        own = codes == group
        rank[own] = np.arange(np.count_nonzero(own))
    return rows[rank < references]


def explain_table(
    module_score: Callable[[Tensor], Score],
    attribution: Attribution,
    task: Task,
    explained: tuple[Tensor, Tensor],
    reference_rows: Tensor,
    people: Sequence[NDArray[np.int64]],
    references: Sequence[NDArray[np.int64]],
    *,
    spread: float,
    columns: Tensor,
    legitimate: Tensor | None = None,
    weights: tuple[Tensor | None, Tensor | None] = (None, None),
    mass: Tensor | None = None,
    seed: int = 0,
) -> ExplainedTable:
    """Explain people relative to references of their own cell.

    Parameters
    ----------
    module_score : callable
        Maps labels (n,) to the score of rows with these labels.
    explained : (inputs, labels)
    people, references : by cell, positions in `explained` and in `reference_rows`
    columns : Tensor of shape (encoded columns, columns)
        Sums encoded columns.
    legitimate : Tensor of bool, optional
        Encoded columns that all references of a person take from one random reference of the cell: they
        then differ between groups by nothing, not even by chance, if the model is additive.
    weights : of explained and of reference rows
    mass : Tensor of shape (cells,), optional
        The weight of all people of each cell; by default of the explained rows.
    """
    inputs, labels = explained
    device, blocks = inputs.device, []
    if mass is None:
        mass = torch.bincount(task.cells(labels), weights[0], minlength=task.n_cells).double()
    generator = torch.Generator().manual_seed(seed)
    for cell, (own, others) in enumerate(zip(people, references, strict=True)):
        rows, of = torch.from_numpy(own).to(device), torch.from_numpy(others).to(device)
        if len(own) < LEAST_PEOPLE or len(others) < 2 * LEAST_REFERENCES:
            continue
        starts = reference_rows[of]
        donors = starts[torch.randint(len(of), (len(rows),), generator=generator).to(device)]
        parts = []
        for part, donated in zip(rows.split(_ROWS_AT_ONCE), donors.split(_ROWS_AT_ONCE), strict=True):
            pairs = starts.unsqueeze(1).expand(-1, len(part), *starts.shape[1:])
            if legitimate is not None:
                pairs = torch.where(legitimate, donated, pairs)
            values = attribution.attribute(module_score(labels[part]), inputs[part], pairs)
            parts.append(values.flatten(2) @ columns.to(values.dtype) / spread)
        ones = [torch.ones(len(each), dtype=parts[0].dtype, device=device) for each in (of, rows)]
        blocks.append(
            Block(
                share=float(mass[cell] / mass.sum()),
                attributions=torch.cat(parts, dim=1),
                references=of,
                people=rows,
                weights=ones[0] if weights[1] is None else weights[1][of].to(ones[0]),
                people_weights=ones[1] if weights[0] is None else weights[0][rows].to(ones[1]),
            )
        )
    return ExplainedTable(tuple(blocks), spread)


def explain_rows_apart(
    network: nn.Module,
    rows: Rows,
    task: Task,
    attribution: Attribution,
    columns: Tensor,
    spread: float,
    *,
    people: int,
    references: int,
    legitimate: Tensor | None = None,
    seed: int = 0,
) -> ExplainedTable:
    """Explain `people` rows per cell relative to `references` others per cell and group."""
    cells, groups = task.cells(rows.labels).cpu().numpy(), rows.groups.cpu().numpy()
    keys = hashed_keys(np.arange(len(rows)), seed)
    explained, others = choose(cells, groups, keys, people, references)
    return explain_table(
        lambda labels: Score.of(network, task, labels),
        attribution,
        task,
        (rows.inputs, rows.labels),
        rows.inputs,
        explained,
        others,
        spread=max(spread, 1e-12),
        columns=columns,
        legitimate=legitimate,
        weights=(rows.weights, rows.weights),
        seed=seed,
    )
