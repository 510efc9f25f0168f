r"""GCIG, the paper's formula: how far a person's normalised explanations lie apart relative to the groups.

With :math:`u_g` the explanation of a row relative to group g divided by its norm, the disparity of the row is
the root mean square distance over all pairs of groups,

.. math:: V = \sqrt{\tfrac{2}{G-1} \sum_g \|u_g - \bar u\|^2},

which for two groups is :math:`\|u_0 - u_1\|`; GCIG is its mean over rows. It divides an explanation by its
own size, so larger explanations that cancel lower it: see `gcig.core.gap` for the figure to conclude from.
All functions take attributions of shape (groups, n, columns).
"""

import torch
from torch import Tensor

from gcig.core.definition import EPS

UNDEFINED_BELOW = 1e-8  # definition: attributions this small, relative to the median, have vanished


def normalise(attributions: Tensor, *, norm: str = "l1", eps: float = EPS) -> Tensor:
    """Divide each attribution by its norm plus eps."""
    # A product with the inverse has a much cheaper gradient than a quotient.
    return attributions * (vector_norm(attributions, norm) + eps).reciprocal().unsqueeze(-1)


def disparity(
    attributions: Tensor, *, norm: str = "l1", eps: float = EPS, defined: Tensor | None = None
) -> Tensor:
    """Compute the disparity of each row, shape (n,); its gradient is zero, not NaN, if the groups agree.

    ``defined`` (groups, n) says among which groups each row is compared; by default all.

    >>> attributions = torch.tensor([[[1.0, 1.0]], [[3.0, -1.0]]])  # two groups, one row, two columns
    >>> disparity(attributions)  # distance of (1/2, 1/2) and (3/4, -1/4)
    tensor([0.7906])
    """
    return root_mean_square_distance(normalise(attributions, norm=norm, eps=eps), defined)


def column_disparity(attributions: Tensor, *, norm: str = "l1", eps: float = EPS) -> Tensor:
    """Compute the root mean square distance between the groups per column, shape (n, columns).

    The squares add up to the squared disparity of the row.
    """
    normalised = normalise(attributions, norm=norm, eps=eps)
    groups = len(normalised)
    return ((2 / (groups - 1)) * (normalised - normalised.mean(0)).square().sum(0)).sqrt()


def independent_squares(first: Tensor, second: Tensor, *, norm: str = "l1", eps: float = EPS) -> Tensor:
    r"""Estimate the squares of `column_disparity` from two independent estimates (..., groups, n, columns).

    The noise of an estimate adds to every distance, and its square to every squared distance. In the product
    of two independent differences, :math:`\tfrac{2}{G-1} \sum_g (u_g - \bar u)_j (u'_g - \bar u')_j`, it has
    mean zero instead. The result can be negative; see `gcig.core.gap.signed_root`.
    """
    units = (normalise(each, norm=norm, eps=eps) for each in (first, second))
    one, other = (unit - unit.mean(-3, keepdim=True) for unit in units)
    return (2 / (first.shape[-3] - 1)) * (one * other).sum(-3)


def defined_rows(norms: Tensor, scale: float | Tensor | None = None) -> Tensor:
    """Return which rows have a defined disparity, (n,), from the l1 norms of their attributions, (groups, n).

    A row is undefined if one of its attributions vanishes, that is, if its norm is under 1e-8 of the median
    (``scale``, if it is known from more rows): such a row has no reasons that could differ, and must not
    count as fair.
    """
    return (norms > UNDEFINED_BELOW * (norms.median() if scale is None else scale)).all(0)


def column_matrix(origin: Tensor, n_columns: int | None = None) -> Tensor:
    """Return the matrix (encoded columns, columns) that sums encoded columns by their original column.

    >>> torch.tensor([1.0, 2.0, -5.0]) @ column_matrix(torch.tensor([0, 1, 1]))
    tensor([ 1., -3.])
    """
    count = int(origin.max()) + 1 if n_columns is None else n_columns
    return (origin.unsqueeze(1) == torch.arange(count, device=origin.device)).float()


def sum_blocks(attributions: Tensor, origin: Tensor, n_columns: int) -> Tensor:
    """Sum, with their signs, the encoded columns that came from one original column, given by ``origin``.

    >>> sum_blocks(torch.tensor([1.0, 2.0, -5.0]), torch.tensor([0, 1, 1]), 2)
    tensor([ 1., -3.])
    """
    summed = attributions.new_zeros(*attributions.shape[:-1], n_columns)
    return summed.index_add_(-1, origin.to(attributions.device), attributions)


def column_shares(attributions: Tensor) -> Tensor:
    """Return each column's mean absolute l1-normalised attribution over rows and groups, shape (columns,)."""
    return normalise(attributions).abs().flatten(0, -2).mean(0)


def effective_columns(shares: Tensor) -> Tensor:
    """Return the number of columns that a model relies on: exp of the entropy of its column shares.

    >>> effective_columns(column_shares(torch.tensor([[[1.0, -1.0, 0.0]], [[2.0, 2.0, 0.0]]])))
    tensor(2.)
    """
    return column_entropy(shares).exp()


def column_entropy(shares: Tensor) -> Tensor:
    """Return the entropy of column shares: the logarithm of the effective number of columns."""
    entropy: Tensor = torch.special.entr((shares / shares.sum()).clamp_min(1e-20)).sum()
    return entropy


def vector_norm(vectors: Tensor, norm: str) -> Tensor:
    """Return the l1 or l2 norm over the last dimension; its gradient at zero is zero."""
    if norm == "l1":
        # Several times faster on CPU than `torch.linalg.vector_norm(ord=1)`.
        return vectors.abs().sum(-1)
    if norm == "l2":
        length: Tensor = torch.linalg.vector_norm(vectors, dim=-1)
        return length
    raise ValueError(f"norm must be 'l1' or 'l2', not {norm!r}")


def root_mean_square_distance(points: Tensor, defined: Tensor | None = None) -> Tensor:
    r"""Return the root mean square Euclidean distance (n,) over all pairs of points (groups, n, columns).

    For G points this is :math:`\sqrt{\frac{2}{G-1} \sum_g \|u_g - \bar u\|^2}`; for two it is their distance.
    ``defined`` (groups, n) says which points count; with fewer than two the distance is 0. The gradient is
    zero, not NaN, if all points coincide.
    """
    groups = len(points)
    if defined is not None:
        present = defined.unsqueeze(-1).to(points.dtype)
        count = present.sum(0)
        middle = (present * points).sum(0) / count.clamp_min(1)
        scale = (2 / (count - 1).clamp_min(1)).sqrt()
        masked: Tensor = torch.linalg.vector_norm(present * scale * (points - middle), dim=(0, 2))
        return masked
    if groups == 2:
        first, second = points.unbind()
        return vector_norm(first - second, "l2")
    spread = (points - points.mean(0)) * (2 / (groups - 1)) ** 0.5
    distance: Tensor = torch.linalg.vector_norm(spread, dim=(0, 2))
    return distance
