"""The GCIG penalty of a layered network and its parameter gradient, in chunks; equals `GCIGPenalty.readable`.

The gradient is computed together with the value, on a CPU while a chunk is still in the cache. Memory does
not grow with the batch, and the backward pass only multiplies by a number.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gcig.core.layered import Activation, LayeredNetwork
from gcig.core.memory import memory_budget
from gcig.engine.scratch import Scratch
from gcig.engine.secant_pass import Gradient, Layers, SecantPass, SecantRule

_CACHED_BYTES = 1 << 23  # on a CPU a chunk stays in the cache


def secant_penalty(
    network: LayeredNetwork,
    inputs: Tensor,
    labels: Tensor,
    baselines: Tensor,
    weights: Tensor,
    rule: SecantRule,
    *,
    scratch: Scratch | None = None,
    max_bytes: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the weighted sum of the rows' disparities, differentiable with respect to the parameters.

    Parameters
    ----------
    network : LayeredNetwork
        Has one hidden layer or more.
    inputs : Tensor of shape (n, columns)
        Rows; not differentiated.
    labels : Tensor of shape (n,)
        The labels whose baselines the rows are compared with.
    baselines : Tensor of shape (labels, groups, columns)
        Not differentiated.
    weights : Tensor of shape (n,)
        The weight of each row's disparity.
    scratch : Scratch, optional
        Arrays kept between calls.
    max_bytes : int, optional
        Rows are processed in chunks of about this much memory at most; on a CPU they are smaller, to stay in
        the cache, and on a GPU the default is given by `gcig.core.memory.memory_budget`.

    Returns
    -------
    penalty : Tensor of shape ()
    disparity : Tensor of shape (n,)
        Root mean square distance over pairs of groups of the normalised attributions; detached.
    norms : Tensor of shape (groups, n)
        The norms of the attributions; detached.
    """
    scratch = scratch or Scratch()
    row_bytes = _bytes_per_row(network, baselines, rule)
    budget, needed = min(_CACHED_BYTES, max_bytes or _CACHED_BYTES), len(inputs) * row_bytes
    if inputs.is_cuda:
        # Arrays that are kept need no free memory, and querying the device takes time.
        budget = scratch.n_bytes if max_bytes is None else max_bytes
        budget = budget if needed <= budget else memory_budget(inputs.device, needed, max_bytes)
    n_rows = max(16, budget // row_bytes)
    batch = _Batch(inputs, labels, baselines, weights)
    result: tuple[Tensor, Tensor, Tensor] = _SecantPenalty.apply(
        batch, rule, network.activations, scratch, n_rows, *network.weights, *network.biases
    )
    return result


def _bytes_per_row(network: LayeredNetwork, baselines: Tensor, rule: SecantRule) -> int:
    units = sum(weight.shape[0] for weight in network.weights[:-1])
    groups, columns = baselines.shape[1:]
    # Scratch per row: about four arrays over the columns, and twelve over segments and units.
    return baselines.element_size() * groups * (4 * columns + 12 * rule.n_segments * units)


class _Batch(NamedTuple):
    inputs: Tensor
    labels: Tensor
    baselines: Tensor
    weights: Tensor


class _SecantPenalty(torch.autograd.Function):
    """Value and gradient together; `parameters` are all weights, then all biases (or None)."""

    @staticmethod
    def forward(
        ctx: Any,
        batch: _Batch,
        rule: SecantRule,
        activations: Sequence[Activation],
        scratch: Scratch,
        n_rows: int,
        *parameters: Any,
    ) -> tuple[Tensor, Tensor, Tensor]:
        layers = Layers.split(parameters, activations)
        gradient: Gradient | None = None
        disparities, norms = [], []
        with torch.autocast(batch.inputs.device.type, enabled=False):
            for rows in _even_slices(len(batch.inputs), n_rows):
                chunk = SecantPass(layers, rows.stop - rows.start, 0, batch.baselines, rule, scratch)
                chunk.inputs.copy_(batch.inputs[rows])
                chunk.load(batch.labels[rows], batch.baselines)
                chunk.propagate()
                comparison = chunk.compare()
                if any(ctx.needs_input_grad):
                    added = chunk.pull(comparison, batch.weights[rows])
                    gradient = added if gradient is None else gradient.add_(added)
                disparities.append(comparison.disparity)
                norms.append(comparison.norms)
            disparity = disparities[0] if len(disparities) == 1 else torch.cat(disparities)
            norm = norms[0] if len(norms) == 1 else torch.cat(norms, dim=1)
            penalty = torch.dot(disparity, batch.weights)
        ctx.gradient = gradient
        ctx.mark_non_differentiable(disparity, norm)
        return penalty, disparity, norm

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_penalty: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        return *[None] * 5, *ctx.gradient.scaled(d_penalty, ctx.needs_input_grad[5:])


def _even_slices(n: int, largest: int) -> list[slice]:
    """Cover range(n) by the fewest slices of nearly equal length that `largest` allows."""
    count = -(-n // largest)
    bounds = [n * index // count for index in range(count + 1)]
    return [slice(start, stop) for start, stop in pairwise(bounds)]
