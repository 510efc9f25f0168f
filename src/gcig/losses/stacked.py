"""Stacked objectives: the gradients of many networks with one architecture, computed in one batched pass.

Folds, seeds and grid points of one table give many small networks that differ in their parameters, rows,
references and cuts, but not in what is computed. Every tensor of them gets a dimension for the network, the
readable terms of `gcig.losses.terms` are evaluated once with ``torch.func.vmap``, and one backward pass gives
the gradients of all networks. `ObjectiveGradient` does the same for one network.
"""

from collections.abc import Hashable, Mapping, Sequence
from copy import deepcopy
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from gcig.core.modules import fixed_operations
from gcig.engine.cuda_graph import in_parallel
from gcig.losses.objective import Objective, ObjectiveGradient, join_references
from gcig.losses.outcome import soft_rates
from gcig.losses.standard_terms import is_standard
from gcig.losses.terms import MiniBatch, OutcomeTerm

_Place = tuple[Any, str]  # an object, and the name of its attribute
_BATCH_ARRAYS = ("inputs", "labels", "groups", "targets", "weights")


def stacking_key(gradient: ObjectiveGradient, parameters: Sequence[nn.Parameter]) -> Hashable | None:
    """Return a value that is equal for networks that can be stacked; None if a network cannot be.

    A network can be stacked if it is layered, without dropout, if the engine knows its terms, and if all of
    its parameters are one flat tensor.
    """
    objective, network = gradient.objective, gradient.network
    layers = {type(part) for part in network.modules()}
    if gradient.engine is None or len(parameters) != 1 or nn.Dropout in layers or objective.weights:
        return None
    if not all(parameter.requires_grad for parameter in network.parameters()):
        return None
    penalties: list[Any] = objective.penalties()
    if not all(map(is_standard, objective.terms.values())) or not all(each.is_standard for each in penalties):
        return None
    first = parameters[0]
    return (
        (repr(network), first.dtype, first.device),
        tuple((name, type(term)) for name, term in objective.terms.items()),
        tuple((each.definition, each.each_member, tuple(each.references.values.shape)) for each in penalties),
        tuple(None if each.blocks is None else tuple(each.blocks.shape) for each in penalties),
        tuple(
            (type(each), each.n_groups, each.momentum, each.smoothness, each.of_decisions)
            for each in _losses(objective)
        ),
    )


class StackedGradient:
    """The parameter gradients of several objectives, each of a network of its own.

    Parameters
    ----------
    gradients : sequence of ObjectiveGradient
        One per network, all with the same `stacking_key`.
    parameters : sequence of nn.Parameter
        The flat parameter of each network; its gradient is written.
    """

    def __init__(self, gradients: Sequence[ObjectiveGradient], parameters: Sequence[nn.Parameter]) -> None:
        self.gradients, self.parameters = gradients, parameters
        first = gradients[0]
        self._names = tuple(first.objective.terms)
        self._network, self._objective = deepcopy((first.network, first.objective))
        # Plain tensors take the place of the parameters.
        self._layers = [(part, name) for part in self._network.modules() for name in list(part._parameters)]
        self._shapes = [getattr(*place).shape for place in self._layers]
        for part, name in self._layers:
            delattr(part, name)
        for each in gradients:
            _start_averages(each.objective, parameters[0])
        constants = zip(*(_constants(each.objective) for each in gradients), strict=True)
        self._constants = [
            _stack([getattr(*place) for place in places], parameters[0]) for places in constants
        ]
        self._state = list(zip(*(_state(each.objective) for each in gradients), strict=True))
        self._places = [*self._layers, *_state(self._objective), *_constants(self._objective)]
        self._vector = parameters[0].detach().new_zeros(len(gradients), len(self._names))

    @property
    def generators(self) -> list[torch.Generator]:
        """The generators that mini-batches and references draw from."""
        return [each for gradient in self.gradients for each in gradient.generators]

    def load(self) -> None:
        """Copy the weights that every network's `ObjectiveGradient` has loaded."""
        active = [each.objective.active_weights(each.weights) for each in self.gradients]
        weights = [[each.get(name, 0.0) for name in self._names] for each in active]
        self._vector.copy_(torch.tensor(weights, dtype=torch.float64), non_blocking=True)

    def __call__(self, rows: Tensor) -> dict[str, Tensor]:
        """Write the gradient of every network on its mini-batch, and return the terms, shape (networks,).

        `rows` has the shape (networks, rows). Mini-batches and references are those of the single networks,
        so that they draw the same numbers.
        """
        batches = in_parallel(
            [partial(each.next_batch, own) for each, own in zip(self.gradients, rows.unbind(), strict=True)]
        )
        ahead = [partial(each.draw_ahead, rows.shape[1]) for each in self.gradients]
        terms: dict[str, Tensor] = in_parallel([*ahead, partial(self._differentiate, batches)])[-1]
        return terms

    def _differentiate(self, batches: Sequence[MiniBatch]) -> dict[str, Tensor]:
        flat = torch.stack([each.detach() for each in self.parameters]).requires_grad_()
        parts = flat.split([shape.numel() for shape in self._shapes], dim=1)
        layers = [part.unflatten(1, shape) for part, shape in zip(parts, self._shapes, strict=True)]
        state = [_stack([getattr(*place) for place in places], flat) for places in self._state]
        arrays = {
            name: torch.stack([getattr(each, name) for each in batches])
            for name in _BATCH_ARRAYS
            if getattr(batches[0], name) is not None
        }
        evaluate = torch.func.vmap(partial(self._evaluate, batches[0]))
        with fixed_operations():
            terms: dict[str, Tensor] = evaluate([*layers, *state, *self._constants], arrays, self._vector)
        (gradient,) = torch.autograd.grad(terms["total"].sum(), flat)
        own = [each.grad for each in self.parameters if each.grad is not None]
        torch._foreach_copy_(own, list(gradient.unbind()))
        for places, values in zip(self._state, state, strict=True):
            _unstack([getattr(*place) for place in places], values)
        return {name: value.detach() for name, value in terms.items()}

    def _evaluate(
        self, like: MiniBatch, values: Sequence[Any], arrays: Mapping[str, Any], vector: Tensor
    ) -> dict[str, Tensor]:
        """Return the terms of one network: called once, with tensors that stand for those of all networks."""
        for (owner, name), value in zip(self._places, values, strict=True):
            object.__setattr__(owner, name, value)  # terms are frozen
        batch = replace(like, module=self._network, known={}, **arrays)
        _explain(batch, self._objective.penalties())
        return self._objective(batch, dict.fromkeys(self._names, 1.0), vector)


def _explain(batch: MiniBatch, penalties: Sequence[Any]) -> None:
    """Compute the attributions of all penalties at once: those that share references share attributions."""
    if penalties and batch.n_explained:
        rows, labels, _ = batch.explained
        references, joined, sizes = join_references(penalties, rows.dtype)
        attributions = penalties[0].attribute(batch.module, rows, labels, joined).split(sizes)
        parts = dict(zip(map(id, references), attributions, strict=True))
        for penalty in penalties:
            batch.known[id(penalty)] = penalty.reduce(parts[id(penalty.references)])


def _state(objective: Objective) -> list[_Place]:
    """Return the places of the tensors that steps change: references, running averages and counts."""
    penalties = objective.penalties()
    references = {id(each.references): each.references for each in penalties}
    return [
        *((each, "values") for each in references.values()),
        *((each, "n_undefined") for each in penalties),
        *((each, "_average") for each in _losses(objective) if each.momentum),
    ]


def _constants(objective: Objective) -> list[_Place]:
    """Return the places of what may differ between networks: cuts, widths, limits, and sums of columns."""
    terms: list[Any] = [each for each in objective.terms.values() if is_dataclass(each)]
    numbers = [(each, field.name) for each in terms for field in fields(each)]
    return [
        *(place for place in numbers if isinstance(getattr(*place), float)),
        *((each, name) for each in _losses(objective) for name in ("cut", "temperature")),
        *((each, "blocks") for each in objective.penalties() if each.blocks is not None),  # type: ignore[attr-defined]
    ]


def _losses(objective: Objective) -> list[Any]:
    return [term.loss for term in objective.terms.values() if isinstance(term, OutcomeTerm)]


def _start_averages(objective: Objective, like: Tensor) -> None:
    """Create the running averages that the first mini-batch would create."""
    for loss in _losses(objective):
        if loss.momentum:
            nobody = loss.membership(*like.new_zeros(2, 0, dtype=torch.int64))
            loss.start_averages(soft_rates(like.detach().new_zeros(0), nobody)[0])


def _stack(values: Sequence[Any], like: Tensor) -> Any:
    """Stack numbers or tensors, or tuples of them."""
    if isinstance(values[0], tuple):
        return tuple(_stack(each, like) for each in zip(*values, strict=True))
    if isinstance(values[0], Tensor):
        return torch.stack(list(values))
    return torch.tensor(values, dtype=like.dtype, device=like.device)


def _unstack(own: Sequence[Any], stacked: Any) -> None:
    """Write stacked tensors, or tuples of them, back to those of the networks."""
    if isinstance(stacked, tuple):
        for each, values in zip(zip(*own, strict=True), stacked, strict=True):
            _unstack(each, values)
    else:
        torch._foreach_copy_(list(own), list(stacked.unbind()))
