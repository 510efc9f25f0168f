"""Confidence statements about bounds, on held-out rows."""

import math

import torch
from scipy.stats import t as student_t
from torch import Tensor, nn

from gcig.core.explained import N_BLOCKS, Figure
from gcig.core.outcome import outcome_gap
from gcig.methods.fairx.check import permuted_gaps
from gcig.methods.fairx.measure import Setting, measure
from gcig.records.trade_off import Bound
from gcig.training.batches import all_outputs

_DRAWS = 200  # of the bootstrap and of permuted groups: a standard error is known to 5 %
_Z90 = 1.2816  # the normal quantile of 90 %
# Student's quantiles of 90 % and of a 95 % interval, of the jackknife behind a reason gap.
_T90, _T95 = (float(student_t.ppf(share, N_BLOCKS - 1)) for share in (0.9, 0.975))


def check_bounds(network: nn.Module, setting: Setting, bounds: dict[str, float]) -> dict[str, Bound]:
    """Compare a network with bounds on the outcome gap and the reason gap; return the results by parameter.

    The limit of the outcome gap adds the bootstrap's standard error, times a normal quantile, to the value.
    The gap is the largest of several differences and therefore too large on average, so the limit is
    cautious. ``fair_limit`` is the limit that an exactly fair model would have on these rows.
    """
    return {name: _check_bound(name, network, setting, float(bound)) for name, bound in bounds.items()}


def _check_bound(name: str, network: nn.Module, setting: Setting, bound: float) -> Bound:
    data, rows = setting.data, setting.data.held_out
    if name == "max_reason_gap":
        gap = measure(network, setting)[1].gap
        return Bound(name, bound, gap.value, _reason_limit(gap), gap.chance, len(rows))
    decisions = data.task.decisions(all_outputs(network, rows.inputs))

    def of(sample: Tensor) -> Tensor:
        part, outcome = rows[sample], setting.model.outcome
        return outcome_gap(
            data.task, decisions[sample], part.labels, part.groups, data.n_groups, outcome, part.weights
        )

    fair = permuted_gaps(data.task, decisions, rows, data.n_groups, setting.model.outcome, _DRAWS, seed=0)
    generator, n = torch.Generator().manual_seed(0), len(rows)
    value = float(of(torch.arange(n, device=rows.inputs.device)))
    draws = [
        float(of(torch.randint(n, (n,), generator=generator).to(rows.inputs.device))) for _ in range(_DRAWS)
    ]
    limit = value + _Z90 * float(torch.tensor(draws).std())
    return Bound(name, bound, value, limit, float(fair.median() + _Z90 * fair.std()), n)


def _reason_limit(gap: Figure) -> float:
    """Return the upper 90 % limit of a reason gap, whose interval is made for the square."""
    value, high = (math.copysign(each * each, each) for each in (gap.value, gap.high))
    square = value + (high - value) * _T90 / _T95
    return math.copysign(math.sqrt(abs(square)), square)
