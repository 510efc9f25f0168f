r"""Members of (label, group) cells as references: attributions are averaged over them (expected gradients).

The choice of members is random, and its noise would be counted as disparity. The members of each cell are
therefore split into two halves that share none, and the squared disparity is the product of the two halves'
differences, in which the noise has mean zero (`gcig.core.gcig.independent_squares`). Products can be
negative by chance; a row keeps the sign (`signed_root`), so that noise cancels in the mean over rows, and a
mean below zero is reported as zero. The distance between the two halves of one group is the noise itself.

The root is not linear, so noise would still pull the disparity of a row down. Each half therefore consists
of strata, and the estimates without one stratum at a time remove that bias to first order and give the
standard error that the choice of members causes (jackknife).
"""

from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor

from gcig._arrays import Codes, Floats, Rows
from gcig.adapters import Advance, Reasons
from gcig.core.gap import signed_root
from gcig.core.gcig import defined_rows, independent_squares, normalise, vector_norm
from gcig.metrics.reasons import Comparison, RowReasons
from gcig.metrics.sample import EncodedRows, Reservoir

_POOL_ROWS = 2048  # per cell
_POOL_BYTES = 2**26  # per cell, for rows with very many columns
N_STRATA = 8  # per half
_ROWS_AT_ONCE = 32  # rows that share drawn members; others get other members, so that noise averages out


class MemberPool:
    """A random sample of the members of every cell; ``counts`` (2, groups) are all members offered."""

    def __init__(self, n_groups: int, rng: np.random.Generator) -> None:
        self.rng = rng
        self.counts: Codes = np.zeros((2, n_groups), dtype=np.int64)
        self._cells: dict[tuple[int, int], Reservoir] = {}

    def add(self, rows: EncodedRows) -> None:
        """Offer rows; the pool does not depend on how they are batched."""
        keys = self.rng.random(len(rows))
        size = max(2, min(_POOL_ROWS, _POOL_BYTES // max(1, rows.inputs[:1].nbytes)))
        for label, group in np.unique(np.stack([rows.labels, rows.groups]), axis=1).T.tolist():
            own = (rows.labels == label) & (rows.groups == group)
            self.counts[label, group] += np.count_nonzero(own)
            cell = self._cells.setdefault((label, group), Reservoir(size, self.rng))
            cell.add(rows[own], keys[own])

    def members(self, label: int, group: int) -> Rows:
        """Return the sampled members of a cell, (m, p), in random order."""
        return self._cells[label, group].rows.inputs

    def has_halves(self, label: int, groups: tuple[int, ...]) -> bool:
        """Return whether the cells of a label have two members each."""
        return bool((self.counts[label, list(groups)] >= 2).all())

    def draw(self, label: int, groups: tuple[int, ...], n_members: int, rng: np.random.Generator) -> Rows:
        """Draw members of a label's cells, (2 halves, groups, strata, members, p).

        ``n_members`` is the number of members of a half; those of a small cell occur several times.
        """
        labels = [each for each in range(2) if self.has_halves(each, groups)]
        halves = [len(self.members(each, group)) // 2 for each in labels for group in groups]
        strata = min(N_STRATA, n_members, *halves)
        count = min(n_members, max(halves)) // strata
        drawn = []
        for half in range(2):
            for group in groups:
                own = self.members(label, group)
                size = len(own) // 2
                for stratum in range(strata):
                    places = half * size + np.arange(stratum, size, strata)
                    drawn.append(own[rng.choice(places, count, replace=len(places) < count)])
        return np.stack(drawn).reshape(2, len(groups), strata, count, -1)


@dataclass(frozen=True, eq=False, kw_only=True)
class MemberComparison(Comparison):
    """A comparison of rows with members of the cells instead of their means."""

    pool: MemberPool  # the members
    rng: np.random.Generator  # draws from the pool

    @classmethod
    def of(cls, comparison: Comparison, pool: MemberPool, rng: np.random.Generator) -> "MemberComparison":
        """Return a comparison relative to members; columns and integration stay those of the other."""
        same = {each.name: getattr(comparison, each.name) for each in fields(Comparison)}
        definition = replace(comparison.definition, reference="members")
        return cls(**{**same, "definition": definition}, pool=pool, rng=rng)

    @property
    def max_chunk(self) -> int:
        """The largest number of rows that are explained at once."""
        return _ROWS_AT_ONCE

    def has_references(self, label: int) -> bool:
        """Return whether the cells of the label have members for both halves."""
        return self.pool.has_halves(label, self.compared)

    def explain(self, rows: Rows, label: int, advance: Advance | None = None) -> RowReasons:
        """Explain encoded rows of one label."""
        used, columns = self.definition, self.compared_columns
        drawn = self.pool.draw(label, self.compared, self.adapted.explainer.budget.members, self.rng)
        halves = [self._average(rows, half, seed) for seed, half in enumerate(drawn)]
        strata = torch.stack([values for values, _ in halves])  # (2, groups, strata, m, columns)
        first, second = strata.mean(2)
        mean = (first + second) / 2
        contributions, leave_one_out = self._estimate(strata, used.norm)
        defined = defined_rows(vector_norm(torch.cat([first, second]), "l1"), self.scale[used.columns])
        units = [normalise(half, norm=used.norm, eps=used.eps) for half in (first, second)]
        apart = [unit.transpose(0, 1).unsqueeze(2) - unit.transpose(0, 1).unsqueeze(1) for unit in units]
        other_norm = "l2" if used.norm == "l1" else "l1"
        original = mean if used.columns == "original" else columns.sum(mean)
        if advance is not None:
            advance(len(rows))
        return RowReasons(
            values=mean.numpy(),
            disparity=contributions.sum(-1).numpy(),
            defined=defined.numpy(),
            contribution=contributions.numpy(),
            normalised=normalise(mean, norm=used.norm, eps=used.eps).numpy(),
            shares=normalise(mean).abs().mean(0).numpy(),
            original_shares=normalise(original).abs().mean(0).numpy(),
            pairs=signed_root((apart[0] * apart[1]).sum(-1)).numpy(),
            variants={
                (used.columns, other_norm): (
                    self._estimate(strata, other_norm)[0].sum(-1).numpy(),
                    defined.numpy(),
                )
            },
            reasons=Reasons(
                mean,
                torch.stack([reasons.residual for _, reasons in halves]).double().cpu().mean((0, 1)),
                clipped=float(np.mean([reasons.clipped for _, reasons in halves])),
            ),
            leave_one_out=leave_one_out,
            noise=vector_norm(units[0] - units[1], "l2").mean(0).numpy(),
        )

    def _average(self, rows: Rows, members: Rows, seed: int) -> tuple[Tensor, Reasons]:
        """Average attributions over members (groups, strata, members, p): (groups, strata, m, columns)."""
        groups, strata, count, p = members.shape
        columns = self.compared_columns
        centre = columns.centre if self.definition.columns == "encoded" and columns.centres else None
        sets = members.reshape(groups * strata, count, p)
        reasons = self.adapted.explainer.attribute_members(rows, sets, seed=seed, centre=centre)
        return self.select(reasons.values).unflatten(0, (groups, strata)), reasons

    def _estimate(self, strata: Tensor, norm: str) -> tuple[Tensor, Floats | None]:
        """Estimate the disparity from attributions (2 halves, groups, strata, m, columns).

        Return contributions (m, columns) that add up to the disparity, free of bias to first order, and the
        disparity (strata, m) without each stratum in turn, not corrected; None if there is only one stratum.
        """
        k, total = strata.shape[2], strata.sum(2)
        whole = self._contributions(total / k, norm)
        if k < 2:
            return whole, None
        without = self._contributions((total.unsqueeze(2) - strata).transpose(1, 2) / (k - 1), norm)
        return k * whole - (k - 1) * without.mean(0), without.sum(-1).numpy()

    def _contributions(self, halves: Tensor, norm: str) -> Tensor:
        """Return parts (..., m, columns) of the disparity, from attributions (2, ..., groups, m, columns)."""
        squares = independent_squares(halves[0], halves[1], norm=norm, eps=self.definition.eps)
        root = squares.sum(-1).abs().sqrt().clamp(min=torch.finfo(squares.dtype).tiny)
        return squares / root.unsqueeze(-1)
