"""Values of the standard terms of an objective and their gradients, without a graph.

The readable terms in `gcig.losses.terms` are about a hundred operations on a few hundred numbers, and a graph
of them costs several times their arithmetic. Functions here return the value of a term, and add its gradient
times `weight` to an array. They are for a CPU and a single process.
"""

import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from gcig.core.disparity import UNDEFINED_BELOW, defined_rows

# Distances below it have the gradient zero; the square of its inverse does not overflow.
_TINY = 1e-18


def pull_cross_entropy(
    logits: Tensor, targets: Tensor, weights: Tensor | None, weight: float, d_logits: Tensor
) -> Tensor:
    """`gcig.losses.terms.PredictionTerm`."""
    difference, scale = torch.sigmoid(logits).sub_(targets), weight / len(logits)
    if weights is None:
        d_logits.add_(difference, alpha=scale)
        return softplus(logits).sum().sub_(torch.dot(logits, targets)).div_(len(logits))
    d_logits.addcmul_(difference, weights, value=scale)
    return torch.dot(softplus(logits).addcmul_(logits, targets, value=-1), weights).div_(len(logits))


def pull_selection(
    logits: Tensor,
    targets: Tensor,
    weights: Tensor | None,
    weight: float,
    d_logits: Tensor,
    *,
    cut: float,
    temperature: float,
) -> Tensor:
    """`gcig.losses.terms.SelectionTerm`."""
    soft = _soften(logits, cut, temperature)
    difference = soft - _soften(torch.logit(targets), cut, temperature)
    slope = torch.addcmul(soft, soft, soft, value=-1)
    if weights is None:
        value, total = difference.mean(), float(len(logits))
    else:
        total = float(weights.sum())
        value = torch.dot(difference, weights).div_(total)
        slope.mul_(weights)
    d_logits.add_(slope, alpha=_sign(float(value)) * weight / (temperature * total))
    return value.abs_()


class SoftRates(NamedTuple):
    """The soft rates of cells, and what their pullback needs; see `gcig.losses.outcome.soft_rates`."""

    rates: Tensor
    present: Tensor
    soft: Tensor
    shares: Tensor

    @classmethod
    def compute(cls, logits: Tensor, membership: Tensor, cut: float, temperature: float) -> "SoftRates":
        """Compute the rates (conditions, groups) of logits (n,) with a membership (conditions, groups, n)."""
        soft = _soften(logits, cut, temperature)
        totals = membership.sum(-1)
        shares = membership / totals.clamp(min=torch.finfo(totals.dtype).tiny).unsqueeze(-1)
        return cls(shares @ soft, totals.sign_(), soft, shares)

    def pull(self, d_rates: Tensor, scale: float, d_logits: Tensor) -> None:
        """Add `scale` times the gradient of the softened logits to that of the logits."""
        d_soft = torch.mv(self.shares.flatten(0, 1).T, d_rates.flatten())
        slope = torch.addcmul(self.soft, self.soft, self.soft, value=-1)
        d_logits.addcmul_(d_soft, slope, value=scale)


def pull_pairwise_gap(rates: Tensor, present: Tensor, smoothness: float) -> tuple[Tensor, Tensor]:
    """Return `gcig.losses.outcome.pairwise_gap` and the gradient of the rates."""
    n_present = present.sum(1, keepdim=True).unsqueeze(-1)
    differences = rates.unsqueeze(-1) - rates.unsqueeze(-2)  # every pair twice, with both signs
    pair_weights = present.unsqueeze(1) * present.unsqueeze(2)
    pair_weights = pair_weights.div_((n_present * (n_present - 1)).clamp_(min=1))
    if not smoothness:
        slopes = differences.sign()
        value = (differences.abs_() * pair_weights).sum()
    else:
        # Huber's loss divided by its width: the slope is the clipped difference, the value follows from it.
        slopes = differences.div_(smoothness).clamp(-1, 1)
        value = (slopes * (differences - slopes / 2) * pair_weights).sum().mul_(smoothness)
    return value, slopes.mul_(pair_weights).sum(2).mul_(2)


def pull_excess(logits: Tensor, pairs: Tensor, limits: Tensor, weight: float, d_logits: Tensor) -> Tensor:
    """`gcig.losses.terms.AttributeTerm`, for one pair or more."""
    places, count = pairs.flatten(), pairs.shape[1]
    rows, copies = logits.index_select(0, places).view_as(pairs)
    difference = rows - copies
    excess = difference.abs().sub_(limits).clamp_min_(0)
    pull = difference.sign_().mul_(excess.sign()).mul_(weight / count)
    d_logits.index_add_(0, places, torch.cat([pull, -pull]))
    return excess.mean()


def _soften(logits: Tensor, cut: float, temperature: float) -> Tensor:
    return torch.sub(logits, cut).mul_(1 / temperature).sigmoid_()


def _sign(value: float) -> float:
    return math.copysign(1.0, value) if value else 0.0


class Part(NamedTuple):
    """Attributions that a term compares, taken from those of one kind of references.

    `start` is the position of the first reference, and `n_members` their number per group. Attributions are
    averaged over the members of a group unless `each_member`.
    """

    start: int
    n_members: int
    each_member: bool

    @property
    def n_copies(self) -> int:
        """How many attributions each row has per group."""
        return self.n_members if self.each_member else 1


class Disparity(NamedTuple):
    """The mean disparity of a part: `gcig.losses.terms.ReasonTerm`."""

    part: Part


class Distance(NamedTuple):
    """The distance of a part from another one, which is held fixed: `gcig.losses.terms.ConsistencyTerm`."""

    part: Part
    fixed: Part


class Shortfall(NamedTuple):
    """The shortfall of effective columns under `least`: `gcig.losses.terms.ColumnTerm`."""

    part: Part
    least: float


class ReasonTerms:
    """Terms that compare attributions, divided by their l1 norm plus `eps`, with one pullback for all.

    `blocks` is the matrix that sums columns; see `gcig.core.disparity.block_matrix`.
    """

    def __init__(
        self,
        terms: Sequence[Disparity | Distance | Shortfall],
        n_groups: int,
        blocks: Tensor | None,
        eps: float,
    ) -> None:
        self.terms, self.n_groups, self.blocks, self.eps = terms, n_groups, blocks, eps
        used = [part for term in terms for part in term if isinstance(part, Part)]
        self.parts = {part: place for place, part in enumerate(dict.fromkeys(used))}
        self._plans: dict[int, _Plan] = {}

    def pull(
        self,
        attributions: Tensor,
        row_weights: Tensor,
        weights: Sequence[float],
        reweigh: Callable[[Part, Tensor], Tensor],
    ) -> tuple[list[Tensor], Tensor]:
        """Return the terms, and the gradient of their weighted sum.

        Parameters
        ----------
        attributions : Tensor of shape (references, n, columns)
            Those relative to means are one per group; those relative to members are ordered by group.
        row_weights : Tensor of shape (n,)
            The weight of each row in a mean disparity.
        reweigh : callable
            Returns the weights of the rows of a part, given which of them are defined.
        """
        n = attributions.shape[1]
        if n not in self._plans:
            self._plans[n] = _Plan.of(list(self.parts), n, attributions)
        plan = self._plans[n]
        reduced = attributions if self.blocks is None else attributions @ self.blocks.to(attributions.dtype)
        compared = torch.cat([self._take(reduced, part) for part in self.parts], dim=1)
        norms = compared.abs().sum(-1)
        least, largest = map(float, norms.aminmax())
        defined: list[Tensor] | None = None
        if least > UNDEFINED_BELOW * largest:
            row_weights = row_weights.index_select(0, plan.rows).mul_(plan.factors)
        else:
            defined = [defined_rows(norms[:, span]) for span in plan.spans]
            row_weights = torch.cat(list(map(reweigh, self.parts, defined)))
        inverse = norms.add_(self.eps).reciprocal_().unsqueeze(-1)
        points, signs = compared * inverse, compared.sign_()
        of_parts = [0.0] * len(self.parts)
        for term, weight in zip(self.terms, weights, strict=True):
            if isinstance(term, Disparity):
                of_parts[self.parts[term.part]] += weight
        pull = torch.mv(plan.own.T, plan.own.new_tensor(of_parts)).mul_(row_weights)
        disparities, d_points = _pull_disparity(points, pull)
        means = torch.mv(plan.own, disparities.mul_(row_weights)).unbind()
        values = []
        for term, weight in zip(self.terms, weights, strict=True):
            place = self.parts[term.part]
            span = plan.spans[place]
            if isinstance(term, Disparity):
                values.append(means[place])
            elif isinstance(term, Distance):
                fixed = plan.spans[self.parts[term.fixed]]
                values.append(_pull_distance(points[:, span], points[:, fixed], weight, d_points[:, span]))
            else:
                own = signs[:, span] if defined is None else signs[:, span] * defined[place].unsqueeze(-1)
                values.append(_pull_shortfall(points[:, span], own, term.least, weight, d_points[:, span]))
        # Back through the norm, the parts, and the sums over blocks.
        along = points.mul_(d_points).sum(-1, keepdim=True)
        d_compared = d_points.addcmul_(signs, along, value=-1).mul_(inverse)
        d_reduced = torch.zeros_like(reduced)
        for part, span in zip(self.parts, plan.spans, strict=True):
            d_part = d_compared[:, span].unflatten(1, (part.n_copies, n))
            self._references(d_reduced, part).add_(d_part, alpha=part.n_copies / part.n_members)
        return values, d_reduced if self.blocks is None else d_reduced @ self.blocks.T.to(d_reduced.dtype)

    def _references(self, attributions: Tensor, part: Part) -> Tensor:
        """Return the attributions that a part consists of, shape (groups, members, n, columns)."""
        count = self.n_groups * part.n_members
        return attributions[part.start : part.start + count].unflatten(0, (self.n_groups, part.n_members))

    def _take(self, attributions: Tensor, part: Part) -> Tensor:
        taken = self._references(attributions, part)
        return taken.flatten(1, 2) if part.n_copies == part.n_members else taken.mean(1)


class _Plan(NamedTuple):
    """Positions of the parts among all compared rows, the row and factor of each, and a mask per part."""

    spans: list[slice]
    rows: Tensor
    factors: Tensor
    own: Tensor

    @classmethod
    def of(cls, parts: Sequence[Part], n: int, like: Tensor) -> "_Plan":
        lengths = [n * part.n_copies for part in parts]
        stops = list(accumulate(lengths))
        spans = [slice(stop - length, stop) for stop, length in zip(stops, lengths, strict=True)]
        own, factors = like.new_zeros(len(parts), stops[-1]), like.new_empty(stops[-1])
        for place, (part, span) in enumerate(zip(parts, spans, strict=True)):
            own[place, span] = 1.0
            factors[span] = 1 / part.n_copies
        return cls(spans, torch.arange(stops[-1]) % n, factors, own)


def _pull_disparity(points: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return `gcig.core.numerics.root_mean_square_distance`, and the gradient of its weighted sum."""
    groups = len(points)
    if groups == 2:
        spread = points[0] - points[1]
        disparity = torch.linalg.vector_norm(spread, dim=-1)
        pull = weights.div_(disparity.clamp_min(_TINY))
        return disparity, torch.stack([pull, -pull]).unsqueeze(-1) * spread
    spread = points - points.mean(0)
    lengths = torch.linalg.vector_norm(spread, dim=-1)
    disparity = torch.linalg.vector_norm(lengths, dim=0).mul_((2 / (groups - 1)) ** 0.5)
    pull = weights.div_(disparity.clamp_min(_TINY)).mul_(2 / (groups - 1))
    return disparity, spread.mul_(pull.unsqueeze(-1))


def _pull_distance(points: Tensor, fixed: Tensor, weight: float, d_points: Tensor) -> Tensor:
    difference = points - fixed
    distance = torch.linalg.vector_norm(difference, dim=-1)
    pull = distance.clamp_min(_TINY).reciprocal_().mul_(weight / distance.numel())
    d_points.addcmul_(difference, pull.unsqueeze(-1))
    return distance.mean()


def _pull_shortfall(points: Tensor, signs: Tensor, least: float, weight: float, d_points: Tensor) -> Tensor:
    mean = (points * signs).mean((0, 1))
    total = mean.sum()
    shares = (mean / total).clamp_min_(torch.finfo(mean.dtype).tiny)
    logs = shares.log()
    short = torch.dot(shares, logs).add_(math.log(least))
    if float(short) <= 0:
        return short.zero_()
    d_shares = logs.add_(1)
    d_mean = d_shares.sub_(torch.dot(d_shares, shares)).div_(total)
    d_points.addcmul_(signs, d_mean, value=weight / (signs.shape[0] * signs.shape[1]))
    return short
