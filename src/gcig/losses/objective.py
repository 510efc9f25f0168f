"""Training objectives: named, weighted terms of a mini-batch, and the choice of how they are computed.

An `Objective` is the definition: what a researcher reads here, in `gcig.losses` and in `gcig.core` is what
training minimises. `ObjectiveGradient` computes its parameter gradient, by autograd or, much faster for
layered networks, by the hand-written passes of `gcig.engine`. The engine is used only if every term has a
form that it knows *and* if it reproduces the terms and their gradient on the first rows, in double
precision. A term that is changed, replaced or added therefore always changes training.
"""

import math
import weakref
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from gcig.core.batch import TrainingRows
from gcig.core.disparity import defined_rows
from gcig.core.memory import plan_chunks
from gcig.core.modules import logits, untraced
from gcig.core.numerics import vector_norm
from gcig.engine.objective import EngineForm, ObjectiveEngine
from gcig.engine.penalty import secant_penalty
from gcig.losses.columns import column_shortfall

__all__ = [
    "ColumnTerm",
    "MiniBatch",
    "Objective",
    "ObjectiveGradient",
    "OutcomeTerm",
    "PredictionTerm",
    "ReasonTerm",
    "Term",
    "fused_penalty",
]

_CHECKED_ROWS = 32
_TOLERANCE = 1e-5  # relative, in double precision; rounding is below 1e-9, any edit of a formula above


@dataclass(frozen=True, eq=False)
class MiniBatch:
    """One mini-batch as the terms of an objective see it.

    Attributes
    ----------
    module : nn.Module
        The network in training, (n, ...) -> one logit per row.
    inputs : Tensor of shape (n, ...)
    labels, groups : Tensor of shape (n,)
        Integer codes.
    targets : Tensor of shape (n,)
        Labels as floats, or a teacher's probabilities.
    weights : Tensor of shape (n,), optional
        The weight of each row.
    """

    module: nn.Module
    inputs: Tensor
    labels: Tensor
    groups: Tensor
    targets: Tensor
    weights: Tensor | None = None

    @cached_property
    def logits(self) -> Tensor:
        """The network's outputs, shape (n,); computed once for all terms."""
        return logits(self.module, self.inputs)

    def first(self, share: float) -> "MiniBatch":
        """Return the first `share` of the rows: a random part, since batches are in random order."""
        count = math.ceil(share * len(self.inputs))
        weights = None if self.weights is None else self.weights[:count]
        return MiniBatch(
            self.module,
            self.inputs[:count],
            self.labels[:count],
            self.groups[:count],
            self.targets[:count],
            weights,
        )


class Term(Protocol):
    """A differentiable function of a mini-batch.

    A term may also have a method ``engine_form(data)`` that returns the fields of
    `gcig.engine.objective.EngineForm` which compute the same by hand.
    """

    def __call__(self, batch: MiniBatch) -> Tensor:
        """Return the value of the term, a scalar."""
        ...


class Penalty(Protocol):
    """The interface of `gcig.losses.gcig.GCIGPenalty` that terms use."""

    baselines: Any

    def __call__(
        self, module: nn.Module, x: Tensor, y: Tensor, *, sample_weight: Tensor | None = None
    ) -> Tensor: ...

    def attribute(self, module: nn.Module, x: Tensor, y: Tensor, baselines: Tensor) -> Tensor: ...

    def engine_form(self, data: TrainingRows) -> dict[str, Any] | None: ...


class PredictionTerm:
    """Cross-entropy towards the targets."""

    def __call__(self, batch: MiniBatch) -> Tensor:
        """Return the weighted mean cross-entropy."""
        return binary_cross_entropy_with_logits(batch.logits, batch.targets, weight=batch.weights)

    def engine_form(self, data: TrainingRows) -> dict[str, Any]:  # noqa: ARG002 (one interface)
        """Return nothing: the engine always computes the cross-entropy."""
        return {}


@dataclass(frozen=True)
class ReasonTerm:
    """A GCIG penalty on the first `share` of each mini-batch."""

    penalty: Penalty
    share: float = 1.0

    def __call__(self, batch: MiniBatch) -> Tensor:
        """Return the penalty, with the baselines as they are."""
        few = batch.first(self.share)
        return self.penalty(few.module, few.inputs, few.labels, sample_weight=few.weights)

    def engine_form(self, data: TrainingRows) -> dict[str, Any] | None:
        """Return the penalty's form."""
        form = self.penalty.engine_form(data)
        return None if form is None else {**form, "share": self.share}


@dataclass(frozen=True)
class OutcomeTerm:
    """An outcome loss such as `gcig.EqualizedOddsLoss`."""

    loss: Any

    def __call__(self, batch: MiniBatch) -> Tensor:
        """Return the gap between the groups' rates."""
        value: Tensor = self.loss(batch.logits, batch.labels, batch.groups, sample_weight=batch.weights)
        return value

    def engine_form(self, data: TrainingRows) -> dict[str, Any]:
        """Return the membership of all rows in the rates."""
        rows = data.rows
        membership = self.loss.membership(rows.labels, rows.groups, sample_weight=data.weights)
        return {"outcome_members": membership.flatten(0, 1).T}


@dataclass(frozen=True)
class ColumnTerm:
    """The shortfall of effective columns under `least`, on the rows that a penalty explains."""

    penalty: Penalty
    least: float
    share: float = 1.0

    def __call__(self, batch: MiniBatch) -> Tensor:
        """Return the shortfall over the rows that have attributions."""
        few = batch.first(self.share)
        baselines = self.penalty.baselines.values.to(few.inputs.dtype)
        values = self.penalty.attribute(few.module, few.inputs, few.labels, baselines)
        defined = defined_rows(vector_norm(values.detach(), "l1"))
        return column_shortfall(values[:, defined] if bool(defined.any()) else values, self.least)

    def engine_form(self, data: TrainingRows) -> dict[str, Any]:  # noqa: ARG002 (one interface)
        """Return the least number of columns."""
        return {"least_columns": self.least}


@dataclass(frozen=True)
class Objective:
    """A weighted sum of named terms.

    Attributes
    ----------
    terms : mapping of name to Term
    weights : mapping of name to float
        Constant weights of the terms whose weight training does not control.

    Examples
    --------
    >>> squared = Objective({"prediction": PredictionTerm()}).with_term(
    ...     "logit_size", lambda batch: batch.logits.square().mean(), weight=0.1
    ... )
    >>> squared.terms.keys(), squared.weights
    (dict_keys(['prediction', 'logit_size']), {'logit_size': 0.1})
    """

    terms: Mapping[str, Term]
    weights: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if "total" in self.terms:
            raise ValueError('no term may be called "total": it is the name of the weighted sum')
        for name, weight in self.weights.items():
            if not math.isfinite(weight):
                raise ValueError(f"the weight of term {name!r} must be finite, not {weight}")

    def with_term(self, name: str, term: Term, weight: float | None = None) -> "Objective":
        """Return the objective with a term added, or replaced if there is one of this name.

        Parameters
        ----------
        name : str
        term : callable
            Maps a `MiniBatch` to a differentiable scalar.
        weight : float, optional
            Needed for a new term. A replaced term keeps the weight that training gives it unless one is
            given.
        """
        if weight is None and name not in self.terms:
            raise ValueError(f"the new term {name!r} needs a weight: with_term(name, term, weight=...)")
        weights = dict(self.weights) if weight is None else {**self.weights, name: float(weight)}
        return replace(self, terms={**self.terms, name: term}, weights=weights)

    def __call__(self, batch: MiniBatch, weights: Mapping[str, float]) -> dict[str, Tensor]:
        """Return the value of each term with a weight, and their weighted sum as ``"total"``.

        `weights` are those that training controls; the objective's own take precedence. The prediction counts
        once unless it has a weight.
        """
        weights = {"prediction": 1.0, **weights, **self.weights}
        values = {name: term(batch) for name, term in self.terms.items() if weights.get(name)}
        total = sum((weights[name] * value for name, value in values.items()), start=torch.zeros(()))
        return {**values, "total": total}


class ObjectiveGradient:
    """The parameter gradient of an objective, one mini-batch at a time.

    Parameters
    ----------
    objective : Objective
    network : nn.Module
        Its parameters must have gradients to write to (see `gcig.engine.optimizer.flat_parameters`).
    data : TrainingRows
        All training rows.
    n_groups : int
    references : GroupBaselines, optional
        Moving averages that each mini-batch updates before the terms are computed (Algorithm 1).

    Attributes
    ----------
    engine : ObjectiveEngine or None
        None if autograd computes the gradient.
    """

    def __init__(
        self,
        objective: Objective,
        network: nn.Module,
        data: TrainingRows,
        n_groups: int,
        references: Any = None,
    ) -> None:
        self.objective, self.network, self.data = objective, network, data
        self.references = references
        self.engine = _choose_engine(objective, network, data, n_groups)

    def __call__(self, rows: Tensor, weights: Mapping[str, float]) -> dict[str, Tensor]:
        """Update the references, write the gradient of a mini-batch, and return its terms, detached."""
        update = self.references is not None
        if self.engine is not None:
            terms = self.engine(rows, weights)
            if terms is not None:
                return terms
            update = False  # done by the engine, before it found a row without attributions
        batch = _mini_batch(self.network, self.data, rows)
        if update:
            self.references.update(batch.inputs, batch.labels, batch.groups)
        for parameter in self.network.parameters():
            if parameter.grad is not None:
                parameter.grad.zero_()
        terms = self.objective(batch, weights)
        terms["total"].backward()
        return {name: value.detach() for name, value in terms.items()}


def _mini_batch(network: nn.Module, data: TrainingRows, rows: Tensor) -> MiniBatch:
    of_rows = data.rows[rows]
    weights = None if data.weights is None else data.weights[rows]
    targets = data.targets[rows].to(of_rows.inputs.dtype)
    return MiniBatch(network, of_rows.inputs, of_rows.labels, of_rows.groups, targets, weights)


def _choose_engine(
    objective: Objective, network: nn.Module, data: TrainingRows, n_groups: int
) -> ObjectiveEngine | None:
    """Return the engine for an objective if it knows all terms and reproduces them on the first rows."""
    form = _engine_form(objective, data)
    if form is None or not ObjectiveEngine.applies(network, form, data):
        return None
    if not _reproduces(objective, network, data, n_groups):
        return None
    return ObjectiveEngine(network, form, data, n_groups)


def _engine_form(objective: Objective, data: TrainingRows) -> EngineForm | None:
    fields: dict[str, Any] = {}
    if objective.weights or "prediction" not in objective.terms:
        return None
    for term in objective.terms.values():
        form = getattr(term, "engine_form", None)
        if form is None:
            return None
        part = form(data)
        if part is None:
            return None
        fields |= part
    return EngineForm(**fields)


def _reproduces(objective: Objective, network: nn.Module, data: TrainingRows, n_groups: int) -> bool:
    """Compare the engine with the readable terms, in double precision on a few rows, all weights one."""
    rows = torch.arange(min(_CHECKED_ROWS, len(data)), device=data.rows.inputs.device)
    few = data.rows.spread(_CHECKED_ROWS)
    positions = rows * len(data) // len(rows)
    weights = None if data.weights is None else data.weights[positions].double()
    data = TrainingRows(replace(few, inputs=few.inputs.double()), data.targets[positions].double(), weights)
    copies = deepcopy((objective, network))
    objective, network = copies[0], copies[1].double()
    for term in objective.terms.values():
        for part in vars(term).values() if hasattr(term, "__dict__") else ():
            if isinstance(part, nn.Module):
                part.double()
    for parameter in network.parameters():
        parameter.grad = torch.zeros_like(parameter)
    form = _engine_form(objective, data)
    assert form is not None
    every_weight = dict.fromkeys(objective.terms, 1.0)
    if form.least_columns is not None:  # above what there is, or the term would be zero on both sides
        form = replace(form, least_columns=2.0 * few.inputs.shape[1])
        objective = objective.with_term(
            "column_shortfall",
            replace(objective.terms["column_shortfall"], least=form.least_columns),  # type: ignore[type-var]
        )
    found = ObjectiveEngine(network, replace(form), data, n_groups)(rows, every_weight)
    if found is None:  # a row without attributions: nothing can be compared on these rows
        return True
    by_hand = [parameter.grad.clone() for parameter in network.parameters() if parameter.grad is not None]
    network.zero_grad(set_to_none=False)
    expected = objective(_mini_batch(network, data, rows), every_weight)
    expected["total"].backward()
    by_autograd = [parameter.grad for parameter in network.parameters() if parameter.grad is not None]
    return _agree(found, expected) and _agree(dict(enumerate(by_hand)), dict(enumerate(by_autograd)))


def _agree(found: Mapping[Any, Tensor], expected: Mapping[Any, Tensor]) -> bool:
    """Return whether tensors agree, relative to the largest of them."""
    if found.keys() != expected.keys():
        return False
    sizes = [float(value.detach().abs().max()) for value in expected.values() if value.numel()]
    scale = max(filter(math.isfinite, sizes), default=0.0)
    return all(
        torch.allclose(
            value.detach(), expected[name].detach(), rtol=_TOLERANCE, atol=_TOLERANCE * scale, equal_nan=True
        )
        for name, value in found.items()
    )


def fused_penalty(
    penalty: Any,
    module: nn.Module,
    x: Tensor,
    y: Tensor,
    baselines: Tensor,
    sample_weight: Tensor | None,
) -> Tensor | None:
    """Return the engine's value of a `gcig.GCIGPenalty`, or None if autograd has to compute it.

    The engine applies to layered networks, and only if it reproduces the penalty's own `attribute` and
    `compare` on a few rows. Under ``torch.compile`` the readable penalty is better code if all rows fit in
    memory.
    """
    integration = penalty.integration(module, x)
    network = integration.network
    if network is None or network.n_hidden == 0 or integration.rule != "secant":
        return None
    by_group = baselines.transpose(0, 1)
    if torch.compiler.is_compiling() and len(x) <= plan_chunks(integration, by_group, penalty.max_bytes).rows:
        return None
    return untraced(_fused_penalty)(penalty, module, integration, x, y, baselines, sample_weight)


def _fused_penalty(
    penalty: Any,
    module: nn.Module,
    integration: Any,
    x: Tensor,
    y: Tensor,
    baselines: Tensor,
    sample_weight: Tensor | None,
) -> Tensor | None:
    rule = penalty.secant_rule(integration)

    def compute(defined: Tensor | None) -> tuple[Tensor, Tensor]:
        weights = penalty.row_weights(x, y, sample_weight, defined)
        value, _, norms = secant_penalty(
            integration.network, x, y, baselines, weights, rule, scratch=penalty.scratch
        )
        return value, norms

    if not _penalty_agrees(penalty, module, x, y, baselines):
        return None
    value: Tensor = penalty.over_defined_rows(compute)
    return value


def _penalty_agrees(penalty: Any, module: nn.Module, x: Tensor, y: Tensor, baselines: Tensor) -> bool:
    """Compare the engine with the penalty's readable value, in double precision on a few rows.

    The result is kept for the module, so a training loop pays for one comparison.
    """
    known = penalty.agreement
    if known is not None and known[0]() is module:
        agrees: bool = known[1]
        return agrees
    n_undefined = penalty.n_undefined
    with torch.inference_mode(False), torch.enable_grad(), torch.autocast(x.device.type, enabled=False):
        # Clones, since tensors of inference mode cannot be part of a graph.
        few = x[:_CHECKED_ROWS].double().clone(), y[:_CHECKED_ROWS].clone(), baselines.double().clone()
        copy = deepcopy(getattr(module, "_orig_mod", module)).double()
        integration = penalty.integration(copy, few[0])
        rule, weights = penalty.secant_rule(integration), penalty.row_weights(*few[:2])
        found, _, norms = secant_penalty(integration.network, *few, weights, rule)
        if not bool(defined_rows(norms).all()):
            weights = penalty.row_weights(*few[:2], None, defined_rows(norms))
            found, _, _ = secant_penalty(integration.network, *few, weights, rule)
        expected = penalty.readable(copy, *few, None)
    penalty.n_undefined = n_undefined
    agrees = _agree({0: found}, {0: expected})
    penalty.agreement = weakref.ref(module), agrees
    return agrees
