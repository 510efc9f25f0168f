r"""The reason gap: how far people's explanations lie apart relative to the groups, and its two parts.

Let :math:`a_{i,r}` be the explanation of person i relative to reference r: one number per column. Relative to
group g it is the mean over the group's references, :math:`\bar a_{i,g}`. With :math:`d_{i,g}` its difference
from the mean over the groups, the squared gap of a person is the mean over all pairs of groups of the squared
distance of the two,

.. math:: \text{gap}_i^2 = \tfrac{2}{G-1} \sum_g \|d_{i,g}\|^2,

and the reason gap the root of its mean over people, in units of the spread of the score. It is *not* divided
by the size of an explanation: larger explanations that cancel do not lower it.

The gap splits exactly into two parts. By completeness the columns of d add up to the same number for everyone
with one label. In an additive model each column's attribution is :math:`f_j(x_j) - f_j(r_j)`, so each column
of d is the same for everyone with that label. Hence

.. math:: \text{gap}^2 = \text{common}^2 + \text{varying}^2,

with *common* the part of d that is the same for all people of a label (the groups have other values in
columns that count) and *varying* the rest (a column counts differently for people who are alike): 0 for every
additive model.

References are a sample, and the square of a mean contains its noise. Without the products of a reference with
itself the estimate is unbiased: about 0 if the groups were drawn by coin. It may then be negative, and
`signed_root` keeps the sign.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def squared_gap(
    attributions: Tensor,
    weights: Tensor,
    *,
    sampled: bool = True,
    defined: Tensor | None = None,
    draws: int | None = None,
) -> Tensor:
    """Return the squared gap of each person, (..., people): the mean over pairs of groups.

    Parameters
    ----------
    attributions : Tensor of shape (references, people, columns)
    weights : Tensor of shape (..., groups, references)
        The weight of each reference in each group; leading dimensions are other groupings.
    sampled : bool
        Whether references are a sample of their group, whose noise has to be left out; otherwise the only
        reference of a group is the group.
    defined : Tensor of shape (groups, people), optional
        The groups that each person is compared with; by default all.
    draws : int, optional
        If references are draws of one per group, one draw after another: products within a draw are left out
        between groups as well, because its references may have entries in common.
    """
    groups, mass = weights.shape[-2], weights.sum(-1)
    total = (weights @ attributions.flatten(1)).unflatten(-1, attributions.shape[1:])
    means = total / mass[..., None, None].clamp_min(1e-30)  # (..., groups, people, columns)
    squares = means.square().sum(-1)  # (..., groups, people)
    if sampled:  # without the products of a reference with itself
        own = weights.square()
        pairs = (mass.square() - own.sum(-1)).clamp_min(1e-30)
        squares = (total.square().sum(-1) - own @ attributions.square().sum(-1)) / pairs[..., None]
    if defined is None:
        defined = attributions.new_ones(groups, 1)
    means, squares = means * defined.unsqueeze(-1), squares * defined
    # The sum over pairs of |m_g|^2 + |m_h|^2 - 2 m_g m_h.
    products = means.sum(-3).square().sum(-1) - means.square().sum(-1).sum(-2)
    if draws is not None and sampled:
        each = attributions.unflatten(0, (draws, groups)) * defined.unsqueeze(-1)
        within = each.sum(1).square().sum(-1) - each.square().sum(-1).sum(1)  # (draws, people)
        products = (draws**2 * products - within.sum(0)) / (draws * (draws - 1))
    count = defined.sum(0)
    gap: Tensor = 2 * ((count - 1) * squares.sum(-2) - products) / (count * (count - 1)).clamp_min(1)
    return gap


def centre_cells(
    attributions: Tensor, cells: Tensor, people: Tensor, n_cells: int | None = None
) -> tuple[Tensor, Tensor]:
    """Subtract from (references, people, columns) the mean over the people of each cell.

    ``people`` (people,) are weights. Return the rest, and how many people's worth of freedom it has.
    """
    count = int(cells.max()) + 1 if n_cells is None else n_cells  # to look at `cells` waits for a GPU
    member = (cells.unsqueeze(1) == torch.arange(count, device=cells.device)).to(people)
    weights = member * people.unsqueeze(1)  # (people, cells)
    share = weights / weights.sum(0).clamp_min(1e-30)
    freedom = people.sum() - (share * weights).sum()
    member, share = member.to(attributions.dtype), share.to(attributions.dtype)
    return attributions - member @ (share.T @ attributions), freedom


def reason_gap(
    attributions: Tensor,
    weights: Tensor,
    cells: Tensor,
    *,
    people: Tensor | None = None,
    sampled: bool = True,
    defined: Tensor | None = None,
    draws: int | None = None,
    n_cells: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the squared reason gap and its squared varying part, (...,).

    Parameters
    ----------
    attributions, weights, sampled, defined, draws
        As in `squared_gap`; attributions are divided by the spread of the score already.
    cells : Tensor of integers, shape (people,)
        The label of each person (the bin, if it is a number): people of one cell have the same references.
    people : Tensor of shape (people,), optional
        Weights; 0 leaves a person out.
    n_cells : int, optional
        The number of cells; by default the largest one that occurs, plus one.

    Examples
    --------
    Two groups with one reference each: the second column differs for the second person alone.

    >>> a = torch.tensor([[[1.0, 1.0], [1.0, 1.0]], [[0.0, 1.0], [0.0, 3.0]]])
    >>> gap, varying = reason_gap(a, torch.eye(2), torch.zeros(2, dtype=torch.long), sampled=False)
    >>> gap, varying
    (tensor(3.), tensor(2.))
    """
    if people is None:
        people = attributions.new_ones(attributions.shape[1])
    if defined is not None:
        people = people * (defined.sum(0) > 1)
        defined = defined.repeat(1, 2)
    rest, freedom = centre_cells(attributions, cells, people, n_cells)
    both = torch.cat([attributions, rest], dim=1)  # one pass over people, and over what is left of them
    squares = squared_gap(both, weights, sampled=sampled, defined=defined, draws=draws)
    gap, varying = (squares.unflatten(-1, (2, -1)) @ people).unbind(-1)
    return gap / people.sum().clamp_min(1e-30), varying / freedom.clamp_min(1e-30)


def signed_root(squares: Tensor) -> Tensor:
    """Return the root of estimated squares; the root of a negative one is negative.

    >>> signed_root(torch.tensor([0.04, -0.04]))
    tensor([ 0.2000, -0.2000])
    """
    return squares.sign() * squares.abs().sqrt()


def smooth_root(square: Tensor, floor: float, around: Tensor | None = None) -> Tensor:
    """Return about the root of an estimated square, with its sign and a finite slope at zero.

    Below ``floor`` the root becomes linear. With a steadier estimate ``around`` of the square, the result is
    linear in the square, so that noise does not bias its gradient.

    >>> smooth_root(torch.tensor(0.05), 0.0, around=torch.tensor(0.04))
    tensor(0.2500)
    """
    around = square if around is None else around
    return square / (around.detach().abs() + floor).sqrt()


def gaps_by_kind(
    attributions: Mapping[str, Tensor],
    kinds: Mapping[str, Any],
    baselines: Any,
    cells: Tensor,
    scale: Tensor | float,
    weights: Tensor | None = None,
) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the squared reason gap and its squared varying part by kind of references, in units of `scale`.

    ``attributions`` (draws x groups, n, columns) are relative to references of each kind, of rows in `cells`.
    """
    defined = None if baselines.all_defined else baselines.defined[cells].T  # (groups, n)
    gaps = {}
    for name, values in attributions.items():
        draws = len(values) // baselines.n_groups
        member = torch.eye(baselines.n_groups, dtype=values.dtype, device=values.device).repeat(1, draws)
        people = None if weights is None else weights.to(values.dtype)
        sampled = kinds[name].sampled
        if sampled and draws < 2:
            raise ValueError(
                f"the references {name!r} are a sample, of which there must be two or more draws: the square "
                "of a single one contains its noise"
            )
        gaps[name] = reason_gap(
            values / scale,
            member,
            cells,
            people=people,
            sampled=sampled,
            defined=defined,
            draws=draws,
            n_cells=baselines.task.n_cells,
        )
    return gaps


def spread(scores: Tensor, weights: Tensor | None = None) -> Tensor:
    r"""Return the spread of scores (n, ...) over people: :math:`\sqrt\pi / 2` times their mean difference.

    It is the standard deviation of normal scores. A standard deviation itself could be raised by a few people
    with extreme scores.

    >>> spread(torch.tensor([0.0, 1.0])).round(decimals=4)
    tensor(0.8862)
    """
    n = len(scores)
    shape = (-1, *[1] * (scores.dim() - 1))
    if weights is None:
        ranks = torch.arange(1 - n, n, 2, dtype=scores.dtype, device=scores.device).view(shape)
        return math.sqrt(math.pi) / n / max(1, n - 1) * (ranks * scores.sort(0).values).sum(0)
    ordered, order = scores.sort(0)
    share = (weights / weights.sum()).to(scores.dtype).view(shape).expand_as(scores).gather(0, order)
    ranks = 2 * share.cumsum(0) - share - 1
    return (
        math.sqrt(math.pi) * (share * ranks * ordered).sum(0) / (1 - share.square().sum(0)).clamp_min(1e-12)
    )
