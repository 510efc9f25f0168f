"""The terms of an objective whose gradients are written by hand, in `gcig.engine.term_gradients`.

The terms of `gcig.losses.terms` are the definition. `gcig.losses.objective` uses the hand-written gradients
only if they agree with it, and as long as none of the functions that they stand in for is replaced.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gcig.core import disparity, numerics
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
            if _is_standard(term) and all(_are_alike(penalty, first) for penalty in penalties):
                self.terms[name] = term
        self._made: dict[tuple[str, ...], tuple[ReasonTerms, Any]] = {}
        self._definitions = self._read_definitions()

    def hold(self) -> bool:
        """Return whether the readable functions are still those that the terms were made of."""
        return self._read_definitions() == self._definitions

    def _read_definitions(self) -> list[object]:
        found: list[object] = [
            disparity.disparity,
            disparity.normalise,
            numerics.vector_norm,
            outcome.pairwise_gap,
            outcome.soft_rates,
            terms.column_shortfall,
            terms.binary_cross_entropy_with_logits,
        ]
        for term in self.terms.values():
            found.append(type(term).__call__)
            for penalty in getattr(term, "penalties", ()):
                found += [getattr(type(penalty), name) for name in _PENALTY_METHODS]
            if type(term) is OutcomeTerm:
                found += [getattr(type(term.loss), name) for name in _LOSS_METHODS]
        return found

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
            term = self.terms.get(name)
            if type(term) in _PULLS:
                values[name] = _PULLS[type(term)](term, batch, logits, weight, d_logits)
            elif term is not None and attributions is not None:
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
        if names not in self._made:
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
            self._made[names] = engine, first
        return self._made[names]


def _is_standard(term: Term) -> bool:
    """Return whether the engine has the gradient of a term; subclasses may compute anything."""
    if type(term) is OutcomeTerm:
        return type(term.loss) in outcome.OUTCOME_LOSSES.values()
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
    term: OutcomeTerm, batch: MiniBatch, logits: Tensor, weight: float, d_logits: Tensor
) -> Tensor:
    n, loss = len(batch.labels), term.loss
    rows = logits[:n]
    membership = loss.membership(batch.labels, batch.groups, sample_weight=batch.row_weights).to(rows.dtype)
    found = SoftRates.compute(rows, membership, loss.cut, loss.temperature)
    rates, present = found.rates, found.present
    if loss.momentum:
        rates, present = loss.follow(rates, present, rows, membership)
    value, d_rates = pull_pairwise_gap(rates, present, loss.smoothness)
    found.pull(d_rates, weight / loss.temperature, d_logits[:n])
    return value


def _pull_attribute(
    _: AttributeTerm, batch: MiniBatch, logits: Tensor, weight: float, d_logits: Tensor
) -> Tensor:
    if batch.pairs is None or batch.pair_limits is None:
        return logits.new_zeros(())
    return pull_excess(logits, batch.pairs, batch.pair_limits, weight, d_logits)


_PULLS: dict[type, Callable[..., Tensor]] = {
    PredictionTerm: _pull_prediction,
    SelectionTerm: _pull_selection,
    OutcomeTerm: _pull_outcome,
    AttributeTerm: _pull_attribute,
}


def _compared(term: Any, starts: Mapping[int, int]) -> Disparity | Distance | Shortfall:
    """Return a term in the form of the engine; `starts` are the positions of the references by their id."""
    parts = [Part(starts[id(each.references)], each.n_members, each.each_member) for each in term.penalties]
    if type(term) is ReasonTerm:
        return Disparity(*parts)
    return Shortfall(*parts, term.least) if type(term) is ColumnTerm else Distance(*parts)
