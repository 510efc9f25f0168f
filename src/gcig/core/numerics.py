"""Norms and means that are safe at zero and for empty cells."""

import torch
from torch import Tensor

__all__ = ["masked_mean", "root_mean_square_distance", "vector_norm"]


def vector_norm(vectors: Tensor, norm: str) -> Tensor:
    """The l1 or l2 norm over the last dimension, with a zero gradient at zero.

    >>> vector_norm(torch.tensor([[3.0, -4.0]]), "l1"), vector_norm(torch.tensor([[3.0, -4.0]]), "l2")
    (tensor([7.]), tensor([5.]))
    """
    if norm == "l1":
        # Several times faster on CPU than `torch.linalg.vector_norm(ord=1)`.
        return vectors.abs().sum(-1)
    if norm == "l2":
        length: Tensor = torch.linalg.vector_norm(vectors, dim=-1)
        return length
    raise ValueError(f"norm must be 'l1' or 'l2', not {norm!r}")


def root_mean_square_distance(points: Tensor) -> Tensor:
    r"""Root mean square of the Euclidean distances over all pairs of the first dimension.

    For G points this is :math:`\sqrt{\frac{2}{G-1} \sum_g \|u_g - \bar u\|^2}`; for two it is their
    distance. The gradient is zero, not NaN, where all points coincide.

    Parameters
    ----------
    points : Tensor of shape (groups, n, columns)
        At least two groups.

    Returns
    -------
    Tensor of shape (n,)
    """
    groups = len(points)
    if groups == 2:
        return vector_norm(points[0] - points[1], "l2")
    spread = (points - points.mean(0)) * (2 / (groups - 1)) ** 0.5
    distance: Tensor = torch.linalg.vector_norm(spread, dim=(0, 2))
    return distance


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean of the values under a 0/1 mask over the last dimension; zero, with a graph, where none is.

    >>> masked_mean(torch.tensor([1.0, 5.0, 9.0]), torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]))
    tensor([3., 0.])
    """
    weights = mask.to(values.dtype)
    return torch.matmul(weights, values) / weights.sum(-1).clamp(min=1)
