"""A training objective of a layered network with its parameter gradient, in one pass by hand.

The rows' forward pass is shared by the loss on their predictions and by the penalty on their explanations,
and no graph of the network is built. See `gcig.engine.secant_pass`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

from gcig.core.activations import Activation
from gcig.core.layered import LayeredNetwork
from gcig.engine.scratch import Scratch
from gcig.engine.secant_pass import Gradient, Layers, SecantPass, SecantRule

__all__ = ["Objective", "Pulled", "objective_gradient", "prediction_gradient", "secant_objective"]

Outer = Callable[[Tensor], Tensor]
Pulled = Callable[[Tensor], tuple[Tensor, Tensor]]
"""A term of the logits (rows,), or of the attributions (groups, n, columns): its value and its gradient."""


class Objective(NamedTuple):
    """A value that carries the gradient of all parameters, and its parts, which are detached.

    `total` is `outer` plus `penalty`, plus `inner`, a term of the attributions, where there is one.
    `disparity` has the shape (n,), `norms` (groups, n), where n is the number of explained rows.
    """

    total: Tensor
    outer: Tensor
    penalty: Tensor
    disparity: Tensor
    norms: Tensor
    inner: Tensor | None = None


@torch.no_grad()
def prediction_gradient(layers: Layers, inputs: Tensor, outer: Pulled) -> tuple[Tensor, Gradient]:
    """A loss on the predictions and its parameter gradient: a plain training step, without a graph."""
    values, nodes = [inputs], []
    for weight, bias, activation in zip(layers.weights, layers.biases, layers.activations, strict=False):
        nodes.append(linear(values[-1], weight, bias))
        values.append(activation.value(nodes[-1]))
    top, bias = layers.weights[-1], layers.biases[-1]
    logits = torch.mv(values[-1], top[0])
    loss, d_logits = outer(logits if bias is None else logits.add_(bias))
    d_weights = [torch.mv(values[-1].T, d_logits).unsqueeze(0)]
    d_biases = [d_logits.sum().unsqueeze(0)]
    d_values = torch.outer(d_logits, top[0])
    for index in range(len(nodes) - 1, -1, -1):
        d_nodes = layers.activations[index].pull(d_values, nodes[index], values[index + 1])
        d_weights.insert(0, torch.mm(d_nodes.T, values[index]))
        d_biases.insert(0, d_nodes.sum(0))
        if index:
            d_values = torch.mm(d_nodes, layers.weights[index])
    return loss, Gradient(d_weights, d_biases)


@torch.no_grad()
def objective_gradient(
    work: SecantPass, weights: Tensor, outer: Pulled, inner: Pulled | None = None
) -> tuple[Objective, Gradient]:
    """What `secant_objective` computes, with the gradient beside it instead of in a graph.

    Parameters
    ----------
    work : SecantPass
        With its rows, labels and baselines.
    weights : Tensor of shape (n_explained,)
        What each row's disparity counts.
    outer, inner : callable
        Terms of the logits, and of the attributions.
    """
    work.propagate()
    loss, d_logits = outer(work.logits())
    comparison = work.compare()
    term, d_attributions = (None, None) if inner is None else inner(work.attributions)
    gradient = work.pull(comparison, weights, d_logits, d_attributions)
    penalty = torch.dot(comparison.disparity, weights)
    total = loss + penalty
    return Objective(total if term is None else total + term, loss, penalty, *comparison, term), gradient


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
    `gcig.engine.penalty.secant_penalty`, which goes chunk by chunk, beside an ordinary forward pass.

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
        All rows unless given. With 0, this is an ordinary training step.
    scratch : Scratch, optional
        Kept by a caller who calls often.
    """
    count = len(inputs) if n_explained is None else n_explained
    if not len(labels) == len(weights) == count <= len(inputs):
        raise ValueError(
            f"labels ({len(labels)}) and weights ({len(weights)}) must cover the explained rows "
            f"({count} of {len(inputs)})"
        )
    batch = _Batch(inputs, labels, baselines, weights)
    return Objective(
        *_SecantObjective.apply(
            batch, rule, outer, network.activations, scratch or Scratch(), *network.weights, *network.biases
        )
    )


class _Batch(NamedTuple):
    inputs: Tensor
    labels: Tensor
    baselines: Tensor
    weights: Tensor


class _SecantObjective(torch.autograd.Function):
    """Value and gradient together; `parameters` are all weights, then all biases (or None)."""

    @staticmethod
    def forward(
        ctx: Any,
        batch: _Batch,
        rule: SecantRule,
        outer: Outer,
        activations: Sequence[Activation],
        scratch: Scratch,
        *parameters: Any,
    ) -> tuple[Tensor, ...]:
        layers = Layers.split(parameters, activations)
        pulled = _Differentiated(outer)
        n_explained = len(batch.labels)
        with torch.autocast(batch.inputs.device.type, enabled=False):
            if n_explained:
                n_plain = len(batch.inputs) - n_explained
                work = SecantPass(layers, n_explained, n_plain, batch.baselines, rule, scratch)
                work.inputs.copy_(batch.inputs)
                work.load(batch.labels, batch.baselines)
                found, ctx.gradient = objective_gradient(work, batch.weights, pulled)
            else:
                loss, ctx.gradient = prediction_gradient(layers, batch.inputs, pulled)
                none = loss.new_zeros(batch.baselines.shape[1], 0)
                found = Objective(loss.clone(), loss, loss.new_zeros(()), none[0], none)
        ctx.mark_non_differentiable(*found[1:-1])
        return found[:-1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_total: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        return *[None] * 5, *ctx.gradient.scaled(d_total, ctx.needs_input_grad[5:])


class _Differentiated:
    """A function of the logits with its gradient, from autograd."""

    def __init__(self, outer: Outer) -> None:
        self.outer = outer

    def __call__(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            leaf = logits.detach().requires_grad_()
            value = self.outer(leaf)
            (d_logits,) = torch.autograd.grad(value, leaf)
        return value.detach(), d_logits
