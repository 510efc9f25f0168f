"""GCIG and what is behind it, as a record: from the sums of the second pass and from the shuffles."""

import math
from dataclasses import dataclass

import numpy as np

from gcig.auditing.block_bootstrap import Draws, interval
from gcig.auditing.row_tally import RowTally
from gcig.auditing.shuffling import Null
from gcig.metrics.confusion import Floats, quotient
from gcig.metrics.label_weights import combine_labels, label_means
from gcig.records.audit import (
    SMALLEST_CELL,
    ColumnAudit,
    GcigAudit,
    Interval,
    LabelAudit,
    PairAudit,
)

__all__ = ["ALPHA", "MATERIAL", "NOT_COMPARED", "UNDEFINED", "Measured", "judge_evidence"]

ALPHA = 0.05  # level of the test against shuffled groups
MATERIAL = 0.05  # an excess of GCIG that is called material; below, a difference of reasons is small
_Z = 1.959964
UNDEFINED = Interval(math.nan)
NOT_COMPARED = GcigAudit(
    gcig=UNDEFINED,
    gcig_resampled=UNDEFINED,
    noise_floor=UNDEFINED,
    excess=UNDEFINED,
    p_value=math.nan,
    evidence="not enough",
    undefined_rows=0,
    completeness=math.nan,
    effective_columns=math.nan,
)  # fewer than two groups have baselines


def judge_evidence(p_value: float, excess: Interval, floor: Interval) -> str:
    """What the shuffles and the interval say together.

    "disparity" where shuffled groups rarely reach the observed GCIG; "none" where they do, the interval
    leaves no room for a material excess, and such an excess would stand out from the shuffles; "not enough"
    otherwise.

    >>> floor = Interval(0.05, 0.04, 0.06)
    >>> judge_evidence(0.005, Interval(0.1, 0.08, 0.12), floor)
    'disparity'
    >>> judge_evidence(0.4, Interval(0.01, -0.1, 0.12), floor)
    'not enough'
    """
    if p_value <= ALPHA:
        return "disparity"
    return "none" if excess.high < MATERIAL and floor.high - floor.value < MATERIAL else "not enough"


@dataclass(frozen=True, eq=False)
class Measured:
    """The parts of the procedural record.

    Attributes
    ----------
    tally : sums of the second pass.
    draws : resampled blocks.
    null : the sample's GCIG, observed and shuffled.
    shift : (resamples,) change of the sample's GCIG when the baselines are estimated on resampled rows.
    own_baselines : whether the model brought the baselines. What chance alone gives is measured with those
        of the audited rows, and so is then the excess over it: fewer rows would else pass for fairness.
    groups : names of the compared groups; columns : names of the columns; classes : names of the labels.
    """

    tally: RowTally
    draws: Draws
    null: Null
    shift: Floats
    own_baselines: bool
    groups: tuple[str, ...]
    columns: tuple[str, ...]
    classes: tuple[str, str]

    @property
    def label_weights(self) -> str:
        """How the labels are put together."""
        return self.tally.explaining.definition.label_weights

    def record(self, n_of_label: tuple[int, int]) -> GcigAudit:
        """Everything but rows and stability."""
        tally = self.tally
        value = self._mean(tally.total.sum(axis=0))
        of_rows = self._mean(self.draws.resample(tally.total))
        both = self._with_baselines(of_rows)
        floor = self._noise_floor(float(value))
        reach = _Z * float(both.std(ddof=1)) if len(both) > 1 else math.nan
        gap = (self.null.observed if self.own_baselines else float(value)) - floor.value
        excess = Interval(gap, gap - reach, gap + reach)
        # The draws lie above the estimate, since resampled baselines are noisier than estimated ones.
        centred = np.maximum(both - both.mean() + value, 0) if len(both) else both
        return GcigAudit(
            gcig=interval(float(value), of_rows),
            gcig_resampled=interval(float(value), centred),
            noise_floor=floor,
            excess=excess,
            p_value=self.null.p_value,
            evidence=judge_evidence(self.null.p_value, excess, floor),
            undefined_rows=tally.n_undefined,
            completeness=tally.residual / tally.difference if tally.difference > 0 else math.nan,
            effective_columns=_effective(tally.shares),
            standard_error=self._standard_error(),
            clipped=tally.clipped / tally.n_explained if tally.n_explained else math.nan,
            histogram_edges=tuple(tally.edges.tolist()),
            labels=self._labels(n_of_label),
            pairs=self._pairs(),
            columns=self._columns(float(value)),
        )

    def _noise_floor(self, value: float) -> Interval:
        """Mean and quantiles of GCIG under shuffled groups.

        They are known for a sample of the rows; the sample's own GCIG says how it differs from all rows.
        """
        found = self.null.shuffled[np.isfinite(self.null.shuffled)]
        if self.null.observed > 0 and not self.own_baselines:
            found = found * (value / self.null.observed)
        return interval(float(found.mean()), found) if len(found) else UNDEFINED

    def _mean(self, sums: Floats) -> Floats:
        return combine_labels(sums, self.label_weights)

    def _with_baselines(self, of_rows: Floats) -> Floats:
        """Draws of GCIG in which both the rows and the baselines are resampled."""
        n = min(len(of_rows), len(self.shift))
        both = of_rows[:n] + self.shift[:n]
        return np.asarray(both[np.isfinite(both)])

    def _labels(self, n_of_label: tuple[int, int]) -> tuple[LabelAudit, ...]:
        means = label_means(self.tally.total.sum(axis=0))
        drawn = label_means(self.draws.resample(self.tally.total))
        return tuple(
            LabelAudit(name, n, interval(float(means[y]), drawn[:, y]))
            if n >= SMALLEST_CELL
            else LabelAudit(name, None, UNDEFINED)
            for y, (name, n) in enumerate(zip(self.classes, n_of_label, strict=True))
        )

    def of_groups(self, n_rows: Floats) -> tuple[Interval, ...]:
        """GCIG over the rows of each group; nothing of a small one."""
        values = self._mean(self.tally.of_group.sum(axis=0))
        drawn = self._mean(self.draws.resample(self.tally.of_group))
        return tuple(
            interval(float(values[g]), drawn[:, g]) if n >= SMALLEST_CELL else UNDEFINED
            for g, n in enumerate(n_rows.tolist())
        )

    def _pairs(self) -> tuple[PairAudit, ...]:
        total = self.tally.total
        sums = np.moveaxis(self.tally.pairs, 1, -1)  # (blocks, groups, groups, labels)
        weight = np.broadcast_to(total[:, None, None, :, 1], sums.shape)
        stacked = np.stack([sums, weight], axis=-1)
        values, drawn = self._mean(stacked.sum(axis=0)), self._mean(self.draws.resample(stacked))
        return tuple(
            PairAudit(first, self.groups[b], interval(float(values[a, b]), drawn[:, a, b]))
            for a, first in enumerate(self.groups)
            for b in range(a + 1, len(self.groups))
        )

    def _columns(self, gcig: float) -> tuple[ColumnAudit, ...]:
        """Columns by falling contribution; the contributions add up to GCIG."""
        tally = self.tally
        sums = np.moveaxis(tally.columns, 1, -1)
        weight = np.broadcast_to(tally.total[:, None, :, 1], sums.shape)
        stacked = np.stack([sums, weight], axis=-1)
        values, drawn = self._mean(stacked.sum(axis=0)), self._mean(self.draws.resample(stacked))
        of_profile = np.stack(
            [
                np.moveaxis(tally.profile, 0, -1),
                np.broadcast_to(tally.total.sum(axis=0)[:, 1], (*tally.profile.shape[1:], 2)),
            ],
            axis=-1,
        )
        profile = self._mean(of_profile)  # (groups, columns)
        order = np.argsort(-np.nan_to_num(values), kind="stable")
        return tuple(
            ColumnAudit(
                column=self.columns[j],
                share=float(quotient(values[j], np.asarray(gcig))),
                contribution=interval(float(values[j]), drawn[:, j]),
                profile=dict(zip(self.groups, profile[:, j].tolist(), strict=True)),
                towards=self.groups[int(np.argmax(np.nan_to_num(profile[:, j])))],
                difference=float(np.ptp(profile[:, j])),
            )
            for j in order.tolist()
        )

    def _standard_error(self) -> float:
        """Of GCIG from sampling permutations, by the jackknife over independent estimates."""
        if self.tally.jackknife is None:
            return math.nan
        values = self._mean(self.tally.jackknife)
        k = len(values)
        return float(np.sqrt((k - 1) / k * np.sum((values - values.mean()) ** 2)))


def _effective(shares: Floats) -> float:
    """Exp of the entropy of the mean absolute normalised attribution."""
    if not shares.sum() > 0:
        return math.nan
    part = shares[shares > 0] / shares.sum()
    return float(np.exp(-(part * np.log(part)).sum()))
