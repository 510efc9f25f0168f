"""Secant attributions, their disparity, and the parameter gradient of both.

Equals `gcig.core.paths.cell_secant_attributions`, which has the derivation, and
`gcig.core.disparity.disparity`.

The pass is fast for four reasons. The first layer is linear along the path and needs no product per node.
Paths start at one row per (label, group) cell. W_1 is applied once, to the averaged slope. And the penalty is
a weighted sum over rows with known weights, so its gradient is computed together with its value. The forward
pass of the rows is part of it, so a loss on the predictions adds one vector to the backward pass and no
product.

Scale: the gradients of a layer's nodes are divided by the sharpness of its secants, and the products that
they enter multiply by it (see `gcig.engine.secants.pull_secants`).
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gcig.core.layered import Activation, LayeredNetwork
from gcig.core.numerics import sharpness
from gcig.engine.comparison import Comparison, compare, pull_compare
from gcig.engine.cuda_graph import forks, in_parallel
from gcig.engine.path_arrays import LayerArrays, PathArrays, PathShape, add_up
from gcig.engine.scratch import Scratch
from gcig.engine.secants import Secants, pull_secants, secants


@dataclass(frozen=True)
class SecantRule:
    """The number K of segments per path, the norm by which attributions are divided, and its epsilon."""

    n_segments: int = 1
    norm: str = "l1"
    eps: float = 1e-12


class Layers(NamedTuple):
    """The parameters of a layered network, as a pass uses them.

    `transposed` are the transposed weights, and `top` is the last weight as a vector. `kind` identifies what
    the arrays of a pass depend on.
    """

    weights: Sequence[Tensor]
    biases: Sequence[Tensor | None]
    activations: Sequence[Activation]
    transposed: Sequence[Tensor]
    top: Tensor
    kind: Hashable

    @classmethod
    def split(cls, parameters: Sequence[Any], activations: Sequence[Activation]) -> "Layers":
        """Split a sequence of all weights, then all biases."""
        half = len(parameters) // 2
        return cls._with_views(parameters[:half], parameters[half:], activations)

    @classmethod
    def of(cls, network: LayeredNetwork) -> "Layers":
        """Return views of the network's parameters, outside any graph."""
        biases = [None if bias is None else bias.detach() for bias in network.biases]
        return cls._with_views([weight.detach() for weight in network.weights], biases, network.activations)

    @classmethod
    def _with_views(
        cls, weights: Sequence[Tensor], biases: Sequence[Tensor | None], activations: Sequence[Activation]
    ) -> "Layers":
        sizes = tuple(weight.shape[1] for weight in weights)
        kinds = tuple((activation.smooth, activation.curved) for activation in activations)
        return cls(
            weights, biases, activations, [weight.T for weight in weights], weights[-1][0], (sizes, kinds)
        )


class Gradient(NamedTuple):
    """One array per weight and per bias, also for biases that are None."""

    weights: list[Tensor]
    biases: list[Tensor]

    def add_(self, other: "Gradient") -> "Gradient":
        """Add another gradient in place."""
        torch._foreach_add_([*self.weights, *self.biases], [*other.weights, *other.biases])
        return self

    def scaled(self, factor: Tensor, needed: Sequence[bool]) -> list[Tensor | None]:
        """Return the gradient times a number, as new arrays; None for what is not needed."""
        parts = torch._foreach_mul([*self.weights, *self.biases], factor)
        return [part if need else None for part, need in zip(parts, needed, strict=True)]

    def copy_to(self, weights: Sequence[Tensor], biases: Sequence[Tensor | None]) -> None:
        """Write into arrays of the same shapes; biases that are None are skipped."""
        wanted = [part for part, to in zip(self.biases, biases, strict=True) if to is not None]
        there = [to for to in biases if to is not None]
        torch._foreach_copy_([*weights, *there], [*self.weights, *wanted])


class SecantPass:
    """One pass over rows that fit in memory at once.

    Call `load`, `propagate`, `compare` and, if the gradient is needed, `pull`, in this order and once each,
    or `attribute` and `pull_attributions` instead of the last two: each step overwrites arrays.

    There are `n_rows` explained rows and `n_plain` rows that are only predicted. Of the `baselines`, shape
    (labels, groups, columns), only shape and type are used here; `load` takes the values. The caller fills in
    `inputs`, the explained rows first, before `propagate`.
    """

    def __init__(
        self,
        network: Layers,
        n_rows: int,
        n_plain: int,
        baselines: Tensor,
        rule: SecantRule,
        scratch: Scratch,
    ) -> None:
        self.network, self.rule, self.apart = network, rule, forks()
        key = (
            self.apart,
            n_rows,
            n_plain,
            baselines.shape,
            baselines.dtype,
            baselines.device,
            rule.n_segments,
            network.kind,
        )
        self.arrays = scratch.recall(
            key, lambda: PathArrays(self._shape(n_rows, n_plain, baselines), scratch, baselines)
        )
        self.inputs = self.arrays.inputs
        self.secants: dict[int, Secants] = {}  # by layer
        # The factor of each segment's secants.
        self.top = network.top / rule.n_segments if rule.n_segments > 1 else network.top

    def _shape(self, n_rows: int, n_plain: int, baselines: Tensor) -> PathShape:
        activations = self.network.activations
        return PathShape(
            n_rows=n_rows,
            n_plain=n_plain,
            n_labels=baselines.shape[0],
            n_groups=baselines.shape[1],
            n_segments=self.rule.n_segments,
            sizes=tuple(weight.shape[1] for weight in self.network.weights),
            curved=tuple(activation.curved for activation in activations),
            sharpness=tuple(
                sharpness(baselines.dtype, smooth=activation.smooth) for activation in activations
            ),
            apart=self.apart,
        )

    def load(self, labels: Tensor, baselines: Tensor) -> None:
        """Copy the labels (n_rows,) of the explained rows, and the baselines (labels, groups, columns)."""
        self.arrays.load(labels, baselines)

    def propagate(self) -> None:
        """Compute values at all nodes and secants over all segments, from the first layer up."""
        in_parallel([self.arrays.subtract_starts, partial(self._propagate, 0, self.arrays.ends)])

    def _propagate(self, index: int, below: Tensor) -> None:
        network, arrays = self.network, self.arrays.layers[index]
        nodes = arrays.pre_activations if index else arrays.ends
        _affine(network.biases[index], below, network.transposed[index], nodes)
        if index == 0 and self.rule.n_segments > 1:
            arrays.interpolate(self.arrays.cell_index)
        network.activations[index].derivatives(arrays.pre_activations, arrays.buffers)
        tasks = [partial(self._join, index)]
        if index + 1 < len(self.arrays.layers):
            tasks.append(partial(self._propagate, index + 1, arrays.values))
        in_parallel(tasks)

    def _join(self, index: int) -> None:
        arrays = self.arrays.layers[index]
        self.secants[index] = secants(arrays.join(self.arrays.start_index), arrays.sharpness, arrays.secants)

    def logits(self) -> Tensor:
        """Return the network's outputs (n + plain,) for all rows."""
        bias = self.network.biases[-1]
        logits = torch.mv(self.arrays.layers[-1].row_values, self.network.top)
        return logits if bias is None else logits.add_(bias)

    def attribute(self) -> Tensor:
        """Multiply the secants down to the inputs, and return the attributions (groups, n, columns)."""
        weights, arrays, layers = self.network.weights, self.arrays, self.arrays.layers
        upper = self.top
        for index in range(len(layers) - 1, -1, -1):
            torch.mul(self.secants[index].slope, upper, out=layers[index].down)
            if index:
                below = layers[index - 1]
                torch.mm(layers[index].flat_down, weights[index], out=below.flat_upper)
                upper = below.upper
        if self.rule.n_segments > 1:
            add_up(arrays.down, 0, out=arrays.slope)
        torch.mm(arrays.flat_slope, weights[0], out=arrays.flat_attributions)
        return arrays.attributions.mul_(arrays.deltas)

    def compare(self) -> Comparison:
        """Compute the attributions, normalise them, and compare the groups."""
        self.attribute()
        return compare(self.arrays.comparison, self.rule.norm, self.rule.eps)

    def pull(self, comparison: Comparison, d_disparity: Tensor) -> Gradient:
        """Return the parameter gradient, given that of the disparities (n,)."""
        pulled = pull_compare(self.arrays.comparison, comparison, d_disparity, self.rule.norm)
        pulled.mul_(self.arrays.deltas)
        return self._pull()

    def pull_attributions(self, d_attributions: Tensor, d_logits: Tensor) -> Gradient:
        """Return the parameter gradient, given those of attributions (groups, n, columns) and logits."""
        torch.mul(d_attributions, self.arrays.deltas, out=self.arrays.comparison.work)
        return self._pull(d_logits)

    def _pull(self, d_logits: Tensor | None = None) -> Gradient:
        """Return the parameter gradient, given that of the slopes at the inputs in `work`."""
        layers = self.arrays.layers
        products, d_weights = self._pull_slopes(self.arrays.flat_work), list[Tensor]()
        d_biases = [self.network.top] * (len(layers) + 1)

        def multiply() -> None:
            d_weights.extend(product() for product in products)
            d_biases[-1] = self._pull_logits(d_logits, d_weights[-1])

        if self.apart:
            segments = [partial(self._pull_segments, index) for index in range(len(layers))]
            in_parallel([multiply, *segments])
        else:
            multiply()
        self._pull_nodes(len(layers) - 1, d_logits, d_weights, d_biases)
        d_weights[-1] = d_weights[-1].unsqueeze(0)
        return Gradient(d_weights, d_biases)

    def _pull_slopes(self, d_input_slopes: Tensor) -> list[Callable[[], Tensor]]:
        """Compute the gradient of `down` in every layer; return products: the weights as factors of slopes.

        `d_input_slopes`, shape (groups x n, columns), is the gradient of the slopes at the inputs. If the
        gradients have no arrays of their own, the products are computed before their factors are overwritten.
        """
        transposed, layers = self.network.transposed, self.arrays.layers
        later = _later if self.apart else _now
        products = [later(partial(torch.mm, self.arrays.flat_slope_transposed, d_input_slopes))]
        torch.mm(d_input_slopes, transposed[0], out=layers[0].flat_d_down)
        for index, (arrays, above) in enumerate(pairwise(layers)):
            torch.mul(arrays.d_down, self.secants[index].slope, out=arrays.d_upper)
            products.append(later(partial(torch.mm, above.flat_down_transposed, arrays.flat_d_upper)))
            torch.mm(arrays.flat_d_upper, transposed[index + 1], out=above.flat_d_down)
        last = layers[-1]
        torch.mul(last.d_down, self.secants[len(layers) - 1].slope, out=last.d_upper)
        products.append(later(partial(self._sum_top, last.flat_d_upper)))
        return products

    def _sum_top(self, d_upper: Tensor) -> Tensor:
        total = d_upper.sum(0)
        return total.div_(self.rule.n_segments) if self.rule.n_segments > 1 else total

    def _pull_segments(self, index: int) -> None:
        """Set the gradient of the nodes on paths of a layer from that of `down`."""
        arrays = self.arrays.layers[index]
        if index + 1 < len(self.arrays.layers):
            d_secants = arrays.upper.mul_(arrays.d_down)
        else:
            d_secants = arrays.d_down.mul_(self.top)
        pull_secants(self.secants[index], d_secants)
        arrays.pull_join()
        if arrays.d_off_path is not None:
            arrays.d_off_path[1].zero_()

    def _pull_nodes(
        self, index: int, d_logits: Tensor | None, d_weights: Sequence[Tensor], d_biases: list[Tensor]
    ) -> None:
        """Add the gradient that reaches weights and biases through the nodes of a layer and those below."""
        weights, layers = self.network.weights, self.arrays.layers
        arrays = layers[index]
        if not self.apart:
            self._pull_segments(index)
        if index + 1 < len(layers):
            above = layers[index + 1]
            scale = above.sharpness / arrays.sharpness
            arrays.d_values.addmm_(above.d_pre_activations, weights[index + 1], alpha=scale)
        elif d_logits is not None:
            arrays.d_row_values.addcmul_(d_logits.unsqueeze(1), weights[-1], value=1 / arrays.sharpness)
        _pull_activation(arrays)
        if index:
            below, d_nodes, scales = (
                layers[index - 1].values,
                arrays.d_pre_activations_transposed,
                arrays.scales,
            )
        else:
            if self.rule.n_segments > 1:
                arrays.pull_interpolate()
            below, d_nodes, scales = self.arrays.ends, arrays.d_ends_transposed, arrays.end_scales

        def sum_up() -> None:
            d_biases[index] = torch.mv(d_nodes, scales)

        tasks: list[Callable[[], object]] = [
            sum_up,
            lambda: d_weights[index].addmm_(d_nodes, below, alpha=arrays.sharpness),
        ]
        if index:
            tasks.append(partial(self._pull_nodes, index - 1, d_logits, d_weights, d_biases))
        in_parallel(tasks)

    def _pull_logits(self, d_logits: Tensor | None, d_top: Tensor) -> Tensor:
        """Add to the gradient of the last layer's weights, and return that of its bias."""
        if d_logits is None:
            return d_top.new_zeros(1)
        d_top.addmv_(self.arrays.layers[-1].row_values_transposed, d_logits)
        return d_logits.sum(0, keepdim=True)


def _later(product: Callable[[], Tensor]) -> Callable[[], Tensor]:
    return product


def _now(product: Callable[[], Tensor]) -> Callable[[], Tensor]:
    found = product()
    return lambda: found


def _affine(bias: Tensor | None, inputs: Tensor, transposed: Tensor, out: Tensor) -> Tensor:
    return (
        torch.mm(inputs, transposed, out=out)
        if bias is None
        else torch.addmm(bias, inputs, transposed, out=out)
    )


def _pull_activation(arrays: LayerArrays) -> None:
    """Add the gradients of values and slopes to that of the pre-activations."""
    d_pre_activations, d_values, *d_slopes = arrays.d_on_path
    d_pre_activations.addcmul_(d_values, arrays.slopes_on_path)
    if arrays.curvatures_on_path is not None:
        d_pre_activations.addcmul_(d_slopes[0], arrays.curvatures_on_path, value=1 / arrays.sharpness)
    if arrays.d_off_path is not None:
        d_plain, d_plain_values = arrays.d_off_path
        torch.mul(d_plain_values, arrays.slopes_off_path, out=d_plain)
