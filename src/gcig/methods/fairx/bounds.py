"""Confidence statements about bounds, on held-out rows."""

import math
from collections.abc import Callable

import torch
from scipy.stats import t as student_t
from torch import Tensor, nn

from gcig.core.explained import N_BLOCKS, Figure
from gcig.core.outcome import cell_rates, largest_gap
from gcig.methods.fairx.check import permuted_gaps
from gcig.methods.fairx.measure import HeldOut, measure
from gcig.records.trade_off import Bound
from gcig.training.batches import all_outputs

_DRAWS = 200
_Z = 1.2816  # the normal quantile of 90 %
# Student's quantiles of 90 % and of a 95 % interval, of the jackknife behind a reason gap.
_T90, _T95 = (float(student_t.ppf(share, N_BLOCKS - 1)) for share in (0.9, 0.975))


def check_bounds(network: nn.Module, held_out: HeldOut, bounds: dict[str, float]) -> dict[str, Bound]:
    """Compare a network with bounds on the outcome gap and the reason gap; return the results by parameter.

    The limit of the outcome gap adds the bootstrap's standard error, times a normal quantile, to the value.
    The gap is the largest of several differences and therefore too large on average, so the limit is
    cautious.
    """
    found, n = fair_limits(network, held_out, bounds), len(held_out.rows)
    for name, bound in bounds.items():
        if name == "max_gap":
            value, error = _gap_with_error(network, held_out)
            limit = value + _Z * error
        else:
            measured, reasons = measure(network, held_out)
            value, limit = measured["reason_gap"], _reason_limit(reasons.gap)
        found[name] = Bound(name, float(bound), value, limit, found[name].fair_limit, n)
    return found


def _reason_limit(gap: Figure) -> float:
    """Return the upper 90 % limit of a reason gap, whose interval is made for the square."""
    value, high = (math.copysign(each * each, each) for each in (gap.value, gap.high))
    square = value + (high - value) * _T90 / _T95
    return math.copysign(math.sqrt(abs(square)), square)


def fair_limits(network: nn.Module, held_out: HeldOut, bounds: dict[str, float]) -> dict[str, Bound]:
    """Return the bounds with the confidence limit that an exactly fair model would have on these rows."""
    limits, n = {}, len(held_out.rows)
    for name, bound in bounds.items():
        if name == "max_gap":
            gap, cells = _gap_of(network, held_out)
            null = permuted_gaps(gap, cells, held_out.rows.groups, _DRAWS, seed=0)
            limit = float(null.median() + _Z * null.std())
        else:
            _, reasons = measure(network, held_out)
            limit = reasons.gap.chance
        limits[name] = Bound(name, float(bound), 0.0, float("nan"), limit, n)
    return limits


def _gap_of(network: nn.Module, held_out: HeldOut) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """Return the outcome gap as a function of the groups, and the cells of the rows."""
    rows, task = held_out.rows, held_out.task
    decisions = task.decisions(all_outputs(network, rows.inputs))
    cells, n_cells, cell_weight = task.outcome_cells(rows.labels, held_out.outcome)

    def gap(groups: Tensor) -> Tensor:
        rates, present = cell_rates(decisions, cells, groups, n_cells, held_out.n_groups, rows.weights)
        return largest_gap(task, rates, present, cell_weight)

    return gap, cells


def _gap_with_error(network: nn.Module, held_out: HeldOut) -> tuple[float, float]:
    """Return the outcome gap of decisions and the standard deviation of its bootstrap draws."""
    rows, task = held_out.rows, held_out.task
    decisions = task.decisions(all_outputs(network, rows.inputs))
    cells, n_cells, cell_weight = task.outcome_cells(rows.labels, held_out.outcome)
    generator = torch.Generator().manual_seed(0)

    def gap(chosen: Tensor) -> float:
        weights = None if rows.weights is None else rows.weights[chosen]
        rates, present = cell_rates(
            decisions[chosen], cells[chosen], rows.groups[chosen], n_cells, held_out.n_groups, weights
        )
        return float(largest_gap(task, rates, present, cell_weight))

    n = len(rows)
    value = gap(torch.arange(n, device=rows.inputs.device))
    draws = [gap(torch.randint(n, (n,), generator=generator).to(rows.inputs.device)) for _ in range(_DRAWS)]
    return value, float(torch.tensor(draws).std())
