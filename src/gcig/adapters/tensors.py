"""Rows as tensors of a module, and probabilities as logits."""

import numpy as np
import torch
from torch import Tensor, nn

from gcig._arrays import Floats, Rows


def to_tensor(rows: Rows, module: nn.Module) -> Tensor:
    """Copy ``rows`` to a tensor with the precision and device of the module (arrays may be read-only)."""
    like = first_parameter(module)
    return torch.tensor(rows, dtype=like.dtype, device=like.device)


def first_parameter(module: nn.Module) -> Tensor:
    """Return a tensor with the dtype and device that the inputs of the module should have."""
    return next((p for p in module.parameters() if p.is_floating_point()), torch.empty(0))


CLIP = 0.001  # probabilities are kept this far from 0 and 1, where the logit is infinite


def clipped_logits(probabilities: Floats) -> Floats:
    """Return the logits of probabilities that are clipped to [0.001, 0.999].

    >>> clipped_logits(np.array([0.5, 1.0])).round(3)
    array([0.   , 6.907])
    """
    inside = np.clip(probabilities, CLIP, 1 - CLIP)
    return np.asarray(np.log(inside) - np.log1p(-inside))


def clipped_logs(probabilities: Floats) -> Floats:
    """Return the logarithms of probabilities of classes (n, K) that are clipped to [0.001, 0.999]."""
    return np.asarray(np.log(np.clip(probabilities, CLIP, 1 - CLIP)))
