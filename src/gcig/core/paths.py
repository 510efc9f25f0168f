"""Integrated gradients of some rows under all groups at once: three ways of computing the same integral.

Each function takes inputs (n, ...) and references (groups, n, ...), and returns attributions of the shape of
the references or, with `slopes`, the average gradients of which the attributions are a multiple. The general
path is differentiable with respect to the parameters if `create_graph` is set; the two paths for layered
networks consist of ordinary operations.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, one_hot

from gcig.core.layered import Activation, LayeredNetwork
from gcig.core.modules import Score, differentiating, logits
from gcig.core.numerics import average_slope, sharpness
from gcig.core.quadrature import Quadrature


def general_attributions(
    module: nn.Module,
    inputs: Tensor,
    references: Tensor,
    rule: Quadrature,
    *,
    create_graph: bool = False,
    score: Score | None = None,
    slopes: bool = False,
) -> Tensor:
    """Compute attributions for any module, in evaluation mode: gradients at all path nodes in one batch."""
    with differentiating(module, score, twice=create_graph):
        nodes, weights = rule.to(inputs)
        deltas = inputs.detach() - references.detach()
        shape = (len(nodes), *[1] * references.dim())
        points = torch.lerp(references, inputs, nodes.view(shape)).detach().requires_grad_()
        outputs = logits(module, points.flatten(0, 2), score)
        gradients = None
        if outputs.requires_grad:
            total = outputs.sum()
            (gradients,) = torch.autograd.grad(total, points, create_graph=create_graph, allow_unused=True)
        if gradients is None:
            raise ValueError(
                "the module's output does not depend differentiably on its inputs, so it has no gradients "
                "to explain it with"
            )
        with torch.autocast(inputs.device.type, enabled=False):
            average: Tensor = torch.tensordot(weights, gradients.to(weights.dtype), dims=1)
            return average if slopes else deltas * average


def node_attributions(
    network: LayeredNetwork, inputs: Tensor, references: Tensor, rule: Quadrature, *, slopes: bool = False
) -> Tensor:
    """Compute attributions of a layered network at the same nodes.

    The first layer is linear along the path, so it multiplies only the ends of the paths.
    """
    references = unexpanded(references)
    nodes, weights = rule.to(inputs)
    first, bias = network.weights[0], network.biases[0]
    start, stop = linear(references, first, bias), linear(inputs, first, bias)
    of_layers = []
    values = torch.lerp(start, stop, nodes.view(-1, 1, 1, 1))
    for index, activation in enumerate(network.activations):
        if index:
            values = linear(values, network.weights[index], network.biases[index])
        values, slope, _ = activation.derivatives(values)
        of_layers.append(slope)
    down = _multiply_down(network, of_layers)
    average: Tensor = torch.tensordot(weights, down, dims=1) @ first
    return average if slopes else (inputs - references) * average


def secant_attributions(
    network: LayeredNetwork,
    inputs: Tensor,
    references: Tensor,
    n_segments: int,
    *,
    extrapolate: bool = False,
    slopes: bool = False,
) -> Tensor:
    r"""Compute attributions of a layered network from slopes between path nodes.

    Cut the straight path from a reference b to a row x into K segments. Over one segment, with
    :math:`z_l` the pre-activations of layer l, the change of the network's output is *exactly*

    .. math:: \Delta f = w^\top S_L W_L \cdots S_1 W_1 \, \Delta x, \qquad
              S_l = \operatorname{diag} \frac{\Delta s(z_l)}{\Delta z_l},

    and :math:`W_1^\top S_1 \cdots W_L^\top S_L w`, averaged over the segments, gives attributions that
    are complete at any K. They converge to integrated gradients as K grows; with one hidden layer they *are*
    integrated gradients at K = 1. Unlike slopes at fixed nodes, secants see a kink of s that moves with the
    parameters, so the parameter gradient is correct for ReLU as well.

    The error for smooth activations is a series in :math:`1/K^2`. With `extrapolate`, results for 1, 2, 4,
    ..., `n_segments` segments (a power of two) are combined as in Romberg's method, which cancels the first
    terms of the series. The nodes are shared, and completeness is kept.
    """
    references = unexpanded(references)
    slope = _average_slope(network, inputs, references, _identity, n_segments, extrapolate)
    return slope if slopes else (inputs - references) * slope


def cell_secant_attributions(
    network: LayeredNetwork, inputs: Tensor, labels: Tensor, baselines: Tensor, n_segments: int
) -> Tensor:
    """Compute secant attributions of rows from their label's baselines (labels, groups, columns).

    Each end of a path is evaluated once: n rows and a few baselines. `gcig.engine.secant_pass` computes the
    same by hand; this version is for autograd and for compilers.
    """
    # Products carry baselines to the rows: the backward pass of a gather scatters, which is slow.
    members = one_hot(labels, len(baselines)).to(inputs.dtype)
    to_rows = partial(torch.einsum, "nl,lgu->gnu", members)
    slope = _average_slope(network, inputs, baselines, to_rows, n_segments, extrapolate=False)
    return (inputs - to_rows(baselines)) * slope


def unexpanded(references: Tensor) -> Tensor:
    """Return references (groups, 1, ...) if they were expanded to all rows, otherwise unchanged."""
    expanded = references.shape[1] > 1 and references.stride(1) == 0
    return references[:, :1] if expanded else references


def _identity(rows: Tensor) -> Tensor:
    return rows


def _average_slope(
    network: LayeredNetwork,
    inputs: Tensor,
    starts: Tensor,
    to_rows: Callable[[Tensor], Tensor],
    n_segments: int,
    extrapolate: bool,
) -> Tensor:
    """Return the slope of the output along each path, shape (groups, n, columns).

    `to_rows` carries what is computed at the starts to (groups, n or 1, units).
    """
    # Strides over the finest nodes that cut the path into 1, 2, 4, ... segments.
    strides = [n_segments >> level for level in range(n_segments.bit_length())] if extrapolate else [1]
    blend = _sharpness_of_values if extrapolate else sharpness
    steps = torch.arange(1, n_segments, dtype=inputs.dtype, device=inputs.device) / n_segments
    first, bias = network.weights[0], network.biases[0]
    start, stop = linear(starts, first, bias), linear(inputs, first, bias)
    inner = torch.lerp(to_rows(start), stop, steps.view(-1, 1, 1, 1))
    slopes = []
    for index, activation in enumerate(network.activations):
        if index:
            weight, bias = network.weights[index], network.biases[index]
            start, stop, inner = (linear(values, weight, bias) for values in (start, stop, inner))
        nodes = list(zip(*(_nodes(activation, values) for values in (start, stop, inner)), strict=True))
        run, rise, slope_sum = (
            _segments(to_rows(begin), middle, end, strides, sign)
            for (begin, end, middle), sign in zip(nodes, (-1, -1, 1), strict=True)
        )
        slopes.append(average_slope(run, rise, slope_sum, blend(inputs.dtype, smooth=activation.smooth)))
        start, stop, inner = nodes[1]
    down = _multiply_down(network, slopes)
    if len(down) == 1:
        return down[0] @ first
    # A recording can fill a tensor, but not copy numbers from the CPU.
    weights = (
        inputs.new_tensor(_segment_weights(n_segments, strides))
        if extrapolate
        else inputs.new_full((n_segments,), 1 / n_segments)
    )
    average: Tensor = torch.tensordot(weights, down, dims=1)
    return average @ first


def _nodes(activation: Activation, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return pre-activations, activations and slopes."""
    after, slope, _ = activation.derivatives(values)
    return values, after, slope


def _segment_weights(n_segments: int, strides: Sequence[int]) -> list[float]:
    """Return the weight of each segment in the average, one stride after the other.

    The weight of a stride is the value at zero of the Lagrange polynomial of the squared strides.
    """
    weights = []
    for stride in strides:
        others = [other for other in strides if other != stride]
        share = math.prod([other**2 / (other**2 - stride**2) for other in others])
        count = n_segments // stride
        weights += [share / count] * count
    return weights


def _sharpness_of_values(dtype: torch.dtype, *, smooth: bool) -> float:
    """Return a sharper blend, which values tolerate but gradients do not: completeness up to rounding."""
    return 2 / math.pow(torch.finfo(dtype).eps, 0.8) if smooth else sharpness(dtype, smooth=False)


def _segments(start: Tensor, inner: Tensor, stop: Tensor, strides: Sequence[int], sign: int) -> Tensor:
    """Return stop plus `sign` times start of the segments of every stride, one stride after the other.

    Shapes: start (groups, n or 1, units), inner (segments - 1, groups, n, units), stop (n, units).
    """
    begin, end = start.unsqueeze(0), stop.expand(1, *inner.shape[1:])
    if strides == [1] and not len(inner):
        return torch.add(end, begin, alpha=sign)
    pairs = []
    for stride in strides:
        within = inner[stride - 1 :: stride]
        if len(within):
            pairs += [(within[:1], begin), (within[1:], within[:-1]), (end, within[-1:])]
        else:
            pairs.append((end, begin))
    if torch.is_grad_enabled():
        return torch.cat([torch.add(stops, starts, alpha=sign) for stops, starts in pairs])
    found = stop.new_empty(sum(len(stops) for stops, _ in pairs), *inner.shape[1:])
    parts = found.split([len(stops) for stops, _ in pairs])
    for part, (stops, starts) in zip(parts, pairs, strict=True):
        torch.add(stops, starts, alpha=sign, out=part)
    return found


def _multiply_down(network: LayeredNetwork, slopes: list[Tensor]) -> Tensor:
    """Return the output's slopes with respect to the first layer's pre-activations."""
    upper = network.weights[-1][0]
    for weight, slope in zip(reversed(network.weights[:-1]), reversed(slopes), strict=True):
        down = slope * upper
        upper = down @ weight if slope is not slopes[0] else down
    return upper
