"""Layered networks (Linear, activation, ..., Linear) and the derivatives of their activations."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

Derivatives = tuple[Tensor, Tensor, Tensor | None]


class Buffers(NamedTuple):
    """Output arrays of an activation, of the shape of z; None allocates. `work` is overwritten."""

    value: Tensor | None = None
    slope: Tensor | None = None
    curvature: Tensor | None = None
    work: Tensor | None = None


_NEW = Buffers()


class Kernels(NamedTuple):
    """torch's own forward and backward pass of an activation: one operation each.

    `value` maps z to s(z). `pull` maps the gradient of s(z), z and s(z) to the gradient of z.
    """

    value: Callable[[Tensor], Tensor]
    pull: Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Activation:
    """An elementwise function s with its first two derivatives."""

    # Maps z to (s(z), s'(z), s''(z)), written into the given buffers.
    evaluate: Callable[[Tensor, Buffers], Derivatives]
    # Whether s' is continuous. If it jumps, the jumps move along the path with the parameters, and quadrature
    # at fixed nodes loses the gradient that they carry.
    smooth: bool = True
    curved: bool = True  # whether s'' is nonzero; if not, `evaluate` returns None for it
    kernels: Kernels | None = None  # faster operations for s and its pullback alone

    def value(self, z: Tensor) -> Tensor:
        """Return the activation at z."""
        return self.evaluate(z, _NEW)[0] if self.kernels is None else self.kernels.value(z)

    def pull(self, d_value: Tensor, z: Tensor, value: Tensor) -> Tensor:
        """Return the gradient of z from that of the value."""
        if self.kernels is None:
            return d_value * self.evaluate(z, _NEW)[1]
        return self.kernels.pull(d_value, z, value)

    def derivatives(self, z: Tensor, out: Buffers = _NEW) -> Derivatives:
        """Return s, s' and s'' at z."""
        return self.evaluate(z, out)


_aten = torch.ops.aten


def _silu(z: Tensor, out: Buffers) -> Derivatives:
    # With r = sigma (1 - s): s' = s + r and s'' = (s' + r)(1 - sigma), all in fused operations.
    sigmoid = torch.sigmoid(z, out=out.work)
    if z.is_cuda and out.value is not None and out.slope is not None:
        # 12 instead of 17 passes over memory; on a CPU, three exponentials instead of one would take longer.
        value = _aten.silu.out(z, out=out.value)
        slope = _aten.silu_backward.grad_input(z.new_ones(()), z, grad_input=out.slope)
        total = torch.lerp(value, slope, 2.0, out=out.curvature)
        return value, slope, torch.addcmul(total, total, sigmoid, value=-1, out=out.curvature)
    value = torch.mul(z, sigmoid, out=out.value)
    rest = torch.addcmul(sigmoid, value, sigmoid, value=-1, out=out.curvature)
    slope = torch.add(value, rest, out=out.slope)
    total = rest.add_(slope)
    return value, slope, torch.addcmul(total, total, sigmoid, value=-1, out=out.curvature)


def _gelu(z: Tensor, out: Buffers) -> Derivatives:
    cumulative = torch.erf(z * math.sqrt(0.5), out=out.work).add_(1).mul_(0.5)
    value = torch.mul(z, cumulative, out=out.value)
    square = z * z
    density = torch.exp(square * -0.5) * (1 / math.sqrt(2 * math.pi))
    slope = torch.addcmul(cumulative, z, density, out=out.slope)
    return value, slope, torch.mul(density, 2 - square, out=out.curvature)


def _tanh(z: Tensor, out: Buffers) -> Derivatives:
    value = torch.tanh(z, out=out.value)
    slope = torch.addcmul(z.new_full((), 1.0), value, value, value=-1, out=out.slope)
    return value, slope, torch.mul(value, slope, out=out.curvature).mul_(-2)


def _sigmoid(z: Tensor, out: Buffers) -> Derivatives:
    value = torch.sigmoid(z, out=out.value)
    slope = torch.addcmul(value, value, value, value=-1, out=out.slope)
    return value, slope, torch.addcmul(slope, slope, value, value=-2, out=out.curvature)


def _softplus(beta: float) -> Callable[[Tensor, Buffers], Derivatives]:
    def evaluate(z: Tensor, out: Buffers) -> Derivatives:
        scaled = beta * z
        slope = torch.sigmoid(scaled, out=out.slope)
        value = torch.div(torch.logaddexp(scaled, z.new_zeros(())), beta, out=out.value)
        return value, slope, torch.addcmul(slope, slope, slope, value=-1, out=out.curvature).mul_(beta)

    return evaluate


def _relu(z: Tensor, out: Buffers) -> Derivatives:
    value = torch.relu(z) if out.value is None else torch.clamp_min(z, 0, out=out.value)
    # The sign of the rectified value is the mask; much faster on CPU than comparing and casting.
    return value, torch.sign(value, out=out.slope), None


def _leaky_relu(negative: float) -> Callable[[Tensor, Buffers], Derivatives]:
    def evaluate(z: Tensor, out: Buffers) -> Derivatives:
        rectified = torch.relu(z)
        value = torch.lerp(rectified, z, negative, out=out.value)
        return value, torch.sign(rectified, out=out.slope).mul_(1 - negative).add_(negative), None

    return evaluate


def _elu(alpha: float) -> Callable[[Tensor, Buffers], Derivatives]:
    def evaluate(z: Tensor, out: Buffers) -> Derivatives:
        rectified = torch.relu(z)
        above = torch.sign(rectified)
        below = torch.expm1(z - rectified) * alpha
        # alpha exp(z) below zero; above zero it is alpha, which the mask removes.
        powers = below + alpha
        curvature = torch.addcmul(powers, powers, above, value=-1, out=out.curvature)
        value, slope = torch.add(rectified, below, out=out.value), torch.add(curvature, above, out=out.slope)
        return value, slope, curvature

    return evaluate


_SILU = Kernels(nn.functional.silu, lambda d, z, _: _aten.silu_backward(d, z))
_GELU = Kernels(nn.functional.gelu, lambda d, z, _: _aten.gelu_backward(d, z))
_TANH = Kernels(torch.tanh, lambda d, _, value: _aten.tanh_backward(d, value))
_SIGMOID = Kernels(torch.sigmoid, lambda d, _, value: _aten.sigmoid_backward(d, value))
_RELU = Kernels(torch.relu, lambda d, _, value: _aten.threshold_backward(d, value, 0))


def find_activation(module: nn.Module) -> Activation | None:
    """Return the activation that a torch module computes, or None if it is not a known elementwise one.

    Only exact types are recognised: a subclass may compute anything.
    """
    if type(module) is nn.SiLU:
        return Activation(_silu, kernels=_SILU)
    if type(module) is nn.GELU and module.approximate == "none":
        return Activation(_gelu, kernels=_GELU)
    if type(module) is nn.Tanh:
        return Activation(_tanh, kernels=_TANH)
    if type(module) is nn.Sigmoid:
        return Activation(_sigmoid, kernels=_SIGMOID)
    if type(module) is nn.Softplus and module.threshold >= 20:
        return Activation(_softplus(float(module.beta)))
    if type(module) is nn.ReLU:
        return Activation(_relu, smooth=False, curved=False, kernels=_RELU)
    if type(module) is nn.LeakyReLU:
        return Activation(_leaky_relu(float(module.negative_slope)), smooth=False, curved=False)
    if type(module) is nn.ELU:
        return Activation(_elu(float(module.alpha)), smooth=module.alpha == 1)
    return None


@dataclass(frozen=True)
class LayeredNetwork:
    """The weights of ``x -> W_L s(... s(W_1 x + c_1) ...) + c_L`` with one output, and its activations."""

    weights: tuple[Tensor, ...]  # one (outputs, inputs) matrix per layer; the last has one row
    biases: tuple[Tensor | None, ...]  # one vector per layer, or None
    activations: tuple[Activation, ...]  # one fewer than there are layers

    @property
    def n_hidden(self) -> int:
        """The number of hidden layers."""
        return len(self.activations)

    @property
    def smooth(self) -> bool:
        """True if every activation has a continuous derivative."""
        return all(activation.smooth for activation in self.activations)

    @classmethod
    def recognise(cls, module: nn.Module) -> "LayeredNetwork | None":
        """Read a module as a layered network, or return None if it is not certainly one.

        Recognised is an ``nn.Sequential`` (nested, or a subclass that keeps its forward) of alternating
        ``Linear`` and known activations, ending in one output. Dropout is skipped, since attributions are
        those of evaluation mode; so is a final ``Flatten(0)``, which turns (n, 1) into (n,). A compiled
        module is unwrapped. A module with hooks, parametrisations or its own forward takes the general path.
        """
        steps = sequential_steps(getattr(module, "_orig_mod", module))
        if steps is None:
            return None
        if steps and type(steps[-1]) is nn.Flatten and steps[-1].start_dim == 0:
            steps = steps[:-1]
        steps = [step for step in steps if type(step) not in (nn.Dropout, nn.Identity)]
        between = steps[1::2]
        linear = [step for step in steps[0::2] if isinstance(step, nn.Linear) and type(step) is nn.Linear]
        if len(linear) != len(between) + 1 or len(linear) + len(between) != len(steps):
            return None
        if linear[-1].out_features != 1:
            return None
        activations = [find_activation(step) for step in between]
        known = tuple(activation for activation in activations if activation is not None)
        if len(known) != len(activations):
            return None
        weights, biases = tuple(step.weight for step in linear), tuple(step.bias for step in linear)
        return cls(weights, biases, known)


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
