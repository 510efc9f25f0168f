"""Networks that users bring: tried on the encoded columns before anything is trained."""

from copy import deepcopy
from typing import cast

import torch
from torch import Tensor, nn

from gcig._validation import InputError, InputTypeError
from gcig.core.modules import evaluating

__all__ = ["copy_checked"]


def copy_checked(module: nn.Module, n_inputs: int) -> nn.Module:
    """A copy on the CPU of a network that maps (n, n_inputs) to one logit a row; anything else is an error.

    >>> copy_checked(nn.Linear(3, 1), 2)
    Traceback (most recent call last):
    gcig._tables.InputError: module cannot take rows of 2 encoded columns (RuntimeError: mat1...
    """
    if not isinstance(module, nn.Module):
        raise InputTypeError(f"module must be a torch.nn.Module, not a {type(module).__name__}.")
    network = deepcopy(module).cpu()
    trainable = [parameter for parameter in network.parameters() if parameter.requires_grad]
    if not trainable:
        raise InputError("module has no parameters that require gradients: there is nothing to train.")
    if any(parameter.dtype != torch.float32 for parameter in trainable):
        raise InputError("module must have float32 parameters, as the rows have: call module.float().")
    rows = torch.zeros(2, n_inputs, requires_grad=True)
    with evaluating(network), torch.enable_grad():
        scores = _scores(network, rows)
        gradient = None
        if scores.requires_grad:
            (gradient,) = torch.autograd.grad(scores.sum(), rows, allow_unused=True)
    if _ends_in_sigmoid(network):
        raise InputError(
            "module ends in a Sigmoid, and so gives probabilities. It must give logits: leave that out."
        )
    if gradient is None:
        raise InputError(
            "module: the network's output is not differentiable in its input. Remove detach(), no_grad(), "
            "rounding or argmax from its forward."
        )
    return network


def _ends_in_sigmoid(network: nn.Module) -> bool:
    """Whether the last part of a chain is one; of other networks nobody knows what comes last."""
    last = network
    while isinstance(last, nn.Sequential) and len(last):
        parts = [part for part in last if not isinstance(part, nn.Flatten | nn.Identity)]
        last = parts[-1] if parts else nn.Identity()
    return isinstance(last, nn.Sigmoid)


def _scores(network: nn.Module, rows: Tensor) -> Tensor:
    try:
        scores = network(rows)
    except Exception as error:  # whatever a user's forward may raise
        what = f"rows of {rows.shape[1]} encoded columns"
        raise InputError(f"module cannot take {what} ({type(error).__name__}: {error}).") from error
    found = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
    if found not in ((len(rows),), (len(rows), 1)):
        raise InputError(
            f"module must give one logit a row, shape (n,) or (n, 1), but for {len(rows)} rows gave {found}. "
            "Of two outputs a and b the logit is b - a: add that as a last layer."
        )
    return cast(Tensor, scores)
