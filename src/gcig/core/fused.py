r"""The penalty of a layered network and its parameter gradient in one pass, by hand.

Cut the straight path from a baseline b to a row x into K segments. Over one segment, with
:math:`z_l` the pre-activations of layer l, the change of the network's output is *exactly*

.. math:: \Delta f = w^\top S_L W_L \cdots S_1 W_1 \, \Delta x, \qquad
          S_l = \operatorname{diag} \frac{\Delta s(z_l)}{\Delta z_l},

so that :math:`W_1^\top S_1 \cdots W_L^\top S_L w`, averaged over the segments, gives attributions that are
complete at any K. They converge to integrated gradients as K grows; with one hidden layer they *are*
integrated gradients at K = 1. Unlike slopes s' taken at fixed nodes, secants see a kink of s that moves
with the parameters, so that the parameter gradient is right for ReLU as well.

What makes the pass cheap: the first layer is linear along the path and needs no product per node; the
baselines' end of the path is one row per (label, group) cell; W_1 is applied once, to the averaged slope;
and because the penalty is a weighted sum over rows with weights known beforehand, its gradient is
computed along with its value, chunk by chunk, while the chunk is still in the processor's cache. Memory
does not grow with the batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import one_hot

from gcig.core.activations import Activation
from gcig.core.layered import LayeredNetwork
from gcig.core.secant import Secants, pull_secants, secants, sharpness

__all__ = ["Scratch", "SecantRule", "secant_penalty"]

_CHUNK_BYTES = 1 << 23


@dataclass(frozen=True)
class SecantRule:
    """How paths are cut and attributions compared.

    Parameters
    ----------
    n_segments : int
        K, the number of segments of each path.
    norm : {"l1", "l2"}
        What attributions are divided by.
    eps : float
        Added to the norms.
    """

    n_segments: int = 1
    norm: str = "l1"
    eps: float = 1e-12


class Scratch:
    """Named arrays that are kept from call to call.

    Fresh large arrays cost page faults in every step, several times what is computed in them. They are
    safe to keep because a pass is finished, gradient and all, when it returns.
    """

    def __init__(self) -> None:
        self._arrays: dict[tuple[object, ...], Tensor] = {}
        self._storage: dict[str, Tensor] = {}

    def __deepcopy__(self, memo: object) -> "Scratch":
        return Scratch()

    def __reduce__(self) -> tuple[type["Scratch"], tuple[()]]:
        return Scratch, ()

    def array(self, name: str, like: Tensor, *shape: int) -> Tensor:
        """An array of this shape with arbitrary contents; the same memory for the same name."""
        key = (name, like.dtype, like.device, shape)
        found = self._arrays.get(key)
        if found is None:
            size = 1
            for length in shape:
                size *= length
            storage = self._storage.get(name)
            if storage is None or len(storage) < size or (storage.dtype, storage.device) != key[1:3]:
                storage = self._storage[name] = like.new_empty(size)
                self._arrays = {other: array for other, array in self._arrays.items() if other[0] != name}
            found = self._arrays[key] = storage[:size].view(shape)
        return found


def secant_penalty(
    network: LayeredNetwork,
    inputs: Tensor,
    labels: Tensor,
    baselines: Tensor,
    weights: Tensor,
    rule: SecantRule,
    *,
    scratch: Scratch | None = None,
    max_bytes: int = _CHUNK_BYTES,
) -> tuple[Tensor, Tensor, Tensor]:
    """The weighted sum of the rows' disparities, differentiable with respect to the parameters.

    Parameters
    ----------
    network : LayeredNetwork
        With one hidden layer or more.
    inputs : Tensor of shape (n, columns)
        Rows; not differentiated.
    labels : Tensor of shape (n,)
        Which baselines a row is compared with.
    baselines : Tensor of shape (labels, groups, columns)
        Not differentiated.
    weights : Tensor of shape (n,)
        What each row's disparity counts.
    scratch : Scratch, optional
        Kept by a caller who calls often.
    max_bytes : int
        Rows are worked off in chunks of about this much memory.

    Returns
    -------
    penalty : Tensor of shape ()
    disparity : Tensor of shape (n,)
        Root mean square distance over pairs of groups of the normalised attributions; detached.
    norms : Tensor of shape (groups, n)
        The norms of the attributions; detached.
    """
    n_rows = _rows_per_chunk(network, baselines, rule, max_bytes)
    batch = _Batch(inputs, labels, baselines, weights)
    result: tuple[Tensor, Tensor, Tensor] = _SecantPenalty.apply(
        batch, rule, network.activations, scratch or Scratch(), n_rows, *network.weights, *network.biases
    )
    return result


def _rows_per_chunk(
    network: LayeredNetwork, baselines: Tensor, rule: SecantRule, max_bytes: int
) -> int:
    units = sum(weight.shape[0] for weight in network.weights[:-1])
    groups, columns = baselines.shape[1:]
    # Scratch per row: three arrays over the columns, and fourteen over segments and units.
    per_row = baselines.element_size() * groups * (3 * columns + 14 * rule.n_segments * units)
    return max(16, max_bytes // per_row)


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
        weights, biases = parameters[: len(parameters) // 2], parameters[len(parameters) // 2 :]
        wanted = any(ctx.needs_input_grad)
        gradient = _Gradient.zeros(weights)
        disparities, norms = [], []
        with torch.autocast(batch.inputs.device.type, enabled=False):
            for rows in _even_slices(len(batch.inputs), n_rows):
                paths = _Paths.to(batch.inputs[rows], batch.labels[rows], batch.baselines, rule, scratch)
                ends, layers = _propagate(paths, activations, weights, biases)
                head = _compare(paths, layers, weights)
                if wanted:
                    d_secants = _pull_head(paths, layers, head, weights, batch.weights[rows], gradient)
                    _pull_layers(paths, ends, layers, d_secants, weights, gradient)
                disparities.append(head.disparity)
                norms.append(head.norms)
        ctx.gradient = [*gradient.weights, *gradient.biases]
        ctx.present = [parameter is not None for parameter in parameters]
        disparity = disparities[0] if len(disparities) == 1 else torch.cat(disparities)
        norm = norms[0] if len(norms) == 1 else torch.cat(norms, dim=1)
        ctx.mark_non_differentiable(disparity, norm)
        return torch.dot(disparity, batch.weights), disparity, norm

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, d_penalty: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        scaled = zip(ctx.gradient, ctx.present, strict=True)
        return *[None] * 5, *(part * d_penalty if present else None for part, present in scaled)


def _even_slices(n: int, largest: int) -> list[slice]:
    """Cover range(n) by as few slices of nearly equal length as `largest` allows."""
    count = -(-n // largest)
    bounds = [n * index // count for index in range(count + 1)]
    return [slice(start, stop) for start, stop in zip(bounds, bounds[1:], strict=False)]


@dataclass(frozen=True)
class _Paths:
    """Some rows and the paths to them from every group's baseline.

    Nodes are numbered as rows of one matrix: the n rows, the (group, label) cells, then the interior
    nodes (K - 1, groups, n). Segments have shape (K, groups, n, units).
    """

    inputs: Tensor
    labels: Tensor
    indicator: Tensor  # (labels, n): one where the row has the label
    cells: Tensor  # (groups x labels, columns)
    signs: Tensor  # (3, 1, 1, 1, 1): what a segment's start counts in its run, rise and sum of slopes
    n_groups: int
    rule: SecantRule
    scratch: Scratch

    @classmethod
    def to(
        cls, inputs: Tensor, labels: Tensor, baselines: Tensor, rule: SecantRule, scratch: Scratch
    ) -> "_Paths":
        indicator = one_hot(labels, len(baselines)).T.to(baselines.dtype)
        cells = baselines.transpose(0, 1).flatten(0, 1)
        signs = baselines.new_tensor([-1.0, -1.0, 1.0]).view(3, 1, 1, 1, 1)
        return cls(inputs, labels, indicator, cells, signs, baselines.shape[1], rule, scratch)

    @property
    def n_rows(self) -> int:
        return len(self.inputs)

    @property
    def n_ends(self) -> int:
        return len(self.inputs) + len(self.cells)

    @property
    def n_nodes(self) -> int:
        return self.n_ends + (self.rule.n_segments - 1) * self.n_groups * self.n_rows

    def steps(self) -> Tensor:
        """The positions of the interior nodes, ready to be broadcast to segments."""
        count = self.rule.n_segments
        steps = torch.arange(1, count, dtype=self.cells.dtype, device=self.cells.device)
        return (steps / count).view(-1, 1, 1, 1)

    def array(self, name: str, *shape: int) -> Tensor:
        return self.scratch.array(name, self.cells, *shape)

    def segments(self, name: str, units: int) -> Tensor:
        """A scratch array over the segments."""
        return self.array(name, self.rule.n_segments, self.n_groups, self.n_rows, units)

    def differences(self, nodes: Tensor, name: str) -> Tensor:
        """From nodes (3, nodes, units) to segments (3, K, groups, n, units): stop + sign * start."""
        n, units, groups = self.n_rows, nodes.shape[-1], self.n_groups
        count = self.rule.n_segments
        cells = nodes[:, n : self.n_ends].view(3, groups, -1, units)
        out = self.array(name, 3, count, groups, n, units)
        first = torch.index_select(cells, 2, self.labels, out=self.array("first", 3, groups, n, units))
        last = nodes[:, :n].view(3, 1, 1, n, units)
        if count == 1:
            return torch.addcmul(last, first.unsqueeze(1), self.signs, out=out)
        interior = nodes[:, self.n_ends :].view(3, count - 1, groups, n, units)
        torch.addcmul(interior[:, :1], first.unsqueeze(1), self.signs, out=out[:, :1])
        torch.addcmul(last, interior[:, -1:], self.signs, out=out[:, -1:])
        if count > 2:
            torch.addcmul(interior[:, 1:], interior[:, :-1], self.signs, out=out[:, 1:-1])
        return out

    def to_nodes(self, segments: Tensor) -> Tensor:
        """From segments to nodes: the adjoint of `differences`."""
        n, units = self.n_rows, segments.shape[-1]
        out = self.array("nodes", 3, self.n_nodes, units)
        torch.sum(segments[:, -1], 1, out=out[:, :n])
        cells = torch.matmul(self.indicator, segments[:, 0])
        torch.mul(cells, self.signs[..., 0], out=out[:, n : self.n_ends].view_as(cells))
        if self.rule.n_segments > 1:
            interior = out[:, self.n_ends :].view_as(segments[:, 1:])
            torch.addcmul(segments[:, :-1], segments[:, 1:], self.signs, out=interior)
        return out


class _Layer(NamedTuple):
    """One hidden layer: values and derivatives at the nodes, secants on the segments."""

    values: Tensor
    slopes: Tensor
    curvatures: Tensor
    secants: Secants


class _Head(NamedTuple):
    """From the secants to the disparity of each row.

    `uppers` and `downs` are, per hidden layer, the output's slopes with respect to its values and to its
    pre-activations, on every segment.
    """

    uppers: list[Tensor]
    downs: list[Tensor]
    slope: Tensor
    deltas: Tensor
    normalised: Tensor
    norms: Tensor
    disparity: Tensor


class _Gradient(NamedTuple):
    """The sums that chunks add to."""

    weights: list[Tensor]
    biases: list[Tensor]

    @classmethod
    def zeros(cls, weights: Sequence[Tensor]) -> "_Gradient":
        return cls(
            [torch.zeros_like(weight) for weight in weights],
            [weight.new_zeros(len(weight)) for weight in weights],
        )


def _affine(bias: Tensor | None, inputs: Tensor, weight: Tensor, out: Tensor) -> Tensor:
    return torch.mm(inputs, weight.T, out=out) if bias is None else torch.addmm(bias, inputs, weight.T, out=out)


def _propagate(
    paths: _Paths, activations: Sequence[Activation], weights: Sequence[Tensor], biases: Sequence[Tensor | None]
) -> tuple[Tensor, list[_Layer]]:
    """The rows that enter the first layer, and the hidden layers at all nodes."""
    n, edge = paths.n_rows, paths.n_ends
    ends = torch.cat([paths.inputs, paths.cells], out=paths.array("ends", edge, paths.cells.shape[1]))
    layers: list[_Layer] = []
    for index, activation in enumerate(activations):
        units = len(weights[index])
        stacked = paths.array(f"stacked{index}", 3, paths.n_nodes, units)
        nodes = stacked[0]
        if index:
            _affine(biases[index], layers[-1].values, weights[index], nodes)
        else:
            _affine(biases[0], ends, weights[0], nodes[:edge])
            if paths.rule.n_segments > 1:
                cells = nodes[n:edge].view(paths.n_groups, -1, units).index_select(1, paths.labels)
                interior = nodes[edge:].view(-1, paths.n_groups, n, units)
                torch.lerp(cells, nodes[:n], paths.steps(), out=interior)
        values, slopes, curvatures = activation.derivatives(nodes)
        stacked[1], stacked[2] = values, slopes
        out = paths.segments(f"slope{index}", units), paths.segments(f"divisor{index}", units)
        blend = sharpness(nodes.dtype, smooth=activation.smooth)
        average = secants(paths.differences(stacked, f"differences{index}"), blend, out)
        layers.append(_Layer(values, slopes, curvatures, average))
    return ends, layers


def _compare(paths: _Paths, layers: Sequence[_Layer], weights: Sequence[Tensor]) -> _Head:
    """Multiply the secants down to the inputs, weigh by the path, normalise and compare the groups."""
    uppers, downs = [weights[-1][0]], []
    for index in range(len(layers) - 1, -1, -1):
        slope = layers[index].secants.slope
        units = slope.shape[-1]
        downs.insert(0, torch.mul(slope, uppers[0], out=paths.segments(f"down{index}", units)))
        if index:
            weight = weights[index]
            upper = paths.segments(f"upper{index}", weight.shape[1])
            torch.mm(downs[0].flatten(0, 2), weight, out=upper.flatten(0, 2))
            uppers.insert(0, upper)
    slope = downs[0].mean(0) if paths.rule.n_segments > 1 else downs[0][0]
    shape = (paths.n_groups, paths.n_rows, paths.cells.shape[1])
    cells = paths.cells.view(paths.n_groups, -1, shape[2])
    deltas = torch.index_select(cells, 1, paths.labels, out=paths.array("deltas", *shape))
    torch.sub(paths.inputs, deltas, out=deltas)
    attributions = paths.array("attributions", *shape)
    torch.mm(slope.flatten(0, 1), weights[0], out=attributions.flatten(0, 1))
    attributions.mul_(deltas)
    work = paths.array("work", *shape)
    if paths.rule.norm == "l1":
        norms = torch.abs(attributions, out=work).sum(-1)
    else:
        norms = torch.linalg.vector_norm(attributions, dim=-1)
    normalised = attributions.mul_((norms + paths.rule.eps).reciprocal_().unsqueeze(-1))
    if paths.n_groups == 2:
        disparity = torch.linalg.vector_norm(torch.sub(normalised[0], normalised[1], out=work[0]), dim=-1)
    else:
        torch.sub(normalised, normalised.mean(0), out=work)
        disparity = torch.linalg.vector_norm(work, dim=(0, 2)) * (2 / (paths.n_groups - 1)) ** 0.5
    return _Head(uppers, downs, slope, deltas, normalised, norms, disparity)


def _pull_head(
    paths: _Paths,
    layers: Sequence[_Layer],
    head: _Head,
    weights: Sequence[Tensor],
    d_disparity: Tensor,
    gradient: _Gradient,
) -> list[Tensor]:
    """Gradients of every layer's secants; those of the weights, as far as they multiply slopes, are added."""
    d_attributions = _pull_disparity(paths, head, d_disparity).mul_(head.deltas).flatten(0, 1)
    gradient.weights[0].addmm_(head.slope.flatten(0, 1).T, d_attributions)
    d_slope = paths.array("d_slope", *head.slope.shape)
    torch.mm(d_attributions, weights[0].T, out=d_slope.flatten(0, 1))
    if paths.rule.n_segments > 1:
        d_slope.div_(paths.rule.n_segments)
    d_down, d_secants = d_slope.expand_as(head.downs[0]), []
    for index, (layer, upper) in enumerate(zip(layers, head.uppers, strict=True)):
        units = upper.shape[-1]
        d_secants.append(torch.mul(d_down, upper, out=paths.segments(f"d_secant{index}", units)))
        d_upper = torch.mul(d_down, layer.secants.slope, out=paths.segments("d_upper", units)).flatten(0, 2)
        if index + 1 == len(layers):
            gradient.weights[-1].add_(d_upper.sum(0))
        else:
            down = head.downs[index + 1]
            gradient.weights[index + 1].addmm_(down.flatten(0, 2).T, d_upper)
            d_down = paths.segments("d_down", down.shape[-1])
            torch.mm(d_upper, weights[index + 1].T, out=d_down.flatten(0, 2))
    return d_secants


def _pull_disparity(paths: _Paths, head: _Head, d_disparity: Tensor) -> Tensor:
    """Gradient of the attributions: through the distance, then through the normalisation."""
    normalised, eps, groups = head.normalised, paths.rule.eps, paths.n_groups
    work = paths.array("work", *normalised.shape)  # holds what `_compare` left: the differences
    rate = d_disparity / head.disparity.clamp(min=torch.finfo(normalised.dtype).tiny)
    scale = rate / (head.norms + eps)
    if groups == 2:
        # The two pulls are opposite, and their components along the attributions add up to V squared.
        first = torch.mul(work[0], normalised[0], out=work[1]).sum(-1)
        along = torch.stack([first, head.disparity.square() - first])
    else:
        scale = scale * (2 / (groups - 1))
        along = (work * normalised).sum(-1)
    if paths.rule.norm == "l1":
        torch.sign(normalised, out=normalised)
    else:
        along = along * (1 + eps / head.norms.clamp(min=eps))
    pulled = normalised.mul_((along * scale).neg_().unsqueeze(-1))
    if groups == 2:
        pulled[0].addcmul_(work[0], scale[0].unsqueeze(-1))
        pulled[1].addcmul_(work[0], scale[1].unsqueeze(-1), value=-1)
        return pulled
    return pulled.addcmul_(work, scale.unsqueeze(-1))


def _pull_layers(
    paths: _Paths,
    ends: Tensor,
    layers: Sequence[_Layer],
    d_secants: Sequence[Tensor],
    weights: Sequence[Tensor],
    gradient: _Gradient,
) -> None:
    """Add the gradient that reaches the weights through the forward pass, from the last layer down."""
    d_values: Tensor | None = None
    for index in range(len(layers) - 1, -1, -1):
        layer = layers[index]
        units = layer.values.shape[-1]
        out = paths.array("pulled", 3, paths.rule.n_segments, paths.n_groups, paths.n_rows, units)
        pulled = paths.to_nodes(pull_secants(layer.secants, d_secants[index], out))
        pulled[:2] *= layer.secants.sharpness
        d_nodes, d_rise, d_slopes = pulled.unbind(0)
        if d_values is not None:
            d_rise += d_values
        d_nodes.addcmul_(d_rise, layer.slopes).addcmul_(d_slopes, layer.curvatures)
        if index:
            gradient.weights[index].addmm_(d_nodes.T, layers[index - 1].values)
            gradient.biases[index].add_(d_nodes.sum(0))
            d_values = d_nodes @ weights[index]
    d_ends = _pull_interior(paths, d_nodes)
    gradient.weights[0].addmm_(d_ends.T, ends)
    gradient.biases[0].add_(d_ends.sum(0))


def _pull_interior(paths: _Paths, d_nodes: Tensor) -> Tensor:
    """Fold the first layer's interior nodes into the ends of their paths."""
    if paths.rule.n_segments == 1:
        return d_nodes
    n, edge = paths.n_rows, paths.n_ends
    interior = d_nodes[edge:].view(-1, paths.n_groups, n, d_nodes.shape[-1])
    towards_row = interior * paths.steps()
    d_nodes[:n] += towards_row.sum((0, 1))
    d_nodes[n:edge] += torch.matmul(paths.indicator, (interior - towards_row).sum(0)).flatten(0, 1)
    return d_nodes[:edge]
