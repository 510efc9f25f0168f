"""Utility and outcome, over all rows and per group, with intervals.

Rates have Wilson's interval. Differences, ratios and utility have percentile intervals over resampled
tables: within each group the rows are drawn again, which for counts is a multinomial draw.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from gcig.auditing.block_bootstrap import interval
from gcig.auditing.outcome_tally import OutcomeTally
from gcig.metrics.confusion import Confusion, Floats, quotient
from gcig.metrics.rates import noise_floor
from gcig.metrics.utility import has_collapsed
from gcig.records.audit import SMALLEST_CELL, GroupAudit, Interval, OutcomeAudit

__all__ = ["audit_groups", "audit_outcome", "wilson"]

_Z = 1.959964


def wilson(rate: float, n: float) -> Interval:
    """A rate over n rows with Wilson's score interval, which does not collapse at 0 and 1.

    >>> wilson(0.0, 20).high > 0.1
    True
    """
    if math.isnan(rate) or n <= 0:
        return Interval(math.nan)
    scale = 1 + _Z**2 / n
    centre = (rate + _Z**2 / (2 * n)) / scale
    reach = _Z / scale * math.sqrt(rate * (1 - rate) / n + _Z**2 / (4 * n**2))
    # Rounding must not put the estimate outside.
    return Interval(rate, max(0.0, min(rate, centre - reach)), min(1.0, max(rate, centre + reach)))


def audit_outcome(tally: OutcomeTally, n_draws: int, rng: np.random.Generator) -> OutcomeAudit:
    """Utility over all rows; differences over the groups that are large enough for each rate."""
    draws = _resample(tally, n_draws, rng)
    large = [tally.n_rows[:, label] >= SMALLEST_CELL for label in range(2)]
    whole = tally.n_rows.sum(axis=1) >= SMALLEST_CELL

    def measured(statistic: Callable[[Floats], Floats]) -> Interval:
        return interval(float(statistic(tally.cells)), statistic(draws))

    def delta(label: int) -> Callable[[Floats], Floats]:
        return lambda cells: _spread(_rates(cells, label), large[label])

    auc = tally.scores.ranking().auc
    return OutcomeAudit(
        accuracy=measured(lambda cells: _accuracy(cells.sum(axis=-3))),
        balanced_accuracy=measured(lambda cells: _balanced_accuracy(cells.sum(axis=-3))),
        f1=measured(lambda cells: _f1(cells.sum(axis=-3))),
        auc=auc,
        eo_gap=measured(lambda cells: delta(1)(cells) + delta(0)(cells)),
        eo_worst=measured(lambda cells: np.maximum(delta(1)(cells), delta(0)(cells))),
        eo_noise_floor=_noise_floor(tally.confusion, large[0] & large[1]),
        delta_tpr=measured(delta(1)),
        delta_fpr=measured(delta(0)),
        demographic_parity_difference=measured(lambda cells: _spread(_selection(cells), whole)),
        selection_rate_ratio=_widened(measured(lambda cells: _ratio(_selection(cells), whole)), tally, whole),
        collapsed=has_collapsed(tally.cells.sum(axis=0), auc.value),
    )


def _widened(ratio: Interval, tally: OutcomeTally, kept: NDArray[np.bool_]) -> Interval:
    """The ratio of selection rates, with room for a rate of 0: rows drawn again never show another."""
    if ratio.value != 0 or math.isnan(ratio.high):
        return ratio
    rates = _selection(tally.cells)
    none = np.flatnonzero(kept & (rates == 0))
    highest = max(wilson(0.0, float(tally.effective[g])).high for g in none)
    return Interval(0.0, 0.0, min(1.0, max(ratio.high, highest / float(rates[kept].max()))))


def audit_groups(
    tally: OutcomeTally, names: tuple[str, ...], gcig: tuple[Interval, ...]
) -> tuple[GroupAudit, ...]:
    """The rates of every group; nothing of a group, or of a cell, under ``SMALLEST_CELL`` rows."""
    return tuple(_group(tally, g, name, gcig[g]) for g, name in enumerate(names))


def _group(tally: OutcomeTally, g: int, name: str, gcig: Interval) -> GroupAudit:
    undefined = Interval(math.nan)
    n = int(tally.n_rows[g].sum())
    if n < SMALLEST_CELL:
        return GroupAudit(
            name, None, undefined, undefined, undefined, undefined, undefined, undefined, undefined, undefined
        )
    confusion = tally.confusion
    effective = float(tally.effective[g])

    def rate(values: Floats, rows: float, size: float) -> Interval:
        return wilson(float(values[g]), size) if rows >= SMALLEST_CELL else undefined

    both = bool((tally.n_rows[g] >= SMALLEST_CELL).all())
    ranking = tally.scores.ranking(g)
    decided = float(tally.n_positive[g].sum())
    return GroupAudit(
        group=name,
        n_rows=n,
        base_rate=rate(confusion.base_rate, n, effective),
        selection_rate=rate(confusion.selection_rate, n, effective),
        tpr=rate(confusion.tpr, int(tally.n_rows[g, 1]), float(confusion.sizes[1, g])),
        fpr=rate(confusion.fpr, int(tally.n_rows[g, 0]), float(confusion.sizes[0, g])),
        ppv=rate(confusion.ppv, decided, decided * effective / n),
        calibration=_calibration(tally, g, effective),
        auc=ranking.auc if both else undefined,
        gcig=gcig,
        roc=ranking.roc if both else (),
    )


def _calibration(tally: OutcomeTally, g: int, effective: float) -> Interval:
    """Mean score less the base rate, with the interval of a mean."""
    if not tally.probabilistic:
        return Interval(math.nan)
    weight = tally.weights[g].sum()
    mean, square = (float(each / weight) for each in tally.errors[g])
    reach = _Z * math.sqrt(max(square - mean**2, 0.0) / max(effective - 1, 1))
    return Interval(mean, mean - reach, mean + reach)


def _resample(tally: OutcomeTally, n_draws: int, rng: np.random.Generator) -> Floats:
    """(draws, groups, 2, 2) tables; each group keeps its weight, and its rows are drawn again."""
    out = np.zeros((n_draws, *tally.cells.shape))
    for g, cells in enumerate(tally.cells):
        total = cells.sum()
        size = round(float(tally.effective[g]))
        if size:
            drawn = rng.multinomial(size, cells.ravel() / total, size=n_draws)
            out[:, g] = drawn.reshape(-1, 2, 2) * (total / size)
    return out


# Statistics of tables (..., groups, 2, 2), or of their sums over groups (..., 2, 2).


def _accuracy(table: Floats) -> Floats:
    return quotient(table[..., 0, 0] + table[..., 1, 1], table.sum(axis=(-2, -1)))


def _balanced_accuracy(table: Floats) -> Floats:
    right = [quotient(table[..., label, label], table[..., label, :].sum(axis=-1)) for label in range(2)]
    return np.asarray((right[0] + right[1]) / 2)


def _f1(table: Floats) -> Floats:
    twice = 2 * table[..., 1, 1]
    return quotient(twice, twice + table[..., 0, 1] + table[..., 1, 0])


def _rates(cells: Floats, label: int) -> Floats:
    return quotient(cells[..., label, 1], cells[..., label, :].sum(axis=-1))


def _selection(cells: Floats) -> Floats:
    return quotient(cells[..., 1].sum(axis=-1), cells.sum(axis=(-2, -1)))


def _spread(rates: Floats, kept: NDArray[np.bool_]) -> Floats:
    if kept.sum() < 2:
        return np.full(rates.shape[:-1], np.nan)
    return np.asarray(np.ptp(rates[..., kept], axis=-1))


def _ratio(rates: Floats, kept: NDArray[np.bool_]) -> Floats:
    if kept.sum() < 2:
        return np.full(rates.shape[:-1], np.nan)
    return quotient(rates[..., kept].min(axis=-1), rates[..., kept].max(axis=-1))


def _noise_floor(confusion: Confusion, kept: NDArray[np.bool_]) -> float:
    if kept.sum() < 2:
        return math.nan
    return noise_floor(
        Confusion(confusion.cells[kept], confusion.sizes[:, kept], confusion.n_rows[kept]), "sum"
    )
