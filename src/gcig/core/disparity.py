r"""From attributions to disparity: how much a row's reasons depend on the group it is compared with.

With :math:`u_g` the attributions of a row under group g's baseline divided by their norm, the disparity is
the root mean square distance over all pairs of groups,

.. math:: V = \sqrt{\tfrac{2}{G-1} \sum_g \|u_g - \bar u\|^2},

which for two groups is :math:`\|u_0 - u_1\|`. All functions take attributions of shape (groups, n, columns).
"""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from gcig.core.numerics import root_mean_square_distance, vector_norm

__all__ = [
    "EPS",
    "Definition",
    "all_defined",
    "column_disparity",
    "defined_by_norms",
    "defined_rows",
    "disparity",
    "effective_columns",
    "normalise",
    "sum_blocks",
]

EPS = 1e-12
_UNDEFINED_BELOW = 1e-8
_CHOICES = {
    "norm": ("l1", "l2"),
    "rule": ("auto", "secant", "romberg", "right", "midpoint", "simpson", "gauss_legendre"),
    "columns": ("encoded", "original"),
    "label_weights": ("empirical", "equal", "sum"),
    "pairs": ("all", "random"),
}


@dataclass(frozen=True)
class Definition:
    """The choices behind a GCIG value; stored with every result.

    Parameters
    ----------
    norm : {"l1", "l2"}
        What attributions are divided by. The paper's text says l2, its algorithm and its tables l1.
    rule : {"auto", "secant", "romberg", "right", "midpoint", "simpson", "gauss_legendre"}
        How the path is integrated; ``rule="right", n_steps=16`` is the paper's.
    n_steps : int or "auto"
        Steps of the rule.
    columns : {"encoded", "original"}
        Whether the columns of a one-hot block are compared one by one or summed first.
    label_weights : {"empirical", "equal", "sum"}
        How the two labels' means are put together: by their frequencies, one half each, or added.
    eps : float
        Added to the norms.
    rows, every, pairs : float, int, {"all", "random"}
        What the penalty used of each mini-batch; see `gcig.GCIGPenalty`.

    Examples
    --------
    >>> Definition(norm="l2").to_dict()["norm"]
    'l2'
    """

    norm: str = "l1"
    rule: str = "auto"
    n_steps: int | str = "auto"
    columns: str = "encoded"
    label_weights: str = "empirical"
    eps: float = EPS
    rows: float = 1.0
    every: int = 1
    pairs: str = "all"

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {list(choices)}, not {getattr(self, name)!r}")
        if self.n_steps != "auto" and (not isinstance(self.n_steps, int) or self.n_steps < 1):
            raise ValueError(f"n_steps must be a positive integer or 'auto', not {self.n_steps!r}")
        if not self.eps > 0:
            raise ValueError(f"eps must be positive, not {self.eps}")
        if not 0 < self.rows <= 1:
            raise ValueError(f"rows must lie in (0, 1], not {self.rows}")
        if self.every < 1:
            raise ValueError(f"every must be at least 1, not {self.every}")

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return asdict(self)


def normalise(attributions: Tensor, *, norm: str = "l1", eps: float = EPS) -> Tensor:
    """Divide each attribution by its norm plus eps."""
    return attributions / (vector_norm(attributions, norm) + eps).unsqueeze(-1)


def disparity(attributions: Tensor, *, norm: str = "l1", eps: float = EPS) -> Tensor:
    """Disparity of each row, shape (n,); its gradient is zero, not NaN, where the groups agree.

    >>> attributions = torch.tensor([[[1.0, 1.0]], [[3.0, -1.0]]])  # two groups, one row, two columns
    >>> disparity(attributions)  # distance of (1/2, 1/2) and (3/4, -1/4)
    tensor([0.7906])
    """
    return root_mean_square_distance(normalise(attributions, norm=norm, eps=eps))


def column_disparity(attributions: Tensor, *, norm: str = "l1", eps: float = EPS) -> Tensor:
    """Root mean square distance between the groups on each column, shape (n, columns).

    Its squares add up to the squared disparity of the row.
    """
    normalised = normalise(attributions, norm=norm, eps=eps)
    groups = len(normalised)
    return ((2 / (groups - 1)) * (normalised - normalised.mean(0)).square().sum(0)).sqrt()


def defined_rows(attributions: Tensor) -> Tensor:
    """Whether a row's disparity has a meaning, shape (n,).

    It has none where one of the attributions is zero, that is, where its l1 norm is under 1e-8 of the
    median: such a row has no reasons that could differ, and is not called fair.
    """
    return defined_by_norms(vector_norm(attributions, "l1"))


def defined_by_norms(norms: Tensor) -> Tensor:
    """The same from the l1 norms, of shape (groups, n)."""
    return (norms > _UNDEFINED_BELOW * norms.median()).all(0)


def all_defined(norms: Tensor) -> bool:
    """Whether all rows are; quickly where no norm is much smaller than another."""
    if not norms.numel():
        return True
    least, largest = norms.aminmax()
    return float(least) > _UNDEFINED_BELOW * float(largest) or bool(defined_by_norms(norms).all())


def sum_blocks(attributions: Tensor, origin: Tensor, n_columns: int) -> Tensor:
    """Add up, with their signs, the encoded columns that came from one original column.

    Parameters
    ----------
    attributions : Tensor of shape (..., encoded columns)
    origin : Tensor of shape (encoded columns,)
        Which original column each came from.
    n_columns : int
        The number of original columns.

    >>> sum_blocks(torch.tensor([1.0, 2.0, -5.0]), torch.tensor([0, 1, 1]), 2)
    tensor([ 1., -3.])
    """
    summed = attributions.new_zeros(*attributions.shape[:-1], n_columns)
    return summed.index_add_(-1, origin.to(attributions.device), attributions)


def effective_columns(attributions: Tensor) -> float:
    """How many columns the model lives on: exp of the entropy of the mean absolute normalised attribution.

    >>> effective_columns(torch.tensor([[[1.0, -1.0, 0.0]], [[2.0, 2.0, 0.0]]]))
    2.0
    """
    share = normalise(attributions).abs().flatten(0, 1).mean(0)
    share = share / share.sum()
    return float(torch.special.entr(share).sum().exp())
