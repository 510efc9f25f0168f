"""The terms of an objective whose gradients are written by hand, in `gcig.engine.term_gradients`.

The terms of `gcig.losses.terms` are the definition. `gcig.losses.objective` uses the hand-written gradients
only if they agree with it, and as long as none of the functions that they stand in for is replaced.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gcig.core import disparity
from gcig.engine.term_gradients import (
    Disparity,
    Distance,
    Part,
    ReasonTerms,
    Shortfall,
    SoftRates,
    pull_cross_entropy,
    pull_excess,
    pull_pairwise_gap,
    pull_selection,
)
from gcig.losses import outcome, terms
from gcig.losses.terms import (
    AttributeTerm,
    ColumnTerm,
    ConsistencyTerm,
    MiniBatch,
    OutcomeTerm,
    PredictionTerm,
    ReasonTerm,
    SelectionTerm,
    Term,
)

_MOST_GROUPS = 8  # whose rates are compared in plain Python
_PENALTY_METHODS = ("forward", "value", "compare", "reduce", "normalise", "row_weights", "attribute")
_LOSS_METHODS = ("forward", "of_rates", "membership", "conditions")


class Pulled(NamedTuple):
    """Values of terms, and the gradients of logits and attributions."""

    values: dict[str, Tensor]
    d_logits: Tensor
    d_attributions: Tensor | None


class StandardTerms:
    """The standard ones among some terms, with hand-written gradients.

    Terms that compare attributions must do so alike: a term whose penalty differs from the first one in its
    definition or its sums over columns is not among them.
    """

    def __init__(self, candidates: Mapping[str, Term]) -> None:
        first: Any = None
        self.terms: dict[str, Any] = {}
        for name, term in candidates.items():
            penalties: Sequence[Any] = getattr(term, "penalties", ())
            first = first or next(iter(penalties), None)
            if is_standard(term) and all(_are_alike(penalty, first) for penalty in penalties):
                self.terms[name] = term
        self._of_logits = {
            name: _of_logits(term) for name, term in self.terms.items() if type(term) in _PULLS
        }
        self._of_reasons: dict[Hashable, tuple[ReasonTerms, Any]] = {}
        self._definitions = self._read_definitions()

    def hold(self) -> bool:
        """Return whether the readable functions are still those that the terms were made of."""
        return all(getattr(owner, name) is function for (owner, name), function in self._definitions.items())

    def _read_definitions(self) -> dict[tuple[Any, str], object]:
        places: list[tuple[Any, str]] = [(disparity, "disparity"), (disparity, "normalise")]
        places += [(outcome, "pairwise_gap"), (outcome, "soft_rates")]
        places += [(terms, "column_shortfall"), (terms, "binary_cross_entropy_with_logits")]
        for term in self.terms.values():
            places.append((type(term), "__call__"))
            for penalty in getattr(term, "penalties", ()):
                places += [(type(penalty), name) for name in _PENALTY_METHODS]
            if type(term) is OutcomeTerm:
                places += [(type(term.loss), name) for name in _LOSS_METHODS]
        return {place: getattr(*place) for place in places}

    @torch.no_grad()
    def pull(
        self,
        batch: MiniBatch,
        logits: Tensor,
        attributions: Tensor | None,
        references: Sequence[Any],
        weights: Mapping[str, float],
    ) -> Pulled:
        """Return the values and gradients of the standard terms among those that count.

        Parameters
        ----------
        attributions : Tensor of shape (references, n, columns) or None
            The attributions relative to all `references`, one after another.
        weights : mapping of name to float
            The terms that count, with their weights.
        """
        d_logits, values = torch.zeros_like(logits), {}
        explained = []
        for name, weight in weights.items():
            if name in self._of_logits:
                values[name] = self._of_logits[name](batch, logits, weight, d_logits)
            elif name in self.terms and attributions is not None:
                explained.append(name)
        if attributions is None or not explained:
            nothing = None if attributions is None else torch.zeros_like(attributions)
            return Pulled(values, d_logits, nothing)
        engine, first = self._make_reason_terms(tuple(explained), references)
        row_weights = batch.penalty_weights(first)
        assert row_weights is not None

        def reweigh(part: Part, defined: Tensor) -> Tensor:
            for name, term in zip(explained, engine.terms, strict=True):
                if term == Disparity(part):
                    self.terms[name].penalty.n_undefined += (~defined).sum()
            _, labels, sample_weight = batch.explained
            labels = labels.repeat(part.n_copies)
            sample_weight = None if sample_weight is None else sample_weight.repeat(part.n_copies)
            found: Tensor = first.row_weights(attributions, labels, sample_weight, defined)
            return found

        reasons, d_attributions = engine.pull(
            attributions, row_weights, [weights[name] for name in explained], reweigh
        )
        values.update(zip(explained, reasons, strict=True))
        return Pulled(values, d_logits, d_attributions)

    def _make_reason_terms(
        self, names: tuple[str, ...], references: Sequence[Any]
    ) -> tuple[ReasonTerms, Any]:
        """Return the terms that compare attributions in the form of the engine, and their first penalty."""
        key = (names, *map(id, references))
        if key not in self._of_reasons:
            lengths = [each.values.shape[1] * getattr(each, "n_members", 1) for each in references]
            starts = dict(zip(map(id, references), accumulate([0, *lengths]), strict=False))
            chosen = [self.terms[name] for name in names]
            first = chosen[0].penalties[0]
            engine = ReasonTerms(
                [_compared(term, starts) for term in chosen],
                first.references.values.shape[1],
                first.blocks,
                first.definition.eps,
            )
            self._of_reasons[key] = engine, first
        return self._of_reasons[key]


def is_standard(term: Term) -> bool:
    """Return whether the engine has the gradient of a term; subclasses may compute anything."""
    if type(term) is OutcomeTerm:
        loss = term.loss
        return type(loss) in outcome.OUTCOME_LOSSES.values() and (loss.n_groups or math.inf) <= _MOST_GROUPS
    if type(term) is AttributeTerm and term.of_decisions:
        return False
    return type(term) in (*_PULLS, ReasonTerm, ConsistencyTerm, ColumnTerm)


def _are_alike(penalty: Any, first: Any) -> bool:
    """Return whether two penalties compare attributions alike."""
    if not (getattr(penalty, "is_standard", False) and getattr(first, "is_standard", False)):
        return False
    same = penalty.blocks is first.blocks or (
        penalty.blocks is not None and first.blocks is not None and torch.equal(penalty.blocks, first.blocks)
    )
    return same and penalty.definition == first.definition


def _pull_prediction(
    _: PredictionTerm, batch: MiniBatch, logits: Tensor, weight: float, d_logits: Tensor
) -> Tensor:
    return pull_cross_entropy(logits, batch.targets, batch.weights, weight, d_logits)


def _pull_selection(
    term: SelectionTerm, batch: MiniBatch, logits: Tensor, weight: float, d_logits: Tensor
) -> Tensor:
    n = len(batch.labels)
    return pull_selection(
        logits[:n],
        batch.targets[:n],
        batch.row_weights,
        weight,
        d_logits[:n],
        cut=term.cut,
        temperature=term.temperature,
    )


def _pull_outcome(
    term: OutcomeTerm, memberships: Tensor, batch: MiniBatch, logits: Tensor, weight: float, d_logits: Tensor
) -> Tensor:
    n, loss = len(batch.labels), term.loss
    cells = torch.add(batch.groups, batch.labels, alpha=loss.n_groups)
    membership = memberships.to(logits.dtype).index_select(0, cells)
    if batch.weights is not None:
        membership.mul_(batch.weights[:n].unsqueeze(1))
    found = SoftRates(logits[:n], membership, loss.cut, loss.temperature)
    shape = (-1, loss.n_groups)
    rates, present = found.rates.view(shape), found.present.view(shape)
    rates, present = loss.follow(rates, present, logits[:n], membership.T.view(*rates.shape, n))
    value, d_rates = pull_pairwise_gap(rates.tolist(), present.tolist(), loss.smoothness)
    found.pull(logits.new_tensor(d_rates), weight, d_logits[:n])
    return logits.new_tensor(value)


def _pull_attribute(
    term: AttributeTerm, batch: MiniBatch, logits: Tensor, weight: float, d_logits: Tensor
) -> Tensor:
    if batch.pairs is None:
        return logits.new_zeros(())
    return pull_excess(
        logits, batch.targets, batch.pairs, weight, d_logits, cut=term.cut, temperature=term.temperature
    )


_PULLS: dict[type, Callable[..., Tensor]] = {
    PredictionTerm: _pull_prediction,
    SelectionTerm: _pull_selection,
    OutcomeTerm: _pull_outcome,
    AttributeTerm: _pull_attribute,
}


def _of_logits(term: Any) -> Callable[..., Tensor]:
    """Return the pull of a term of the logits."""
    if type(term) is not OutcomeTerm:
        return partial(_PULLS[type(term)], term)
    # The membership of a row of every label and group, shape (labels x groups, conditions x groups).
    labels, groups = torch.meshgrid(torch.arange(2), torch.arange(term.loss.n_groups), indexing="ij")
    memberships = term.loss.membership(labels.flatten(), groups.flatten()).flatten(0, 1).T.contiguous()
    return partial(_pull_outcome, term, memberships)


def _compared(term: Any, starts: Mapping[int, int]) -> Disparity | Distance | Shortfall:
    """Return a term in the form of the engine; `starts` are the positions of the references by their id."""
    parts = [Part(starts[id(each.references)], each.n_members, each.each_member) for each in term.penalties]
    if type(term) is ReasonTerm:
        return Disparity(*parts)
    return Shortfall(parts[0], term.least) if type(term) is ColumnTerm else Distance(*parts)
