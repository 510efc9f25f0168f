"""Values of the standard terms of an objective and their gradients, without a graph.

The readable terms in `gcig.losses.terms` are about a hundred operations on a few hundred numbers, and a graph
of them costs several times their arithmetic. Functions here return the value of a term, and add its gradient
times `weight` to an array. They are for a CPU and a single process.
"""

import math
from collections.abc import Callable, Sequence
from itertools import accumulate, combinations
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


class SoftRates:
    """The soft rates of cells, and their pullback: `gcig.losses.outcome.soft_rates`.

    `membership` has the shape (n, conditions x groups).
    """

    def __init__(self, logits: Tensor, membership: Tensor, cut: float, temperature: float) -> None:
        self.membership, self.temperature = membership, temperature
        self.soft = _soften(logits, cut, temperature)
        totals = membership.sum(0)
        self._inverse = totals.clamp(min=torch.finfo(totals.dtype).tiny).reciprocal_()
        self.rates = torch.mv(membership.T, self.soft).mul_(self._inverse)
        self.present = totals.sign_()

    def pull(self, d_rates: Tensor, weight: float, d_logits: Tensor) -> None:
        """Add the gradient of the logits, given that of the rates."""
        d_soft = torch.mv(self.membership, d_rates.mul_(self._inverse))
        slope = torch.addcmul(self.soft, self.soft, self.soft, value=-1)
        d_logits.addcmul_(d_soft, slope, value=weight / self.temperature)


def pull_pairwise_gap(
    rates: Sequence[Sequence[float]], present: Sequence[Sequence[float]], smoothness: float
) -> tuple[float, list[float]]:
    """Return `gcig.losses.outcome.pairwise_gap` and the gradient of the rates, one condition after another.

    A few numbers take less time in plain Python than a single operation on tensors.
    """
    value, gradient = 0.0, []
    for of_groups, exist in zip(rates, present, strict=True):
        pulls = [0.0] * len(of_groups)
        groups = [group for group, exists in enumerate(exist) if exists]
        n_pairs = len(groups) * (len(groups) - 1) / 2
        for one, other in combinations(groups, 2):
            difference = of_groups[one] - of_groups[other]
            if abs(difference) < smoothness:
                size, slope = difference * difference / (2 * smoothness), difference / smoothness
            else:
                size, slope = abs(difference) - smoothness / 2, _sign(difference)
            value += size / n_pairs
            pulls[one] += slope / n_pairs
            pulls[other] -= slope / n_pairs
        gradient += pulls
    return value, gradient


def pull_excess(
    logits: Tensor,
    targets: Tensor,
    pairs: Tensor,
    weight: float,
    d_logits: Tensor,
    *,
    cut: float,
    temperature: float,
) -> Tensor:
    """`gcig.losses.terms.AttributeTerm`, for one pair or more."""
    places, count = pairs.flatten(), pairs.shape[1]
    soft = _soften(logits.index_select(0, places), cut, temperature)
    rows, copies = soft.view_as(pairs)
    difference = rows - copies
    expected = _soften(torch.logit(targets.index_select(0, places)), cut, temperature).view_as(pairs)
    excess: Tensor = difference.abs().sum().sub_((expected[0] - expected[1]).abs_().sum()).div_(count)
    if excess < 0:
        return excess.zero_()
    pull = torch.cat([difference.sign_(), -difference])
    slope = torch.addcmul(soft, soft, soft, value=-1)
    d_logits.index_add_(0, places, pull.mul_(slope), alpha=weight / (temperature * count))
    return excess


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
        self._arrays: dict[int, _Arrays] = {}

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
        if n not in self._arrays:
            columns = attributions.shape[2] if self.blocks is None else self.blocks.shape[1]
            self._arrays[n] = _Arrays(
                list(self.parts), len(attributions), n, columns, self.n_groups, attributions
            )
        arrays = self._arrays[n]
        if self.blocks is None:
            arrays.reduced.copy_(attributions)
        else:
            torch.mm(attributions.flatten(0, 1), self.blocks.to(attributions.dtype), out=arrays.flat_reduced)
        arrays.take()
        points, d_points, signs = arrays.points, arrays.d_points, arrays.signs
        norms = torch.abs(arrays.compared, out=points).sum(-1)
        least, largest = norms.aminmax()
        defined: list[Tensor] | None = None
        if float(least) > UNDEFINED_BELOW * float(largest):
            row_weights = row_weights.index_select(0, arrays.rows).mul_(arrays.factors)
        else:
            defined = [defined_rows(norms[:, span]) for span in arrays.spans]
            row_weights = torch.cat(list(map(reweigh, self.parts, defined)))
        inverse = norms.add_(self.eps).reciprocal_().unsqueeze(-1)
        torch.mul(arrays.compared, inverse, out=points)
        torch.sign(arrays.compared, out=signs)
        of_parts = [0.0] * len(self.parts)
        for term, weight in zip(self.terms, weights, strict=True):
            if isinstance(term, Disparity):
                of_parts[self.parts[term.part]] += weight
        pull = torch.mv(arrays.own_transposed, points.new_tensor(of_parts)).mul_(row_weights)
        disparities = _pull_disparity(points, pull, d_points)
        means = torch.mv(arrays.own, disparities.mul_(row_weights)).unbind()
        values = []
        for term, weight in zip(self.terms, weights, strict=True):
            place = self.parts[term.part]
            own = arrays.views[place]
            if isinstance(term, Disparity):
                values.append(means[place])
            elif isinstance(term, Distance):
                fixed = arrays.views[self.parts[term.fixed]].points
                values.append(_pull_distance(own.points, fixed, weight, own.d_points))
            else:
                signs = own.signs if defined is None else own.signs * defined[place].unsqueeze(-1)
                values.append(_pull_shortfall(own.points, signs, term.least, weight, own.d_points))
        # Back through the norm, the parts, and the sums over blocks.
        along = points.mul_(d_points).sum(-1, keepdim=True)
        d_points.addcmul_(arrays.signs, along, value=-1).mul_(inverse)
        arrays.pull_take()
        if self.blocks is None:
            return values, arrays.reduced
        return values, torch.mm(arrays.flat_reduced, self.blocks.T.to(attributions.dtype)).view_as(
            attributions
        )


class _Views(NamedTuple):
    """Views of one part: of the references that it consists of, and of the arrays of all parts."""

    taken: Tensor  # (groups, members, n, columns)
    compared: Tensor  # (groups, copies, n, columns)
    d_compared: Tensor
    points: Tensor  # (groups, copies x n, columns)
    d_points: Tensor
    signs: Tensor


class _Arrays:
    """The arrays of all parts for a number of rows, with their views, which cost an operation each."""

    def __init__(
        self, parts: Sequence[Part], n_references: int, n: int, columns: int, n_groups: int, like: Tensor
    ) -> None:
        lengths = [n * part.n_copies for part in parts]
        stops = list(accumulate(lengths))
        self.spans = [slice(stop - length, stop) for stop, length in zip(stops, lengths, strict=True)]
        self.reduced = like.new_empty(n_references, n, columns)
        self.flat_reduced = self.reduced.view(-1, columns)
        arrays = like.new_empty(4, n_groups, stops[-1], columns)
        self.compared, self.points, self.d_points, self.signs = arrays.unbind()
        # The row of each compared row, its share in that row's weight, and one for the rows of each part.
        self.rows = torch.arange(stops[-1]) % n
        self.factors, self.own = like.new_empty(stops[-1]), like.new_zeros(len(parts), stops[-1])
        self.own_transposed = self.own.T
        self.parts, self.views = parts, []
        for place, (part, span) in enumerate(zip(parts, self.spans, strict=True)):
            self.factors[span], self.own[place, span] = 1 / part.n_copies, 1.0
            taken = self.reduced[part.start : part.start + n_groups * part.n_members]
            copies = (part.n_copies, n)
            self.views.append(
                _Views(
                    taken.unflatten(0, (n_groups, part.n_members)),
                    self.compared[:, span].unflatten(1, copies),
                    self.d_points[:, span].unflatten(1, copies),
                    self.points[:, span],
                    self.d_points[:, span],
                    self.signs[:, span],
                )
            )

    def take(self) -> None:
        """Copy the attributions of each part, or average them over members."""
        for part, view in zip(self.parts, self.views, strict=True):
            if part.n_copies == part.n_members:
                view.compared.copy_(view.taken)
            else:
                torch.mean(view.taken, 1, keepdim=True, out=view.compared)

    def pull_take(self) -> None:
        """Overwrite the attributions by their gradient: the adjoint of `take`."""
        self.reduced.zero_()
        for part, view in zip(self.parts, self.views, strict=True):
            view.taken.add_(view.d_compared, alpha=part.n_copies / part.n_members)


def _pull_disparity(points: Tensor, weights: Tensor, d_points: Tensor) -> Tensor:
    """Return `gcig.core.numerics.root_mean_square_distance`, and write the gradient of its weighted sum."""
    groups = len(points)
    if groups == 2:
        first, second = d_points.unbind()
        spread = torch.sub(*points.unbind(), out=second)
        disparity: Tensor = torch.linalg.vector_norm(spread, dim=-1)
        torch.mul(spread, weights.div_(disparity.clamp_min(_TINY)).unsqueeze(-1), out=first)
        torch.neg(first, out=second)
        return disparity
    spread = torch.sub(points, points.mean(0), out=d_points)
    lengths = torch.linalg.vector_norm(spread, dim=-1)
    disparity = torch.linalg.vector_norm(lengths, dim=0).mul_((2 / (groups - 1)) ** 0.5)
    spread.mul_(weights.div_(disparity.clamp_min(_TINY)).mul_(2 / (groups - 1)).unsqueeze(-1))
    return disparity


def _pull_distance(points: Tensor, fixed: Tensor, weight: float, d_points: Tensor) -> Tensor:
    difference = points - fixed
    distance: Tensor = torch.linalg.vector_norm(difference, dim=-1)
    pull = distance.clamp_min(_TINY).reciprocal_().mul_(weight / distance.numel())
    d_points.addcmul_(difference, pull.unsqueeze(-1))
    return distance.mean()


def _pull_shortfall(points: Tensor, signs: Tensor, least: float, weight: float, d_points: Tensor) -> Tensor:
    sizes = points * signs
    sums = sizes.sum(-1, keepdim=True).clamp_min_(_TINY)  # one, but for what `eps` adds to the norms
    mean = sizes.div_(sums).mean((0, 1))
    total = mean.sum()
    shares = (mean / total).clamp_min_(torch.finfo(mean.dtype).tiny)
    logs = shares.log()
    short = torch.dot(shares, logs).add_(math.log(least))
    if float(short) <= 0:
        return short.zero_()
    d_shares = logs.add_(1)
    d_mean = d_shares.sub_(torch.dot(d_shares, shares)).div_(total)
    d_sizes = (d_mean - (sizes @ d_mean).unsqueeze(-1)).div_(sums)
    d_points.addcmul_(signs, d_sizes, value=weight / (signs.shape[0] * signs.shape[1]))
    return short
