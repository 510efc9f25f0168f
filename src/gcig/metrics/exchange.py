"""What changes if only the protected columns of a person become those of another group."""

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from gcig._arrays import Floats, Rows
from gcig.core.columns import protected_attributes
from gcig.core.explained import REACH
from gcig.metrics.measure import Estimate, measure
from gcig.metrics.samples import N_PARTS, Sample
from gcig.metrics.trust import exchange_attributes
from gcig.records.base import Interval

if TYPE_CHECKING:
    from gcig.metrics.result import Measured

_ROWS = 2048
_exchange = partial(
    measure,
    "model",
    section="trust",
    better="lower",
    undefined="Not measured: the group is not among the inputs.",
)


def _exchanged(measured: "Measured") -> tuple[Sample, list[Rows]]:
    """Return some rows, and versions with each protected attribute exchanged, and with all of them."""
    rows = measured.described
    few = rows[np.argsort(rows.keys, kind="stable")[:_ROWS]]
    assert few.inputs is not None
    inputs, groups = torch.tensor(few.inputs), torch.from_numpy(few.groups.astype(np.int64))
    blocks = torch.from_numpy(np.asarray(measured.plan.columns.input_blocks))
    attributes = protected_attributes(inputs, groups, blocks) if len(few) else []
    versions = exchange_attributes(inputs, groups, inputs, groups, attributes) if attributes else []
    return few, [each.numpy() for each in versions]


@_exchange(name="attribute_effect")
def effect_of_attribute(measured: "Measured") -> Estimate:
    """Attribute effect: Share of decisions that change if only the protected attribute changes (any one or
    all of several); of numbers the change in standard deviations. Bad news if it is not close to 0.
    """
    plan, (few, versions) = measured.plan, _exchanged(measured)
    if not versions or not plan.decides_by_score:
        return Estimate()
    before = plan.decide(np.asarray(few.inputs))
    number, scale = plan.task.key == "number", getattr(plan.task, "scale", 1.0)
    after = [plan.decide(each) for each in versions]
    changed = [np.abs(each - before) / scale if number else each != before for each in after]
    value = float(np.average(np.max(changed, axis=0), weights=few.weights))
    if number:
        return Estimate(value)
    limits = Interval.of_rate(min(1.0, value), len(few))
    return Estimate(limits.value, limits.low, limits.high)


@_exchange()
def attribute_shift(measured: "Measured") -> Estimate:
    """Attribute shift: How far a score moves, root mean square, if only the protected attribute changes (the
    attribute that moves it most, or all of several), in units of the spread of the score.
    """
    plan, (few, versions) = measured.plan, _exchanged(measured)
    if not versions or len(few) < 2 * N_PARTS or not measured.spread > 0 or measured.constant:
        return Estimate()

    def scores(encoded: Rows) -> Floats:
        outputs = np.asarray(plan.adapted.outputs(encoded), dtype=np.float64).reshape(len(few), -1)
        return plan.scores(outputs, few.labels)

    before = scores(np.asarray(few.inputs))
    squares = [((scores(each) - before) / measured.spread) ** 2 for each in versions]
    worst = max(squares, key=lambda each: float(np.average(each, weights=few.weights)))
    part = np.arange(len(few)) % N_PARTS
    replicates = np.array([_mean(worst, few.weights, part != place) for place in range(N_PARTS)])
    square = _mean(worst, few.weights, part >= 0)
    error = ((N_PARTS - 1) / N_PARTS * ((replicates - replicates.mean()) ** 2).sum()) ** 0.5
    low, high = max(0.0, square - REACH * error), square + REACH * error
    return Estimate(square**0.5, low**0.5, high**0.5)


def _mean(values: Floats, weights: Floats, rows: NDArray[np.bool_]) -> float:
    return float(np.average(values[rows], weights=weights[rows]))
