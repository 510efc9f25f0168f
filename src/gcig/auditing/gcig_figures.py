"""GCIG and its parts as a record: from the sums over rows and from the comparison with chance."""

import math
from dataclasses import dataclass

import numpy as np

from gcig.auditing.alternatives import NullDistribution
from gcig.metrics.intervals import Draws, interval
from gcig.metrics.rates import Codes, Floats, quotient
from gcig.metrics.reasons import ReasonSums, label_means
from gcig.records.audit import MATERIAL, ColumnAudit, GcigAudit, LabelAudit, PairAudit
from gcig.records.base import UNDEFINED, Interval, Z

ALPHA = 0.05  # level of the test against shuffled groups


def judge_evidence(p_value: float, excess: Interval, floor: Interval) -> str:
    """Judge the evidence of shuffles and interval together.

    "disparity" if shuffled groups rarely reach the observed GCIG; "none" if they do, the interval rules out a
    material excess, and such an excess would stand out from the shuffles; otherwise "not enough".

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
class GcigFigures:
    """The figures of GCIG, with intervals.

    Attributes
    ----------
    sums : sums over the explained rows.
    draws : resampled blocks of rows.
    null : GCIG of a sample of the rows, observed and under shuffled groups.
    shift : (resamples,) change of the sample's GCIG if the references are estimated from resampled rows.
    sampled : GCIG of the sample with the references of ``sums``, which says how the sample differs from all
        rows. Chance, and the excess over it, are measured with references estimated from the audited rows,
        also if the model brought its own: otherwise fewer rows would look fairer.
    groups : names of the compared groups.
    classes : names of the labels.
    favourable : the label that is favourable for a person.
    min_cell : figures over fewer rows are suppressed.
    """

    sums: ReasonSums
    draws: Draws
    null: NullDistribution
    shift: Floats
    sampled: float
    groups: tuple[str, ...]
    classes: tuple[str, str]
    min_cell: int
    favourable: int = 1

    def record(self, n_of_label: Codes) -> GcigAudit:
        """Return everything except single rows and stability; ``n_of_label`` counts the published rows."""
        sums, value = self.sums, self.sums.gcig
        of_rows = sums.combine(self.draws.resample(sums.total))
        both = self._with_references(of_rows)
        floor = self._noise_floor()
        reach = Z * float(both.std(ddof=1)) if len(both) > 1 else math.nan
        above = self.null.observed * self._scale - floor.value
        excess = Interval(above, above - reach, above + reach)
        # The draws lie above the estimate, since resampled references are noisier than estimated ones.
        centred = np.maximum(both - both.mean() + value, 0) if len(both) else both
        definition = sums.comparison.definition
        return GcigAudit(
            gcig=interval(value, of_rows),
            gcig_resampled=interval(value, centred),
            noise_floor=floor,
            excess=excess,
            p_value=self.null.p_value,
            evidence=judge_evidence(self.null.p_value, excess, floor),
            undefined_rows=sums.undefined_rows,
            completeness=sums.completeness,
            effective_columns=sums.effective_columns,
            gcig_l2=sums.variant(definition.columns, "l2"),
            gcig_encoded=sums.variant("encoded", "l1"),
            gcig_raw=sums.variant("raw", "l1"),
            standard_error=sums.standard_error,
            clipped=sums.clipped / sums.n_explained if sums.n_explained else math.nan,
            compared_groups=self.groups,
            labels=self._labels(n_of_label),
            pairs=self._pairs(),
            columns=self._columns(),
        )

    def of_groups(self, n_rows: Codes) -> tuple[Interval, ...]:
        """Return GCIG over the rows of each group; suppressed groups are undefined."""
        values, drawn = self._means(self.sums.by_group)
        return tuple(
            interval(float(values[g]), drawn[:, g]) if n >= self.min_cell else UNDEFINED
            for g, n in enumerate(n_rows.tolist())
        )

    def _means(self, sums: Floats) -> tuple[Floats, Floats]:
        """Return means and their draws, from sums (blocks, ..., 2, 2)."""
        return self.sums.combine(sums.sum(axis=0)), self.sums.combine(self.draws.resample(sums))

    @property
    def _scale(self) -> float:
        """The ratio of GCIG of all rows to that of the sample, with the same references."""
        return self.sums.gcig / self.sampled if self.sampled > 0 else 1.0

    def _noise_floor(self) -> Interval:
        """Return mean and quantiles of GCIG under shuffled groups."""
        found = self.null.shuffled[np.isfinite(self.null.shuffled)] * self._scale
        return interval(float(found.mean()), found) if len(found) else UNDEFINED

    def _with_references(self, of_rows: Floats) -> Floats:
        """Return draws of GCIG in which both the rows and the references are resampled."""
        n = min(len(of_rows), len(self.shift))
        both = of_rows[:n] + self.shift[:n]
        return np.asarray(both[np.isfinite(both)])

    def _labels(self, n_of_label: Codes) -> tuple[LabelAudit, ...]:
        means = label_means(self.sums.total.sum(axis=0))
        drawn = label_means(self.draws.resample(self.sums.total))
        return tuple(
            LabelAudit(name, n, interval(float(means[y]), drawn[:, y]))
            if n >= self.min_cell
            else LabelAudit(name, None, UNDEFINED)
            for y, (name, n) in enumerate(zip(self.classes, n_of_label.tolist(), strict=True))
        )

    def _pairs(self) -> tuple[PairAudit, ...]:
        values, drawn = self._means(self.sums.by_pair)
        return tuple(
            PairAudit(first, self.groups[b], interval(float(values[a, b]), drawn[:, a, b]))
            for a, first in enumerate(self.groups)
            for b in range(a + 1, len(self.groups))
        )

    def _columns(self) -> tuple[ColumnAudit, ...]:
        """Return the columns by decreasing contribution; the contributions add up to GCIG."""
        sums = self.sums
        values, drawn = self._means(sums.by_column)
        weight = np.broadcast_to(sums.total.sum(axis=0)[:, 1], (*sums.profile.shape[1:], 2))
        profile = sums.combine(np.stack([np.moveaxis(sums.profile, 0, -1), weight], axis=-1))
        order = np.argsort(-np.nan_to_num(values), kind="stable")
        sign = 1 if self.favourable else -1
        return tuple(
            ColumnAudit(
                column=sums.comparison.columns[j],
                share=float(quotient(values[j], np.asarray(sums.gcig))),
                contribution=interval(float(values[j]), drawn[:, j]),
                profile=dict(zip(self.groups, profile[:, j].tolist(), strict=True)),
                towards=self.groups[int(np.argmax(sign * np.nan_to_num(profile[:, j])))],
                difference=float(np.ptp(profile[:, j])),
            )
            for j in order.tolist()
        )
