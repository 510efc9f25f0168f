"""A training objective of a layered network with its parameter gradient, in one pass by hand.

The rows' forward pass is shared by the loss on their predictions and by the penalty on their explanations,
and no graph of the network is built. See `gcig.core.secant_pass`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gcig.core.activations import Activation
from gcig.core.layered import LayeredNetwork
from gcig.core.scratch import Scratch
from gcig.core.secant_pass import Gradient, Layers, SecantPass, SecantRule

__all__ = ["Objective", "secant_objective"]

Outer = Callable[[Tensor], Tensor]


class Objective(NamedTuple):
    """A value that carries the gradient of all parameters, and its parts, which are detached.

    `total` is `outer` plus `penalty`. `disparity` has the shape (n,), `norms` (groups, n), where n is the
    number of explained rows.
    """

    total: Tensor
    outer: Tensor
    penalty: Tensor
    disparity: Tensor
    norms: Tensor


def secant_objective(
    network: LayeredNetwork,
    inputs: Tensor,
    labels: Tensor,
    baselines: Tensor,
    weights: Tensor,
    rule: SecantRule,
    outer: Outer,
    *,
    n_explained: int | None = None,
    scratch: Scratch | None = None,
) -> Objective:
    """A loss on all rows' predictions plus the weighted sum of the first rows' disparities.

    All rows are worked off at once: for large numbers of rows use
    `gcig.core.fused.secant_penalty`, which goes chunk by chunk, beside an ordinary forward pass.

    Parameters
    ----------
    network : LayeredNetwork
        With one hidden layer or more. Dropout is not applied to the predictions.
    inputs : Tensor of shape (rows, columns)
        Those to explain first; not differentiated.
    labels : Tensor of shape (n_explained,)
        Which baselines a row is compared with.
    baselines : Tensor of shape (labels, groups, columns)
        Not differentiated.
    weights : Tensor of shape (n_explained,)
        What each row's disparity counts.
    outer : callable
        Maps logits of shape (rows,) to a scalar, differentiably. Only the logits are differentiated: what
        else it depends on gets no gradient.
    n_explained : int, optional
        All rows unless given. With 0, this is an ordinary training step; autograd's is faster on CPU.
    scratch : Scratch, optional
        Kept by a caller who calls often.
    """
    count = len(inputs) if n_explained is None else n_explained
    if not len(labels) == len(weights) == count <= len(inputs):
        raise ValueError(
            f"labels ({len(labels)}) and weights ({len(weights)}) must cover the explained rows "
            f"({count} of {len(inputs)})"
        )
    batch = _Batch(inputs, labels, baselines, weights, outer)
    return Objective(
        *_SecantObjective.apply(
            batch, rule, network.activations, scratch or Scratch(), *network.weights, *network.biases
        )
    )


class _Batch(NamedTuple):
    inputs: Tensor
    labels: Tensor
    baselines: Tensor
    weights: Tensor
    outer: Outer


class _SecantObjective(torch.autograd.Function):
    """Value and gradient together; `parameters` are all weights, then all biases (or None)."""

    @staticmethod
    def forward(
        ctx: Any,
        batch: _Batch,
        rule: SecantRule,
        activations: Sequence[Activation],
        scratch: Scratch,
        *parameters: Any,
    ) -> tuple[Tensor, ...]:
        layers = Layers.split(parameters, activations)
        wanted = any(ctx.needs_input_grad)
        with torch.autocast(batch.inputs.device.type, enabled=False):
            if len(batch.labels):
                ctx.gradient, parts = _explain(layers, batch, rule, scratch, wanted)
            else:
                ctx.gradient, parts = _predict(layers, batch, wanted)
            total = parts[0] + parts[1]
        ctx.mark_non_differentiable(*parts)
        return total, *parts

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_total: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        return *[None] * 4, *ctx.gradient.scaled(d_total, ctx.needs_input_grad[4:])


_Parts = tuple[Tensor, Tensor, Tensor, Tensor]


def _explain(
    layers: Layers, batch: _Batch, rule: SecantRule, scratch: Scratch, wanted: bool
) -> tuple[Gradient | None, _Parts]:
    """Gradient and parts of the objective where rows are explained."""
    work = SecantPass(layers, batch.inputs, batch.labels, batch.baselines, rule, scratch)
    work.propagate()
    loss, d_logits = _differentiate(batch.outer, work.logits(), wanted)
    comparison = work.compare()
    gradient = work.pull(comparison, batch.weights, d_logits) if wanted else None
    penalty = torch.dot(comparison.disparity, batch.weights)
    return gradient, (loss, penalty, comparison.disparity, comparison.norms)


def _predict(layers: Layers, batch: _Batch, wanted: bool) -> tuple[Gradient | None, _Parts]:
    """Gradient and parts of the objective where no row is explained."""
    values, slopes = [batch.inputs], []
    for weight, bias, activation in zip(layers.weights, layers.biases, layers.activations, strict=False):
        value, slope, _ = activation.derivatives(torch.nn.functional.linear(values[-1], weight, bias))
        values.append(value)
        slopes.append(slope)
    logits = torch.nn.functional.linear(values[-1], layers.weights[-1], layers.biases[-1]).squeeze(1)
    loss, d_logits = _differentiate(batch.outer, logits, wanted)
    parts = loss, loss.new_zeros(()), loss.new_zeros(0), loss.new_zeros(batch.baselines.shape[1], 0)
    if d_logits is None:
        return None, parts
    d_outputs = d_logits.unsqueeze(1)
    d_weights: list[Tensor] = []
    d_biases: list[Tensor] = []
    for index in range(len(layers.weights) - 1, -1, -1):
        d_weights.insert(0, torch.mm(d_outputs.T, values[index]))
        d_biases.insert(0, d_outputs.sum(0))
        if index:
            d_outputs = torch.mm(d_outputs, layers.weights[index]).mul_(slopes[index - 1])
    return Gradient(d_weights, d_biases), parts


def _differentiate(outer: Outer, logits: Tensor, wanted: bool) -> tuple[Tensor, Tensor | None]:
    """The value of a function of the logits and, where wanted, its gradient."""
    if not wanted:
        return outer(logits).detach(), None
    with torch.enable_grad():
        leaf = logits.detach().requires_grad_()
        value = outer(leaf)
        (d_logits,) = torch.autograd.grad(value, leaf)
    return value.detach(), d_logits
