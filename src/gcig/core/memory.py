"""Attributions under a bound on memory: in chunks of rows and, if a row is too large, parts of its path."""

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from gcig.core.modules import Score
from gcig.core.paths import general_attributions, node_attributions, secant_attributions
from gcig.core.quadrature import Integration, quadrature

# Maps (inputs, references, create_graph=...) to attributions of these rows, or to a part of them.
Computation = Callable[..., Tensor]
_MODEST_BYTES = 1 << 28  # 256 MB, which any machine can spare


class Chunks(NamedTuple):
    """Chunks of rows that are computed in turn, and parts of the path of a row."""

    rows: int  # rows per chunk
    parts: int = 1  # of the quadrature rule, computed in turn; more than one if a row is too large

    def slices(self, n: int) -> list[slice]:
        """Return the rows of each chunk."""
        return [slice(start, min(n, start + self.rows)) for start in range(0, max(n, 1), self.rows)]


def memory_budget(device: torch.device, needed: int, max_bytes: int | None = None) -> int:
    """Return the bytes that a computation may take on a device: the user's bound if there is one.

    Without one, half of a GPU's free memory, or 256 MB on a CPU. A GPU is asked for its free memory only if
    ``needed``, the bytes of the whole computation at once, are many.
    """
    if max_bytes is not None:
        return max_bytes
    if device.type != "cuda" or needed <= _MODEST_BYTES:
        return _MODEST_BYTES
    free, _ = torch.cuda.mem_get_info(device)
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return max(_MODEST_BYTES, (free + cached) // 2)


def plan_chunks(
    integration: Integration,
    references: Tensor,
    n_rows: int,
    max_bytes: int | None = None,
    point_bytes: int = 0,
) -> Chunks:
    """Return the largest chunks whose forward and backward pass fit into the memory; see `memory_budget`.

    The rows of ``references`` (groups, rows, ...) do not matter. ``point_bytes`` is the memory of one point
    in the module, as found by `probe`; fast paths do not need it.
    """
    groups, per_item = len(references), references.element_size()
    # Paths, attributions, their normalised form, and as much again for gradients.
    row_bytes = groups * 10 * per_item * references[0, :1].numel()
    if integration.network is not None:
        units = sum(len(weight) for weight in integration.network.weights)
        # Values, slopes and products at every node, and as much again for gradients.
        point_bytes = 16 * per_item * units
    node_bytes = groups * point_bytes
    needed = row_bytes + node_bytes * integration.n_nodes
    budget = memory_budget(references.device, n_rows * needed, max_bytes)
    rows = budget // needed
    if rows or integration.network is not None:
        return Chunks(max(1, rows))
    nodes_at_once = max(1, (budget - row_bytes) // max(1, node_bytes))
    return Chunks(1, -(-integration.n_nodes // nodes_at_once))


def compute_attributions(
    module: nn.Module,
    inputs: Tensor,
    references: Tensor,
    integration: Integration,
    chunks: Chunks,
    create_graph: bool,
    score: Score | None = None,
    *,
    slopes: bool = False,
) -> Tensor:
    """Compute attributions, or average gradients if `slopes`; with a graph, backward recomputes chunks."""
    computations = _computations(module, integration, chunks.parts, score, slopes)
    if len(inputs) <= chunks.rows and chunks.parts == 1:
        with torch.set_grad_enabled(create_graph):
            return computations[0](inputs, references, create_graph=create_graph)
    parameters = [each for each in parameters_of(module, score) if each.requires_grad]
    if create_graph and parameters:
        result: Tensor = _Recomputed.apply(computations, inputs, references, chunks, *parameters)
        return result
    with torch.no_grad():
        return _map_rows(computations, inputs, references, chunks)


def _computations(
    module: nn.Module, integration: Integration, n_parts: int, score: Score | None, slopes: bool
) -> list[Computation]:
    """Return functions of inputs and references whose results add up to the attributions."""
    network = integration.network
    if network is None:
        parts = quadrature(integration.rule, integration.n_steps).split(n_parts)
        return [
            partial(general_attributions, module, rule=part, score=score, slopes=slopes) for part in parts
        ]

    def compute(inputs: Tensor, references: Tensor, *, create_graph: bool) -> Tensor:
        # Differences of slopes need more than half precision.
        with torch.autocast(inputs.device.type, enabled=False), torch.set_grad_enabled(create_graph):
            if network.n_hidden == 0:
                slope = network.weights[0][0]
                return slope.expand_as(references).clone() if slopes else (inputs - references) * slope
            if integration.by_secants:
                extrapolate = integration.rule == "romberg"
                return secant_attributions(
                    network, inputs, references, integration.n_steps, extrapolate=extrapolate, slopes=slopes
                )
            return node_attributions(
                network, inputs, references, quadrature(integration.rule, integration.n_steps), slopes=slopes
            )

    return [compute]


def parameters_of(module: nn.Module, score: Score | None = None) -> list[Tensor]:
    """Return the parameters of a module, and of the score if that is a module too."""
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
    """Attributions whose chunks are recomputed with a graph, one by one, in the backward pass."""

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
    compute: Callable[[slice], tuple[Tensor, Tensor]], slices: Sequence[slice], parameters: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Sum over chunks of rows, and compute the gradient of the sum chunk by chunk.

    ``compute`` maps some rows to their share of the sum, a differentiable scalar, and to values (..., rows)
    that are returned as they are. Return the total, and these values of all rows.
    """
    wanted = [parameter for parameter in parameters if parameter.requires_grad]
    if not torch.is_grad_enabled():
        wanted = []
    result: tuple[Tensor, Tensor] = _Accumulated.apply(compute, slices, *wanted)
    return result


class _Accumulated(torch.autograd.Function):
    """A sum over chunks: linear, so a chunk can be freed as soon as its gradient is known."""

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
