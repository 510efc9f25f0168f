"""Objectives: named, weighted terms of a mini-batch, and the choice of how they are differentiated.

An `Objective` is the definition: whatever a researcher changes, replaces or adds takes effect.
`ObjectiveGradient` is the one place that chooses between autograd and two hand-written parts:

- `gcig.engine.network_pass` computes logits and attributions of layered networks, and pulls the terms'
  gradients back to the parameters. It is used if no penalty overrides `attribute`.
- `gcig.engine.term_gradients` differentiates the standard terms on a CPU. It is used for terms whose class is
  one of `gcig.losses.terms` itself, and as long as none of the functions that define them is replaced; see
  `gcig.losses.standard_terms`. All other terms run as they are.

Each part is compared with autograd on a few rows in double precision first, and is not used if it disagrees,
for example because a formula was edited.
"""

import math
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gcig.core.disparity import defined_rows
from gcig.core.memory import plan_chunks
from gcig.core.modules import is_recording, untraced
from gcig.engine.cuda_graph import forks, in_parallel
from gcig.engine.network_pass import NetworkPass
from gcig.engine.penalty import secant_penalty
from gcig.losses.standard_terms import StandardTerms
from gcig.losses.terms import MiniBatch, Penalty, PredictionTerm, Term

_CHECKED_ROWS = 32
_TOLERANCE = 1e-5  # relative, in double precision: rounding stays below 1e-9, a change of a formula does not


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
    >>> larger = Objective({"prediction": PredictionTerm()}).with_term(
    ...     "logit_size", lambda batch: batch.logits.square().mean(), weight=0.1
    ... )
    >>> larger.terms.keys(), larger.weights
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

    def active_weights(self, weights: Mapping[str, float]) -> dict[str, float]:
        """Return the weight of every active term.

        `weights` are those that training controls; the objective's own take precedence. The prediction has
        the weight 1 unless another one is given.
        """
        weights = {"prediction": 1.0, **weights, **self.weights}
        return {name: weights[name] for name in self.terms if weights.get(name)}

    @property
    def can_be_recorded(self) -> bool:
        """True if the operations of all terms depend on no value."""
        return all(getattr(term, "can_be_recorded", False) for term in self.terms.values())

    def penalties(self, names: Iterable[str] | None = None) -> list[Penalty]:
        """Return the penalties whose attributions some terms, or all of them, compare; each once."""
        terms = [self.terms[name] for name in (self.terms if names is None else names)]
        found = {id(each): each for term in terms for each in getattr(term, "penalties", ())}
        return list(found.values())

    def __call__(
        self, batch: MiniBatch, weights: Mapping[str, float], vector: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Return the value of each active term, and their weighted sum as ``"total"``.

        `vector` may hold the active weights as a tensor, if a recording must not contain their values.
        """
        weights = self.active_weights(weights)
        values = {name: self.terms[name](batch) for name in weights}
        for name, value in values.items():
            if value.dim():
                raise ValueError(f"term {name!r} must return a scalar, not shape {tuple(value.shape)}")
        parts = torch.stack(list(values.values()))
        if vector is None:
            vector = parts.new_tensor(list(weights.values()))
        return {**values, "total": torch.dot(parts, vector)}


class ObjectiveGradient:
    """The parameter gradient of an objective, one mini-batch at a time.

    The network's parameters must have gradients to write to; see `gcig.engine.optimizer.flat_parameters`.
    `make_batch` maps positions of training rows to their `MiniBatch`. A few of the `n_rows` training rows are
    used to compare the hand-written gradients with autograd; `engine` is None if autograd is used instead.
    """

    def __init__(
        self,
        objective: Objective,
        network: nn.Module,
        make_batch: Callable[[Tensor], MiniBatch],
        n_rows: int,
    ) -> None:
        self.objective, self.network, self.make_batch = objective, network, make_batch
        self._references = _distinct_references(objective.penalties())
        self._standard: StandardTerms | None = None
        self.engine = self._choose_engine(n_rows)
        self.weights: Mapping[str, float] = {}  # of the last `load`
        self._vectors: dict[tuple[str, ...], Tensor] = {}

    @property
    def generators(self) -> list[torch.Generator]:
        """The generators that mini-batches and references draw from."""
        sources = (self.make_batch, *self._references)
        return [each for source in sources for each in getattr(source, "generators", ())]

    @property
    def can_be_recorded(self) -> bool:
        """True on a GPU if the operations of a step depend on no value, as far as engine and terms know."""
        on_device = next(self.network.parameters()).is_cuda
        return self.engine is not None and on_device and self.objective.can_be_recorded

    def load(self, weights: Mapping[str, float]) -> tuple[str, ...]:
        """Set the weights of the following mini-batches, and return the names of the active terms.

        On a GPU the weights are tensors, so that a recorded step can be repeated with others.
        """
        self.weights, active = weights, self.objective.active_weights(weights)
        names = tuple(active)
        first = next(self.network.parameters())
        if first.is_cuda:
            if names not in self._vectors:
                self._vectors[names] = first.new_empty(len(names)).detach()
            values = torch.tensor(list(active.values()), dtype=torch.float64)
            self._vectors[names].copy_(values, non_blocking=True)
        return names

    def __call__(self, rows: Tensor, weights: Mapping[str, float] | None = None) -> dict[str, Tensor]:
        """Update the references, write the gradient of a mini-batch, and return its terms, detached.

        The references follow the mini-batch before the terms are computed (Algorithm 1). The weights are
        those of the last `load` if none are given.
        """
        if weights is not None:
            self.load(weights)
        batch, weights = self.make_batch(rows), self.weights
        vector = self._vectors.get(tuple(self.objective.active_weights(weights))) if self._vectors else None

        def differentiate() -> dict[str, Tensor]:
            self._update_references(batch)
            if self.engine is None:
                return _by_autograd(self.objective, batch, weights, vector)
            return _by_engine(self.objective, batch, weights, self.engine, vector, self._standard)

        terms = in_parallel([differentiate, partial(self.draw_ahead, len(rows))])[0]
        return {name: value.detach() for name, value in terms.items()}

    def next_batch(self, rows: Tensor) -> MiniBatch:
        """Return a mini-batch after updating the references with it."""
        batch = self.make_batch(rows)
        self._update_references(batch)
        return batch

    def draw_ahead(self, n_rows: int) -> None:
        """Let the source of mini-batches draw what its next one of this size needs, if it does so."""
        if ahead := getattr(self.make_batch, "draw_ahead", None):
            ahead(n_rows)

    def _update_references(self, batch: MiniBatch) -> None:
        n = len(batch.labels)
        rows_seen = (batch.inputs[:n], batch.labels, batch.groups)
        in_parallel([partial(each.update, *rows_seen) for each in self._references])

    def _choose_engine(self, n_rows: int) -> NetworkPass | None:
        rows = torch.arange(min(_CHECKED_ROWS, n_rows)) * n_rows // min(_CHECKED_ROWS, n_rows)
        batch = self.make_batch(rows.to(next(self.network.parameters()).device))
        penalties = self.objective.penalties()
        if not NetworkPass.applies(self.network, batch.inputs, explains=bool(penalties)):
            return None
        segments = {penalty.engine_segments(self.network, batch.inputs) for penalty in penalties}
        if len(segments) > 1 or None in segments:
            return None
        n_segments = next(iter(segments), 1) or 1
        engine_agrees, terms_agree = _compare(self.objective, batch, n_segments)
        if not engine_agrees:
            return None
        if terms_agree and not batch.inputs.is_cuda:
            self._standard = StandardTerms(self.objective.terms)
        return NetworkPass(self.network, n_segments)


def _distinct_references(penalties: Iterable[Penalty]) -> list[Any]:
    """Return the references of some penalties, each once."""
    return list({id(each.references): each.references for each in penalties}.values())


def join_references(penalties: Iterable[Penalty], dtype: torch.dtype) -> tuple[list[Any], Tensor, list[int]]:
    """Return the distinct references of some penalties, their points one after another, and their numbers.

    The points have the shape (labels, all groups and members, columns).
    """
    references = _distinct_references(penalties)
    values = [each.values.to(dtype) for each in references]
    flat = [each.flatten(1, -2) if each.dim() > 3 else each for each in values]
    return references, flat[0] if len(flat) == 1 else torch.cat(flat, 1), [each.shape[1] for each in flat]


def _by_autograd(
    objective: Objective, batch: MiniBatch, weights: Mapping[str, float], vector: Tensor | None = None
) -> dict[str, Tensor]:
    for parameter in batch.module.parameters():
        if parameter.grad is not None:
            parameter.grad.zero_()
    terms = objective(batch, weights, vector)
    terms["total"].backward()
    return terms


def _is_plain(objective: Objective) -> bool:
    return len(objective.terms) == 1 and type(objective.terms.get("prediction")) is PredictionTerm


def _by_engine(
    objective: Objective,
    batch: MiniBatch,
    weights: Mapping[str, float],
    engine: NetworkPass,
    vector: Tensor | None = None,
    standard: StandardTerms | None = None,
) -> dict[str, Tensor]:
    """Differentiate the terms with respect to logits and attributions; the engine does the rest."""
    if _is_plain(objective):
        # Plain training: the gradient of the cross-entropy by hand costs less than the smallest graph.
        loss = engine.train_on_cross_entropy(batch.inputs, batch.targets, batch.weights)
        return {"prediction": loss, "total": loss}
    leaves = _Leaves.compute(engine, batch, objective.penalties(objective.active_weights(weights)))
    if forks():
        terms, gradients = _pull_in_branches(objective, batch, weights, vector, leaves)
    elif standard is not None and not is_recording() and standard.hold():
        terms, gradients = _pull_by_hand(objective, batch, weights, leaves, standard)
    else:
        terms, gradients = _pull_together(objective, batch, weights, vector, leaves)
    engine.pull(*gradients)
    return terms


class _Leaves(NamedTuple):
    """Results of the engine: logits, and attributions relative to the references of some penalties.

    Penalties that share their references share the attributions.
    """

    scores: Tensor
    attributions: Tensor | None
    references: Sequence[Any]
    sizes: Sequence[int]

    @classmethod
    def compute(cls, engine: NetworkPass, batch: MiniBatch, penalties: Sequence[Penalty]) -> "_Leaves":
        if not (penalties and batch.n_explained):
            return cls(engine.predict(batch.inputs), None, (), ())
        references, joined, sizes = join_references(penalties, batch.inputs.dtype)
        scores, attributions = engine.explain(batch.inputs, batch.labels[: batch.n_explained], joined)
        return cls(scores, attributions, references, sizes)

    def stirred(self) -> "_Leaves":
        """Return other values of the same shapes, on which terms that start at zero are not zero."""
        generator = torch.Generator().manual_seed(0)
        scores = self.scores + torch.randn(len(self.scores), generator=generator).to(self.scores)
        if self.attributions is None:
            return self._replace(scores=scores)
        # A single column counts, and the references disagree.
        scale = torch.rand(self.attributions.shape, generator=generator, dtype=torch.float64) * 1e-4
        scale[..., self.attributions.abs().sum((0, 1)).argmax()] = 1.0
        return self._replace(scores=scores, attributions=self.attributions * scale)

    def of(self, objective: Objective) -> "_Leaves":
        """Return them as those of a copy of the objective."""
        return self._replace(references=_distinct_references(objective.penalties()))

    def give(self, batch: MiniBatch, penalties: Iterable[Penalty]) -> list[Tensor]:
        """Pass them to a mini-batch as leaves of a new graph, and return the leaves."""
        scores = batch.__dict__["logits"] = self.scores.detach().requires_grad_()
        if self.attributions is None:
            return [scores]
        attributions = self.attributions.detach().requires_grad_()
        parts = dict(zip(map(id, self.references), attributions.split(self.sizes), strict=True))
        for penalty in penalties:
            batch.known[id(penalty)] = penalty.reduce(parts[id(penalty.references)])
        return [scores, attributions]


_Pulled = tuple[dict[str, Tensor], Sequence[Tensor]]


def _pull_together(
    objective: Objective,
    batch: MiniBatch,
    weights: Mapping[str, float],
    vector: Tensor | None,
    leaves: _Leaves,
) -> _Pulled:
    """Return the terms, and the gradients of the leaves from one graph of all terms."""
    own = leaves.give(batch, objective.penalties(objective.active_weights(weights)))
    terms = objective(batch, weights, vector)
    if not terms["total"].requires_grad:  # constant terms alone
        return terms, [torch.zeros_like(each) for each in own]
    return terms, torch.autograd.grad(terms["total"], own, allow_unused=True, materialize_grads=True)


def _pull_by_hand(
    objective: Objective,
    batch: MiniBatch,
    weights: Mapping[str, float],
    leaves: _Leaves,
    standard: StandardTerms,
) -> _Pulled:
    """Return the same as `_pull_together`, with hand-written gradients of the standard terms."""
    active = objective.active_weights(weights)
    found = standard.pull(batch, leaves.scores, leaves.attributions, leaves.references, active)
    values = found.values
    gradients = [each for each in (found.d_logits, found.d_attributions) if each is not None]
    others = {name: term for name, term in objective.terms.items() if name not in values}
    if any(name in active for name in others):
        more, added = _pull_together(replace(objective, terms=others), batch, weights, None, leaves)
        values = {**values, **more}
        gradients = [own + new for own, new in zip(gradients, added, strict=True)]
    terms = {name: values[name] for name in active}
    total = torch.dot(torch.stack(list(terms.values())), leaves.scores.new_tensor(list(active.values())))
    return {**terms, "total": total}, gradients


def _pull_in_branches(
    objective: Objective,
    batch: MiniBatch,
    weights: Mapping[str, float],
    vector: Tensor | None,
    leaves: _Leaves,
) -> _Pulled:
    """Return the same as `_pull_together`, from one graph per term: a branch of the recording each."""
    active = objective.active_weights(weights)
    if vector is None:
        vector = leaves.scores.new_tensor(list(active.values()))

    def pull(name: str, weight: Tensor) -> tuple[Tensor, Sequence[Tensor | None]]:
        term, copy = objective.terms[name], replace(batch, known={})
        own = leaves.give(copy, getattr(term, "penalties", ()))
        value = term(copy)
        if not value.requires_grad:
            return value, [None] * len(own)
        return value.detach(), torch.autograd.grad(value, own, weight, allow_unused=True)

    pulled = in_parallel(
        [partial(pull, name, weight) for name, weight in zip(active, vector.unbind(), strict=True)]
    )
    values = torch.stack([value for value, _ in pulled])
    total = torch.dot(values, vector)
    sums = []
    for like, *parts in zip(leaves[:2], *(gradients for _, gradients in pulled), strict=False):
        present = [part for part in parts if part is not None]
        sums.append(torch.stack(present).sum(0) if present else torch.zeros_like(like))
    return {**dict(zip(active, values.unbind(), strict=True)), "total": total}, sums


def _compare(objective: Objective, batch: MiniBatch, n_segments: int) -> tuple[bool, bool]:
    """Compare hand-written gradients with autograd in double precision on a mini-batch, with all weights 1.

    Return whether the engine agrees with the network, and whether the standard terms agree with the readable
    ones.
    """
    objective, network = deepcopy((replace(objective, weights={}), batch.module))
    network.double()
    for penalty in objective.penalties():
        if isinstance(penalty, nn.Module):
            penalty.double()
    for parameter in network.parameters():
        parameter.grad = torch.zeros_like(parameter)

    def copy() -> MiniBatch:
        return replace(
            batch,
            module=network,
            inputs=batch.inputs.double(),
            targets=batch.targets.double(),
            weights=None if batch.weights is None else batch.weights.double(),
            known={},
        )

    weights = dict.fromkeys(objective.terms, 1.0)
    expected = _by_autograd(objective, copy(), weights)
    by_autograd = [parameter.grad.clone() for parameter in network.parameters() if parameter.grad is not None]
    engine = NetworkPass(network, n_segments)
    leaves = None if _is_plain(objective) else _Leaves.compute(engine, copy(), objective.penalties())
    if leaves is None:
        found = _by_engine(objective, copy(), weights, engine)
    else:
        found, gradients = _pull_together(objective, copy(), weights, None, leaves)
        engine.pull(*gradients)
    by_hand = [parameter.grad for parameter in network.parameters() if parameter.grad is not None]
    agrees = _agree(found, expected) and _agree(dict(enumerate(by_hand)), dict(enumerate(by_autograd)))
    if leaves is None or batch.inputs.is_cuda:
        return agrees, False
    return agrees, _terms_agree(objective, copy, (leaves, leaves.stirred()))


def _terms_agree(objective: Objective, copy: Callable[[], MiniBatch], variants: Iterable["_Leaves"]) -> bool:
    """Compare the hand-written values and gradients of the standard terms with the readable ones.

    What a term keeps from one of the variants may change its value on the next one.
    """
    weights = dict.fromkeys(objective.terms, 1.0)
    readable, by_hand = deepcopy(objective), deepcopy(objective)
    standard = StandardTerms(by_hand.terms)
    for leaves in variants:
        expected, right = _pull_together(readable, copy(), weights, None, leaves.of(readable))
        values, gradients = _pull_by_hand(by_hand, copy(), weights, leaves.of(by_hand), standard)
        pairs = [*((values[name], expected[name]) for name in expected), *zip(gradients, right, strict=True)]
        if not all(_agree({0: one}, {0: other}) for one, other in pairs):
            return False
    return True


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

    The engine supports layered networks with one reference per cell and raw columns, and is used only if it
    reproduces the penalty's readable value on a few rows. Under ``torch.compile`` the readable penalty is
    faster if all rows fit in memory.
    """
    integration = penalty.integration(module, x)
    network = integration.network
    if network is None or network.n_hidden == 0 or integration.rule != "secant" or not penalty.is_plain:
        return None
    by_group = baselines.transpose(0, 1)
    if torch.compiler.is_compiling():
        chunks = plan_chunks(integration, by_group, len(x), penalty.max_bytes)
        if len(x) <= chunks.rows:
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
            integration.network,
            x,
            y,
            baselines,
            weights,
            rule,
            scratch=penalty.scratch,
            max_bytes=penalty.max_bytes,
        )
        return value, norms

    if not _penalty_agrees(penalty, module, x, y, baselines):
        return None
    value: Tensor = penalty.over_defined_rows(compute)
    return value


def _penalty_agrees(penalty: Any, module: nn.Module, x: Tensor, y: Tensor, baselines: Tensor) -> bool:
    """Compare the engine with the penalty's readable value, in double precision on a few rows.

    The result is stored for the module, so a training loop makes one comparison.
    """
    known = penalty.agreement
    if known is not None and known[0]() is module:
        agrees: bool = known[1]
        return agrees
    n_undefined = penalty.n_undefined.clone()
    as_usual = torch.autocast(x.device.type, enabled=False)
    with torch.inference_mode(False), torch.enable_grad(), as_usual:
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
