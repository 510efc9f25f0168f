"""Views of the table of attributions: the same explanations, with the groups of one attribute or of
several.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
from torch import Tensor

from gcig.core.explained import (
    N_BLOCKS,
    REACH,
    ExplainedTable,
    Figure,
    ReasonFigures,
    jackknife_variance,
)
from gcig.core.gap import signed_root
from gcig.core.gcig import effective_columns, independent_squares, normalise
from gcig.metrics.measure import Estimate

N_PERMUTATIONS = 400


@dataclass(frozen=True, eq=False)
class TableView:
    """The table of attributions with groups of the references; -1: in none."""

    table: ExplainedTable
    groups: Tensor  # (reference rows,)
    names: tuple[str, ...]
    columns: tuple[str, ...]
    seed: int = 0
    intervals: bool = True  # whether estimates have intervals
    fixed: ExplainedTable | None = None  # the compared labels, if they are decided already
    left_out: int | None = None  # a tenth of the references (0 to 9) or of the people (10 to 19)
    base: "TableView | None" = None  # the view that it is left out of

    @property
    def n_groups(self) -> int:
        """The number of groups."""
        return len(self.names)

    @cached_property
    def compared(self) -> ExplainedTable:
        """The labels of which two groups have enough references."""
        return self.fixed or self.table.compared(self.groups, self.n_groups)

    @property
    def defined(self) -> bool:
        """Whether people of some label can be compared."""
        return bool(self.compared.blocks)

    @cached_property
    def figures(self) -> ReasonFigures:
        """The reason gap and its parts."""
        return self.table.figures(self.groups, self.n_groups, n_permutations=N_PERMUTATIONS, seed=self.seed)

    def reason(self, part: str) -> Estimate:
        """Return the gap, its common or its varying part."""
        figure: Figure = getattr(self.figures, part)
        place = ("gap", "common", "varying").index(part)
        replicates = self.figures.replicates
        squares = () if replicates is None else tuple(replicates[:, place].tolist())
        limits = (figure.low, figure.high) if self.intervals else (math.nan, math.nan)
        return Estimate(
            figure.value, *limits, figure.p, figure.chance, squares, True, detectable=figure.detectable
        )

    @cached_property
    def worst(self) -> tuple[tuple[str, str], Estimate]:
        """The pair of groups that is farthest apart, with its gap."""
        if self.n_groups == 2:
            return (self.names[0], self.names[1]), self.reason("gap")
        found: list[tuple[float, int, int]] = []
        for first, second in itertools.combinations(range(self.n_groups), 2):
            pair = self.of_pair(first, second)
            if pair.defined:
                found.append((float(pair.compared.squares(pair.groups, 2)[0]), first, second))
        if not found:
            return ("", ""), Estimate()
        _, first, second = max(found)
        pair = self.of_pair(first, second)
        return (pair.names[0], pair.names[1]), pair.reason("gap")

    def of_pair(self, first: int, second: int) -> "TableView":
        """Return the view of two groups."""
        groups = torch.full_like(self.groups, -1)
        groups[self.groups == first], groups[self.groups == second] = 0, 1
        return replace(self, fixed=None, groups=groups, names=(self.names[first], self.names[second]))

    def regrouped(self, levels: Tensor, names: tuple[str, ...]) -> "TableView":
        """Return the view of groups that are joined: the level of each group, or -1 to leave it out."""
        known = torch.where(self.groups < 0, -1, levels[self.groups.clamp_min(0)])
        return replace(self, fixed=None, groups=known, names=names)

    @cached_property
    def tenths(self) -> "list[_Tenths]":
        """Sums of the explanations over each tenth of the references of each group, by label."""
        found = []
        for block in self.compared.blocks:
            codes = (
                torch.arange(self.n_groups) if block.compared is None else block.compared.nonzero().flatten()
            )
            member = block.membership(self.groups[block.references], self.n_groups)[codes]
            tenth = torch.arange(member.shape[1]) % N_BLOCKS == torch.arange(N_BLOCKS).unsqueeze(1)
            weights = member * tenth.to(member).unsqueeze(1)  # (tenths, groups, references)
            sums = (weights @ block.attributions.flatten(1)).unflatten(-1, block.attributions.shape[1:])
            found.append(_Tenths(block.share, sums, weights.sum(-1), block.people_weights, codes))
        return found

    def estimate(self, figure: Callable[["TableView"], float]) -> Estimate:
        """Return a figure of the view with its jackknife interval over references and people.

        The figure is one of explanations averaged over references: of `group_means` or `half_means`.
        """
        if not self.defined:
            return Estimate()
        value = figure(self)
        if not self.intervals:
            return Estimate(value)
        views = [replace(self, fixed=self.compared, left_out=part, base=self) for part in range(2 * N_BLOCKS)]
        replicates = torch.tensor([figure(view) for view in views], dtype=torch.float64)
        reach = REACH * math.sqrt(float(jackknife_variance(replicates)))
        return Estimate(value, value - reach, value + reach, replicates=tuple(replicates.tolist()))

    def _means(self, kept: Callable[[int], bool]) -> list[tuple[float, Tensor, Tensor]]:
        """Return for each label its share, mean explanations (groups, people, columns) over some tenths
        of the
        references, and the weights of people; a tenth of references or people may be left out.
        """
        found = []
        for part in (self.base or self).tenths:
            chosen = [k for k in range(N_BLOCKS) if kept(k) and k != self.left_out]
            means = part.sums[chosen].sum(0) / part.mass[chosen].sum(0).clamp_min(1e-30)[:, None, None]
            weights = part.people
            if self.left_out is not None and self.left_out >= N_BLOCKS:
                few = torch.arange(len(weights)) % N_BLOCKS != self.left_out - N_BLOCKS
                means, weights = means[:, few], weights[few]
            found.append((part.share, means, weights))
        return found

    def group_means(self) -> list[tuple[float, Tensor, Tensor]]:
        """Return for each label its share, each person's mean explanation relative to each group,
        (groups, people,
        columns), and the weights of people.
        """
        return self._means(lambda _: True)

    def half_means(self) -> list[tuple[float, tuple[Tensor, Tensor], Tensor]]:
        """Return the same relative to two halves of the references."""
        halves = [self._means(partial(_in_half, half)) for half in range(2)]
        return [
            (share, (one, other), people) for (share, one, people), (_, other, _) in zip(*halves, strict=True)
        ]

    def over_people(self, of_block: Callable[[Tensor], Tensor]) -> float:
        """Return the mean over people of a function of mean explanations (groups, people, columns) ->
        (people,).
        """
        total, mass = 0.0, 0.0
        for share, means, weights in self.group_means():
            total += share * float((of_block(means) * weights).sum() / weights.sum())
            mass += share
        return total / mass if mass else math.nan

    def shares(self) -> Tensor:
        """Return each column's mean share of the explanations, (columns,)."""
        total, mass = torch.zeros(len(self.columns)), 0.0
        for share, means, weights in self.group_means():
            of_person = normalise(means).abs().mean(0)
            total = total + share * ((of_person * weights.unsqueeze(1)).sum(0) / weights.sum()).to(total)
            mass += share
        return total / max(mass, 1e-300)

    def effective_columns(self) -> float:
        """Return the number of columns that explanations rest on."""
        return float(effective_columns(self.shares())) if self.defined else math.nan

    def gcig_members(self) -> float:
        """Return GCIG relative to members: explanations are averaged over the members of a group.

        Products of two halves of the members leave out the noise of the averages.
        """
        total, mass = 0.0, 0.0
        for share, halves, weights in self.half_means():
            squares = independent_squares(*halves).sum(-1)
            total += share * float((signed_root(squares) * weights).sum() / weights.sum())
            mass += share
        return total / mass if mass else math.nan

    def by_column(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return by column the parts of the squared gap: the common and the varying one, as signed roots.

        Products of two halves of the references leave out their noise.
        """
        common, varying, mass = torch.zeros(len(self.columns)), torch.zeros(len(self.columns)), 0.0
        for share, halves, weights in self.half_means():
            w = (weights / weights.sum()).view(1, -1, 1)
            deviations = [means - means.mean(0) for means in halves]
            middles = [(each * w).sum(1, keepdim=True) for each in deviations]
            rests = [each - middle for each, middle in zip(deviations, middles, strict=True)]
            factor = share * 2 / (len(halves[0]) - 1)
            common = common + factor * (middles[0] * middles[1]).sum((0, 1))
            varying = varying + factor * (rests[0] * rests[1] * w).sum((0, 1))
            mass += share
        if not mass:
            return {}, {}
        roots = (signed_root(each / mass).tolist() for each in (common, varying))
        first, second = (dict(zip(self.columns, each, strict=True)) for each in roots)
        return first, second


def _in_half(half: int, tenth: int) -> bool:
    return tenth % 2 == half


@dataclass(frozen=True, eq=False)
class _Tenths:
    """Sums over tenths of the references of one label."""

    share: float
    sums: Tensor  # (tenths, groups, people, columns)
    mass: Tensor  # (tenths, groups)
    people: Tensor  # (people,) weights
    codes: Tensor  # (groups,) which groups are compared
