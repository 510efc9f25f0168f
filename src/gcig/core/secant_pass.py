r"""Attributions by secants, their disparity, and the parameter gradient of both, by hand.

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
and because the penalty is a weighted sum over rows with weights known beforehand, its gradient is computed
along with its value. The rows' own forward pass is part of it, so that a loss on the predictions costs one
more vector in the downward pass and no product.

Scale: the gradients of a layer's nodes are kept divided by the sharpness of its secants, and the products
that they enter make up for it (see `gcig.core.secant.pull_secants`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gcig.core.activations import Activation
from gcig.core.comparison import Comparison, compare, pull_compare
from gcig.core.layered import LayeredNetwork
from gcig.core.path_arrays import LayerArrays, PathArrays, PathShape, add_up
from gcig.core.scratch import Scratch
from gcig.core.secant import Secants, pull_secants, secants, sharpness

__all__ = ["Gradient", "Layers", "SecantPass", "SecantRule"]


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


class Layers(NamedTuple):
    """The parameters of a layered network, as a pass uses them."""

    weights: Sequence[Tensor]
    biases: Sequence[Tensor | None]
    activations: Sequence[Activation]

    @classmethod
    def split(cls, parameters: Sequence[Any], activations: Sequence[Activation]) -> "Layers":
        """From all weights, then all biases."""
        half = len(parameters) // 2
        return cls(parameters[:half], parameters[half:], activations)

    @classmethod
    def of(cls, network: LayeredNetwork) -> "Layers":
        """The same memory as the network's parameters, outside any graph."""
        biases = [None if bias is None else bias.detach() for bias in network.biases]
        return cls([weight.detach() for weight in network.weights], biases, network.activations)


class Gradient(NamedTuple):
    """One array for each weight and for each bias, also for those that are None."""

    weights: list[Tensor]
    biases: list[Tensor]

    def add_(self, other: "Gradient") -> "Gradient":
        """Add another in place."""
        torch._foreach_add_([*self.weights, *self.biases], [*other.weights, *other.biases])
        return self

    def scaled(self, factor: Tensor, needed: Sequence[bool]) -> list[Tensor | None]:
        """Times a number, as new arrays; None for what is not needed."""
        parts = torch._foreach_mul([*self.weights, *self.biases], factor)
        return [part if need else None for part, need in zip(parts, needed, strict=True)]

    def copy_to(self, weights: Sequence[Tensor], biases: Sequence[Tensor | None]) -> None:
        """Write into arrays of the same shapes; where a bias is None there is nowhere to write."""
        pairs = [
            *zip(weights, self.weights, strict=True),
            *((to, part) for to, part in zip(biases, self.biases, strict=True) if to is not None),
        ]
        torch._foreach_copy_([to for to, _ in pairs], [part for _, part in pairs])


class _Layer(NamedTuple):
    """One hidden layer in a pass."""

    arrays: LayerArrays
    curvatures: Tensor | None
    secants: Secants


class SecantPass:
    """One pass over rows that fit in memory at once.

    Call `propagate`, `compare`, and, where the gradient is wanted, `pull`, in this order and once each:
    arrays are overwritten on the way.

    Parameters
    ----------
    inputs : Tensor of shape (n + plain, columns)
        The explained rows, then those that are only predicted.
    labels : Tensor of shape (n,)
    baselines : Tensor of shape (labels, groups, columns)
    """

    def __init__(
        self,
        network: Layers,
        inputs: Tensor,
        labels: Tensor,
        baselines: Tensor,
        rule: SecantRule,
        scratch: Scratch,
    ) -> None:
        kinds = tuple((activation.smooth, activation.curved) for activation in network.activations)
        sizes = tuple(weight.shape[1] for weight in network.weights)
        key = (
            inputs.shape,
            labels.shape,
            baselines.shape,
            baselines.dtype,
            baselines.device,
            rule.n_segments,
            sizes,
            kinds,
        )
        self.network = network
        self.rule = rule
        self.arrays = scratch.recall(
            key, lambda: PathArrays(self._shape(inputs, labels, baselines), scratch, baselines)
        )
        self.arrays.load(inputs, labels, baselines)
        self.layers: list[_Layer] = []
        # What each segment's secants multiply.
        top = network.weights[-1][0]
        self.top = top / rule.n_segments if rule.n_segments > 1 else top

    def _shape(self, inputs: Tensor, labels: Tensor, baselines: Tensor) -> PathShape:
        activations = self.network.activations
        return PathShape(
            n_rows=len(labels),
            n_plain=len(inputs) - len(labels),
            n_labels=baselines.shape[0],
            n_groups=baselines.shape[1],
            n_segments=self.rule.n_segments,
            sizes=tuple(weight.shape[1] for weight in self.network.weights),
            curved=tuple(activation.curved for activation in activations),
            sharpness=tuple(
                sharpness(baselines.dtype, smooth=activation.smooth) for activation in activations
            ),
        )

    def propagate(self) -> None:
        """Values at all nodes and secants over all segments, from the first layer up."""
        weights, biases, activations = self.network
        below = self.arrays.ends
        for index, (arrays, activation) in enumerate(zip(self.arrays.layers, activations, strict=True)):
            _affine(biases[index], below, weights[index], arrays.pre_activations if index else arrays.ends)
            if index == 0 and self.rule.n_segments > 1:
                arrays.interpolate(self.arrays.cell_index)
            _, _, curvatures = activation.derivatives(arrays.pre_activations, (arrays.values, arrays.slopes))
            average = secants(arrays.join(self.arrays.start_index), arrays.sharpness, arrays.secants)
            self.layers.append(_Layer(arrays, curvatures, average))
            below = arrays.values

    def logits(self) -> Tensor:
        """The network's outputs (n + plain,) for all rows."""
        top, bias = self.network.weights[-1][0], self.network.biases[-1]
        logits = torch.mv(self.layers[-1].arrays.row_values, top)
        return logits if bias is None else logits.add_(bias)

    def compare(self) -> Comparison:
        """Multiply the secants down to the inputs, weigh by the path, normalise and compare the groups."""
        weights, arrays = self.network.weights, self.arrays
        upper = self.top
        for index in range(len(self.layers) - 1, -1, -1):
            layer = self.layers[index]
            torch.mul(layer.secants.slope, upper, out=layer.arrays.down)
            if index:
                below = self.layers[index - 1].arrays
                torch.mm(layer.arrays.flat_down, weights[index], out=below.flat_upper)
                upper = below.upper
        if len(arrays.downs) > 1:
            add_up(arrays.downs, out=arrays.slope)
        torch.index_select(arrays.cells, 0, arrays.cell_index, out=arrays.flat_deltas)
        torch.sub(arrays.rows, arrays.deltas, out=arrays.deltas)
        torch.mm(arrays.flat_slope, weights[0], out=arrays.flat_attributions)
        arrays.attributions.mul_(arrays.deltas)
        return compare(arrays.attributions, self.rule.norm, self.rule.eps, arrays.spread, arrays.work)

    def pull(
        self,
        comparison: Comparison,
        d_disparity: Tensor,
        d_logits: Tensor | None = None,
        d_attributions: Tensor | None = None,
    ) -> Gradient:
        """The parameter gradient, from those of the disparities (n,) and of the logits (n + plain,).

        `d_attributions` is that of another term of the attributions, shape (groups, n, columns).
        """
        pulled = pull_compare(comparison, d_disparity, self.rule.norm, self.arrays.work)
        if d_attributions is not None:
            pulled.add_(d_attributions)
        pulled.mul_(self.arrays.deltas)
        d_weights, d_secants = self._pull_slopes(self.arrays.flat_work)
        d_biases = self._pull_nodes(d_secants, d_logits, d_weights)
        return Gradient(d_weights, d_biases)

    def _pull_slopes(self, d_input_slopes: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """The gradient of the weights as far as they multiply slopes, and that of every layer's secants.

        `d_input_slopes`, shape (groups x n, columns), is that of the slopes with respect to the inputs.
        """
        weights, first = self.network.weights, self.layers[0].arrays
        d_weights = [torch.mm(self.arrays.flat_slope.T, d_input_slopes)]
        d_secants = []
        torch.mm(d_input_slopes, weights[0].T, out=first.flat_d_down)
        for index, layer in enumerate(self.layers[:-1]):
            arrays, above = layer.arrays, self.layers[index + 1].arrays
            # From here on, `down` holds the gradient of `upper`, and `upper` that of the secants.
            torch.mul(arrays.d_down, layer.secants.slope, out=arrays.down)
            d_secants.append(arrays.upper.mul_(arrays.d_down))
            d_weights.append(torch.mm(above.flat_down.T, arrays.flat_down))
            torch.mm(arrays.flat_down, weights[index + 1].T, out=above.flat_d_down)
        arrays = self.layers[-1].arrays
        torch.mul(arrays.d_down, self.layers[-1].secants.slope, out=arrays.down)
        d_weights.append(arrays.flat_down.sum(0, keepdim=True))
        if self.rule.n_segments > 1:
            d_weights[-1].div_(self.rule.n_segments)
        d_secants.append(arrays.d_down.mul_(self.top))
        return d_weights, d_secants

    def _pull_nodes(
        self, d_secants: Sequence[Tensor], d_logits: Tensor | None, d_weights: Sequence[Tensor]
    ) -> list[Tensor]:
        """Add the gradient that reaches the weights through the nodes; return that of the biases."""
        weights = self.network.weights
        d_biases = [self._pull_logits(d_logits, d_weights[-1])]
        above: LayerArrays | None = None
        for index in range(len(self.layers) - 1, -1, -1):
            arrays, curvatures, average = self.layers[index]
            pull_secants(average, d_secants[index])
            arrays.pull_join(self.arrays.indicator)
            if arrays.d_off_path is not None:
                arrays.d_off_path[1].zero_()
            if above is not None:
                scale = above.sharpness / arrays.sharpness
                arrays.d_values.addmm_(above.d_pre_activations, weights[index + 1], alpha=scale)
            elif d_logits is not None:
                arrays.d_row_values.addcmul_(d_logits.unsqueeze(1), weights[-1], value=1 / arrays.sharpness)
            _pull_activation(arrays, curvatures)
            if index:
                below, d_nodes = self.layers[index - 1].arrays.values, arrays.d_pre_activations.T
            else:
                if self.rule.n_segments > 1:
                    arrays.pull_interpolate(self.arrays.indicator)
                below, d_nodes = self.arrays.ends, arrays.d_ends.T
            d_weights[index].addmm_(d_nodes, below, alpha=arrays.sharpness)
            d_biases.insert(0, torch.mv(d_nodes, arrays.scales if index else arrays.end_scales))
            above = arrays
        return d_biases

    def _pull_logits(self, d_logits: Tensor | None, d_top: Tensor) -> Tensor:
        """Add to the gradient of the last layer's weights; return that of its bias."""
        if d_logits is None:
            return d_top.new_zeros(1)
        d_top[0].addmv_(self.layers[-1].arrays.row_values.T, d_logits)
        return d_logits.sum().unsqueeze(0)


def _affine(bias: Tensor | None, inputs: Tensor, weight: Tensor, out: Tensor) -> Tensor:
    return (
        torch.mm(inputs, weight.T, out=out) if bias is None else torch.addmm(bias, inputs, weight.T, out=out)
    )


def _pull_activation(arrays: LayerArrays, curvatures: Tensor | None) -> None:
    """Add the gradients of values and slopes to that of the pre-activations."""
    d_pre_activations, d_values, *d_slopes = arrays.d_on_path
    d_pre_activations.addcmul_(d_values, arrays.slopes_on_path)
    if curvatures is not None:
        on_path = curvatures if arrays.d_off_path is None else curvatures[: d_pre_activations.shape[0]]
        d_pre_activations.addcmul_(d_slopes[0], on_path, value=1 / arrays.sharpness)
    if arrays.d_off_path is not None:
        d_plain, d_plain_values = arrays.d_off_path
        torch.mul(d_plain_values, arrays.slopes_off_path, out=d_plain)
