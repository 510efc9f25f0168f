"""How far scores move if only the protected columns of a person become those of another group."""

from typing import TYPE_CHECKING

import numpy as np
import torch

from gcig.core.columns import protected_attributes
from gcig.core.explained import REACH
from gcig.metrics.measure import Estimate, measure
from gcig.metrics.samples import N_PARTS
from gcig.metrics.trust import exchange_attributes

if TYPE_CHECKING:
    from gcig.metrics.result import Measured

_ROWS = 2048


@measure(
    "model",
    section="trust",
    better="lower",
    low=0.0,
    undefined="Not measured: the group is not among the inputs.",
)
def attribute_shift(measured: "Measured") -> Estimate:
    """Attribute shift: How far a score moves, root mean square, if only the protected attribute changes (the
    attribute that moves it most, or all of several), in units of the spread of the score.
    """
    plan, rows = measured.plan, measured.described
    few = rows[np.argsort(rows.keys, kind="stable")[:_ROWS]]
    assert few.inputs is not None
    if len(few) < 2 * N_PARTS or not measured.spread > 0 or measured.constant:
        return Estimate()
    inputs, groups = torch.tensor(few.inputs), torch.from_numpy(few.groups.astype(np.int64))
    blocks = torch.from_numpy(np.asarray(plan.columns.input_blocks))
    attributes = protected_attributes(inputs, groups, blocks)
    if not attributes:
        return Estimate()

    def scores(encoded: np.ndarray) -> np.ndarray:
        outputs = np.asarray(plan.adapted.outputs(encoded), dtype=np.float64).reshape(len(few), -1)
        return plan.scores(outputs, few.labels)

    before = scores(few.inputs)
    versions = exchange_attributes(inputs, groups, inputs, groups, attributes)
    squares = [((scores(each.numpy()) - before) / measured.spread) ** 2 for each in versions]
    worst = max(squares, key=lambda each: np.average(each, weights=few.weights))
    part = np.arange(len(few)) % N_PARTS
    replicates = np.array([_mean(worst, few.weights, part != place) for place in range(N_PARTS)])
    square = _mean(worst, few.weights, part >= 0)
    error = ((N_PARTS - 1) / N_PARTS * ((replicates - replicates.mean()) ** 2).sum()) ** 0.5
    low, high = max(0.0, square - REACH * error), square + REACH * error
    return Estimate(square**0.5, low**0.5, high**0.5)


def _mean(values: np.ndarray, weights: np.ndarray, rows: np.ndarray) -> float:
    return float(np.average(values[rows], weights=weights[rows]))
