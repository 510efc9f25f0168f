r"""Integrated gradients of chains of linear layers by secants, with a right parameter gradient for ReLU.

Quadrature with the gradients of a ReLU network converges in value, but not in its parameter gradient: it
misses the movement of the kinks. Cut the path from a reference to a row into K segments. Over one segment,
with :math:`z_l` the pre-activations of layer l, the change of the score is *exactly*

.. math:: \Delta f = w^\top S_L W_L \cdots S_1 W_1 \, \Delta x, \qquad
          S_l = \operatorname{diag} \frac{\Delta s(z_l)}{\Delta z_l},

so the average of :math:`W_1^\top S_1 \cdots W_L^\top S_L w` over the segments gives attributions that are
complete at any K; they are integrated gradients as K grows, and at K = 1 with one hidden layer.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from gcig.core.modules import PIECEWISE_LINEAR

_SMOOTH = (nn.SiLU, nn.GELU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.ELU)
_WITHOUT_EFFECT = (nn.Flatten, nn.Identity, nn.Dropout)  # in evaluation mode, on rows of columns


@dataclass(frozen=True)
class Chain:
    """``Linear, activation, ..., Linear`` with elementwise activations."""

    layers: tuple[nn.Linear, ...]
    activations: tuple[nn.Module, ...]

    @classmethod
    def recognise(cls, module: nn.Module, *, any_activation: bool = False) -> "Chain | None":
        """Return the chain that a module is; None for other modules, and for smooth activations.

        Only exact types are recognised: a subclass may compute anything.
        """
        steps = sequential_steps(module)
        if steps is None:
            return None
        parts = [step for step in steps if type(step) not in _WITHOUT_EFFECT]
        if len(parts) % 2 == 0:
            return None
        layers, activations = tuple(parts[::2]), tuple(parts[1::2])
        kinds = (*PIECEWISE_LINEAR, *_SMOOTH) if any_activation else PIECEWISE_LINEAR
        if not all(type(layer) is nn.Linear for layer in layers):
            return None
        if not activations or not all(type(each) in kinds for each in activations):
            return None
        return cls(layers, activations)  # type: ignore[arg-type]


def sequential_steps(module: nn.Module) -> list[nn.Module] | None:
    """Return the steps of nested Sequentials in order, or None if something may change their computation."""
    if module._forward_hooks or module._forward_pre_hooks or hasattr(module, "parametrizations"):
        return None
    if "forward" in vars(module):
        return None
    if isinstance(module, nn.Sequential):
        if type(module).forward is not nn.Sequential.forward:
            return None
        nested = [sequential_steps(step) for step in module]
        if any(steps is None for steps in nested):
            return None
        return [step for steps in nested for step in steps or []]
    return [module]


def secant_slopes(
    chain: Chain, contrast: Tensor, rows: Tensor, references: Tensor, n_segments: int
) -> Tensor:
    """Return the average slopes (references, n, columns) of the score on the paths to rows (n, columns)."""
    nodes = torch.arange(n_segments + 1, dtype=rows.dtype, device=rows.device) / n_segments
    values = torch.lerp(references, rows, nodes.view(-1, 1, 1, 1))  # (nodes, references, n, columns)
    slopes = []
    for layer, activation in zip(chain.layers, chain.activations, strict=False):
        before = linear(values, layer.weight, layer.bias)
        # Where an end does not move, the quotient is blended with the slopes at the ends.
        values, ends = activation(before), _derivative(activation, before)
        blend = sharpness(rows.dtype, smooth=isinstance(activation, _SMOOTH))
        slopes.append(average_slope(before.diff(dim=0), values.diff(dim=0), ends[:-1] + ends[1:], blend))
    down = contrast.to(rows.dtype) @ chain.layers[-1].weight  # (n, units)
    for layer, slope in zip(reversed(chain.layers[:-1]), reversed(slopes), strict=True):
        down = (slope * down) @ layer.weight
    return down.mean(0)


def _derivative(activation: nn.Module, z: Tensor) -> Tensor:
    """Return the derivative of an elementwise activation, as a constant: it only replaces 0 / 0."""
    with torch.enable_grad():
        at = z.detach().requires_grad_()
        (slope,) = torch.autograd.grad(activation(at).sum(), at)
    return slope


def average_slope(run: Tensor, rise: Tensor, slope_sum: Tensor, sharpness: float) -> Tensor:
    r"""Return the average slope of a function between two points, safe if the points coincide.

    The quotient rise / run loses its digits if the run is tiny, and is 0/0 if it is zero. It is therefore
    blended with the mean of the slopes at both ends, which is correct to second order there:

    .. math:: \frac{h \cdot \text{rise} \cdot \text{run} + s'(z) + s'(z')}{h \cdot \text{run}^2 + 2},

    with h the `sharpness`. No branch is needed (masks are many times slower than arithmetic on CPU), the
    error stays near 1 / h for any run, and the gradient is correct at a run of zero: each end gets s''/2.

    >>> run, rise = torch.tensor([2.0, 0.0]), torch.tensor([1.0, 0.0])
    >>> average_slope(run, rise, torch.tensor([1.0, 0.5]), 1e4)
    tensor([0.5000, 0.2500])
    """
    divisor = torch.addcmul(run.new_full((), 2.0), run, run, value=sharpness)
    return torch.addcmul(slope_sum, rise, run, value=sharpness) / divisor


def sharpness(dtype: torch.dtype, *, smooth: bool) -> float:
    """Return h of `average_slope`: how soon the quotient takes over from the mean of the slopes.

    Rounding of the function makes the quotient's gradient wrong by about eps / run^2, the blend by about
    1 / h: the square root of eps balances the two. Piecewise linear functions do not round, so their quotient
    is accurate down to much smaller runs.
    """
    eps = float(torch.finfo(dtype).eps)
    return 2 / math.pow(eps, 0.5 if smooth else 1.5)
