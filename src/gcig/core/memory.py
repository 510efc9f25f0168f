"""Attributions under a bound on memory: parts of the rows, and where need be of the path, one by one."""

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from gcig.core.method import Method
from gcig.core.modules import Score
from gcig.core.paths import general_attributions, node_attributions, secant_attributions
from gcig.core.quadrature import quadrature

__all__ = ["Chunks", "accumulate", "compute_attributions", "parameters_of", "plan_chunks"]


class Chunks(NamedTuple):
    """How the work is cut.

    Attributes
    ----------
    rows : int
        Rows at a time.
    parts : int
        Parts of the quadrature rule, one after the other; more than one where a single row is too much.
    """

    rows: int
    parts: int = 1

    def slices(self, n: int) -> list[slice]:
        """The rows, in chunks."""
        return [slice(start, min(n, start + self.rows)) for start in range(0, max(n, 1), self.rows)]


def plan_chunks(method: Method, references: Tensor, max_bytes: int, point_bytes: int = 0) -> Chunks:
    """The largest chunks whose forward and backward pass fit into `max_bytes`.

    Parameters
    ----------
    references : Tensor of shape (groups, n, ...)
        Only its shape and type matter.
    point_bytes : int
        What one point takes in the module, as `gcig.core.probing` finds; not needed on fast paths.
    """
    groups, per_item = len(references), references.element_size()
    # Paths, attributions, their normalised form, and as much again for gradients.
    row_bytes = groups * 10 * per_item * references[0, :1].numel()
    if method.network is not None:
        units = sum(len(weight) for weight in method.network.weights)
        # Values, slopes and products at every node, and as much again for gradients.
        return Chunks(max(1, max_bytes // (row_bytes + groups * 16 * per_item * method.n_nodes * units)))
    node_bytes = groups * point_bytes
    rows = max_bytes // (row_bytes + node_bytes * method.n_nodes)
    if rows:
        return Chunks(rows)
    nodes_at_once = max(1, (max_bytes - row_bytes) // max(1, node_bytes))
    return Chunks(1, -(-method.n_nodes // nodes_at_once))


class Computation(Protocol):
    """Attributions, or a part of them, of some rows."""

    def __call__(self, inputs: Tensor, references: Tensor, *, create_graph: bool) -> Tensor: ...


def compute_attributions(
    module: nn.Module,
    inputs: Tensor,
    references: Tensor,
    method: Method,
    chunks: Chunks,
    create_graph: bool,
    score: Score | None = None,
) -> Tensor:
    """Attributions by a given method; with a graph, chunks are computed again in the backward pass."""
    computations = _computations(module, method, chunks.parts, score)
    if len(inputs) <= chunks.rows and chunks.parts == 1:
        with torch.set_grad_enabled(create_graph):
            return computations[0](inputs, references, create_graph=create_graph)
    parameters = [each for each in parameters_of(module, score) if each.requires_grad]
    if create_graph and parameters:
        result: Tensor = _Recomputed.apply(computations, inputs, references, chunks, *parameters)
        return result
    with torch.no_grad():
        return _map_rows(computations, inputs, references, chunks)


def _computations(module: nn.Module, method: Method, n_parts: int, score: Score | None) -> list[Computation]:
    """Functions of inputs and references that add up to the attributions."""
    network = method.network
    if network is None:
        parts = quadrature(method.rule, method.n_steps).split(n_parts)
        return [partial(general_attributions, module, rule=part, score=score) for part in parts]

    def compute(inputs: Tensor, references: Tensor, *, create_graph: bool) -> Tensor:
        # Differences of slopes do not survive half precision.
        with torch.autocast(inputs.device.type, enabled=False), torch.set_grad_enabled(create_graph):
            if network.n_hidden == 0:
                return (inputs - references) * network.weights[0][0]
            if method.by_secants:
                extrapolate = method.rule == "romberg"
                return secant_attributions(
                    network, inputs, references, method.n_steps, extrapolate=extrapolate
                )
            return node_attributions(network, inputs, references, quadrature(method.rule, method.n_steps))

    return [compute]


def parameters_of(module: nn.Module, score: Score | None = None) -> list[Tensor]:
    """The parameters of a module, and of the score where that is a module too."""
    head = score.parameters() if isinstance(score, nn.Module) else ()
    return [*module.parameters(), *head]


def _map_rows(
    computations: Sequence[Computation], inputs: Tensor, references: Tensor, chunks: Chunks
) -> Tensor:
    result = torch.empty_like(references)
    for rows in chunks.slices(len(inputs)):
        parts = (compute(inputs[rows], references[:, rows], create_graph=False) for compute in computations)
        result[:, rows] = reduce(torch.add, parts)
    return result


class _Recomputed(torch.autograd.Function):
    """Chunks are computed without a graph, and again with one, chunk by chunk, in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        computations: Sequence[Computation],
        inputs: Tensor,
        references: Tensor,
        chunks: Chunks,
        *parameters: Tensor,
    ) -> Tensor:
        device = inputs.device.type
        ctx.precision = device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
        ctx.computations, ctx.chunks = computations, chunks
        ctx.save_for_backward(inputs, references, *parameters)
        return _map_rows(computations, inputs, references, chunks)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_values: Tensor) -> tuple[Tensor | None, ...]:
        inputs, references, *parameters = ctx.saved_tensors
        totals = [torch.zeros_like(parameter) for parameter in parameters]
        device, dtype, enabled = ctx.precision
        for rows in ctx.chunks.slices(len(inputs)):
            for compute in ctx.computations:
                with torch.enable_grad(), torch.autocast(device, dtype=dtype, enabled=enabled):
                    values = compute(inputs[rows], references[:, rows], create_graph=True)
                _add_gradient(totals, values, parameters, d_values[:, rows])
        return None, None, None, None, *totals


def accumulate(
    compute: Callable[[slice], tuple[Tensor, Tensor]],
    slices: Sequence[slice],
    parameters: Sequence[Tensor],
) -> tuple[Tensor, Tensor]:
    """A sum over chunks of rows, with a gradient that is computed on the way.

    Parameters
    ----------
    compute : callable
        Maps some rows to their share of the sum, a differentiable scalar, and to something of shape
        (..., rows) that is only kept.
    parameters : sequence of Tensor
        What the sum is differentiated by.

    Returns
    -------
    total : Tensor of shape ()
    kept : Tensor of shape (..., n)
    """
    wanted = [parameter for parameter in parameters if parameter.requires_grad]
    if not torch.is_grad_enabled():
        wanted = []
    result: tuple[Tensor, Tensor] = _Accumulated.apply(compute, slices, *wanted)
    return result


class _Accumulated(torch.autograd.Function):
    """The sum is linear in its chunks, so none of them is needed any more once its gradient is known."""

    @staticmethod
    def forward(
        ctx: Any,
        compute: Callable[[slice], tuple[Tensor, Tensor]],
        slices: Sequence[slice],
        *parameters: Tensor,
    ) -> tuple[Tensor, Tensor]:
        ctx.totals = [torch.zeros_like(parameter) for parameter in parameters]
        shares, kept = [], []
        for rows in slices:
            with torch.set_grad_enabled(bool(parameters)):
                share, extra = compute(rows)
            if share.requires_grad:
                _add_gradient(ctx.totals, share, parameters, None)
            shares.append(share.detach())
            kept.append(extra)
        extras = torch.cat(kept, dim=-1)
        ctx.mark_non_differentiable(extras)
        return torch.stack(shares).sum(), extras

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_total: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *(total * d_total for total in ctx.totals)


def _add_gradient(
    totals: Sequence[Tensor], values: Tensor, parameters: Sequence[Tensor], d_values: Tensor | None
) -> None:
    parts = torch.autograd.grad(values, parameters, d_values, allow_unused=True)
    for total, part in zip(totals, parts, strict=True):
        if part is not None:
            total += part
