"""Elementwise activations with the derivatives that attributions of layered networks need."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

__all__ = ["Activation", "find_activation"]


@dataclass(frozen=True)
class Activation:
    """An elementwise function s with its first two derivatives.

    Parameters
    ----------
    derivatives : callable
        Maps z to ``(s(z), s'(z), s''(z))``; shared subexpressions (a sigmoid, say) are computed once.
    smooth : bool
        Whether s' is continuous. Where it jumps, the jumps move along the path with the parameters, and
        quadrature at fixed nodes loses the gradient that they carry.
    """

    derivatives: Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]
    smooth: bool = True


def _silu(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    # s' = sigma + s - s sigma and s'' = t - t sigma with t = s' + sigma - s sigma: few, fused operations.
    sigmoid = torch.sigmoid(z)
    value = z * sigmoid
    slope = torch.addcmul(sigmoid + value, value, sigmoid, value=-1)
    partial = torch.addcmul(slope + sigmoid, value, sigmoid, value=-1)
    return value, slope, torch.addcmul(partial, partial, sigmoid, value=-1)


def _gelu(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    cumulative = 0.5 * (1 + torch.erf(z * math.sqrt(0.5)))
    density = torch.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    return z * cumulative, cumulative + z * density, density * (2 - z * z)


def _tanh(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    value = torch.tanh(z)
    slope = 1 - value * value
    return value, slope, -2 * value * slope


def _sigmoid(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    value = torch.sigmoid(z)
    slope = value * (1 - value)
    return value, slope, slope * (1 - 2 * value)


def _softplus(beta: float) -> Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]:
    def derivatives(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        slope = torch.sigmoid(beta * z)
        return torch.logaddexp(beta * z, torch.zeros_like(z)) / beta, slope, beta * slope * (1 - slope)

    return derivatives


def _leaky_relu(negative: float) -> Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]:
    def derivatives(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rectified = torch.relu(z)
        value = torch.lerp(rectified, z, negative)
        return value, torch.sign(rectified).mul_(1 - negative).add_(negative), torch.zeros_like(z)

    return derivatives


def _relu(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    value = torch.relu(z)
    # The sign of the rectified value is the mask; much faster on CPU than comparing and casting.
    return value, torch.sign(value), torch.zeros_like(z)


def _elu(alpha: float) -> Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]:
    def derivatives(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        value = torch.nn.functional.elu(z, alpha)
        below = (z <= 0).to(z.dtype)
        curvature = below * (value + alpha)
        return value, curvature + (1 - below), curvature

    return derivatives


def find_activation(module: nn.Module) -> Activation | None:
    """The activation that a torch module computes, or None when it is not a known elementwise one.

    Only exact types are recognised: a subclass may compute anything.

    >>> find_activation(nn.SiLU()).smooth, find_activation(nn.ReLU()).smooth, find_activation(nn.GLU())
    (True, False, None)
    """
    kind = type(module)
    if kind is nn.SiLU:
        return Activation(_silu)
    if kind is nn.GELU and module.approximate == "none":
        return Activation(_gelu)
    if kind is nn.Tanh:
        return Activation(_tanh)
    if kind is nn.Sigmoid:
        return Activation(_sigmoid)
    if kind is nn.Softplus and module.threshold >= 20:
        return Activation(_softplus(float(module.beta)))
    if kind is nn.ReLU:
        return Activation(_relu, smooth=False)
    if kind is nn.LeakyReLU:
        return Activation(_leaky_relu(float(module.negative_slope)), smooth=False)
    if kind is nn.ELU:
        return Activation(_elu(float(module.alpha)), smooth=module.alpha == 1)
    return None
