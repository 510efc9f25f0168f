"""Group counterfactual attributions: integrated gradients of rows from every group's reference."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from gcig.core.layered import LayeredNetwork
from gcig.core.memory import Chunks, compute_attributions, plan_chunks
from gcig.core.modules import (
    Probe,
    Score,
    evaluating,
    logits,
    probe,
    require_second_derivative,
    warn_of_kinks,
)
from gcig.core.paths import unexpanded
from gcig.core.quadrature import Integration

_CACHED_BYTES = 1 << 25  # about a processor's cache: without a graph to keep, smaller chunks are faster
_PROBE_ROWS = 128
_STEPS_TRIED = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
_POWERS_OF_TWO = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Attribution(NamedTuple):
    """Attributions of some rows under every group's reference."""

    values: Tensor  # (groups, n, ...)
    residual: Tensor  # (groups, n) error of completeness: |sum of the attributions - (f(x) - f(b))|
    rule: str  # the integration rule
    n_steps: int  # its steps
    exact: bool  # whether the values are the integral itself, up to rounding
    # (groups, n, ...) average gradients along the paths, if they were asked for: the values are their product
    # with the differences between row and reference.
    slopes: Tensor | None = None


def attributions(
    module: nn.Module,
    inputs: Tensor,
    references: Tensor,
    *,
    rule: str = "auto",
    n_steps: int | str = "auto",
    tolerance: float = 1e-4,
    create_graph: bool = False,
    fast: bool = True,
    max_bytes: int | None = None,
    score: Score | None = None,
    slopes: bool = False,
) -> Attribution:
    """Compute integrated gradients of each row from every group's reference.

    Parameters
    ----------
    module : nn.Module
        Maps (n, ...) to one logit per row; evaluated in evaluation mode, and left in its own mode.
    inputs : Tensor of shape (n, ...)
        Rows of any shape: columns, images, sequences of embeddings.
    references : Tensor of shape (groups, n, ...)
        The starts of the paths, as from `GroupBaselines.of`. Cheaper if one reference per group is expanded
        to all rows.
    rule : {"auto", "secant", "romberg", "right", "midpoint", "simpson", "gauss_legendre"}
        The integration rule. ``"secant"`` and ``"romberg"``, its extrapolation, are for layered networks.
    n_steps : int or "auto"
        Steps of the rule; ``"auto"`` takes as many as `tolerance` requires.
    tolerance : float
        Relative error of the attributions (in the l1 norm, mean over rows) that the automatic mode allows.
        It stops at 256 steps; modules with kinks off the fast paths may need more, and the residual shows
        the remaining error.
    create_graph : bool
        Whether the result can be differentiated with respect to the module's parameters.
    fast : bool
        Whether layered networks take their fast paths; False is the general path, the reference.
    max_bytes : int, optional
        Bound on the memory of forward and backward pass together, beyond inputs, parameters and result; by
        default half of the free memory of a GPU, or 256 MB on a CPU. Rows that exceed it are processed in
        chunks, and recomputed for the backward pass.
    score : callable, optional
        Maps the module's output to one logit per row.
    slopes : bool
        Whether to return the average gradients as well.

    Examples
    --------
    >>> net = nn.Linear(2, 1)
    >>> _ = nn.init.constant_(net.weight, 2.0)
    >>> x, b = torch.tensor([[1.0, 3.0]]), torch.zeros(2, 1, 2)
    >>> attributions(net, x, b).values[0]
    tensor([[2., 6.]])
    """
    if references.device != inputs.device:
        raise ValueError(
            f"references are on {references.device}, but the inputs on {inputs.device}: move them with "
            f"references.to({str(inputs.device)!r})"
        )
    if references.shape[1:] != inputs.shape:
        raise ValueError(
            f"references must have shape (groups, {', '.join(map(str, inputs.shape))}), one per group for "
            f"each row of the inputs, not {tuple(references.shape)}"
        )
    inputs, references = inputs.detach(), references.detach().to(inputs.dtype)
    integration = choose_integration(
        module,
        inputs,
        references,
        rule=rule,
        n_steps=n_steps,
        tolerance=tolerance,
        fast=fast,
        score=score,
        max_bytes=max_bytes,
    )
    found = _probe(module, integration, references, score)
    if create_graph:
        require_second_derivative(found)
        warn_of_kinks(integration, found.kinked)
    if not create_graph and integration.network is not None and inputs.device.type == "cpu":
        max_bytes = min(_CACHED_BYTES, max_bytes or _CACHED_BYTES)
    chunks = plan_chunks(integration, references, len(inputs), max_bytes, found.n_bytes)
    values = compute_attributions(
        module, inputs, references, integration, chunks, create_graph, score, slopes=slopes
    )
    average = values if slopes else None
    values = (inputs - references) * average if average is not None else values
    with evaluating(module, score), torch.no_grad():
        residual = _residual(module, inputs, references, values, chunks, score)
    return Attribution(values, residual, integration.rule, integration.n_steps, integration.exact, average)


def choose_integration(
    module: nn.Module,
    inputs: Tensor,
    references: Tensor,
    *,
    rule: str = "auto",
    n_steps: int | str = "auto",
    tolerance: float = 1e-4,
    fast: bool = True,
    score: Score | None = None,
    max_bytes: int | None = None,
) -> Integration:
    """Resolve ``"auto"``: choose the cheapest rule for the module, and the steps that reach the tolerance.

    Steps are raised, up to 256, until two successive results agree on a sample of the rows. Completeness
    alone is not enough: secants are complete at any number of steps.
    """
    network = LayeredNetwork.recognise(module) if fast and score is None and inputs.dim() == 2 else None
    integration = Integration.of(network, rule)
    if n_steps != "auto":
        extrapolated = rule == "auto" and integration.rule == "romberg"
        if extrapolated and not isinstance(n_steps, str) and int(n_steps).bit_count() > 1:
            integration = Integration.of(network, "secant")  # extrapolation needs powers of two
        return integration.with_steps(n_steps)
    if integration.exact or not len(inputs):
        return integration
    point_bytes = _probe(module, integration, references, score).n_bytes
    step = max(1, len(inputs) // _PROBE_ROWS)
    rows, starts = inputs[::step], references[:, ::step]
    before, fewer = None, 0
    for count in _POWERS_OF_TWO if integration.rule == "romberg" else _STEPS_TRIED:
        candidate = integration.with_steps(count)
        chunks = plan_chunks(candidate, starts, len(rows), max_bytes, point_bytes)
        after = compute_attributions(module, rows, starts, candidate, chunks, False, score)
        if before is not None:
            norm = after.abs().flatten(2).sum(-1)
            error = (after - before).abs().flatten(2).sum(-1) / norm.clamp(min=torch.finfo(norm.dtype).tiny)
            # The right Riemann sum converges slowly: its remaining error exceeds the last change.
            allowed = tolerance * min(1, count / fewer - 1) if integration.rule == "right" else tolerance
            if float(error.mean()) <= allowed:
                # If doubling the steps hardly changes an extrapolation, the previous one was accurate.
                return integration.with_steps(fewer) if integration.rule == "romberg" else candidate
        before, fewer = after, count
    return candidate


def _probe(module: nn.Module, integration: Integration, references: Tensor, score: Score | None) -> Probe:
    """Probe a module; fast paths need no probe."""
    return Probe(0, False) if integration.network is not None else probe(module, references[0], score)


def _residual(
    module: nn.Module, inputs: Tensor, references: Tensor, values: Tensor, chunks: Chunks, score: Score | None
) -> Tensor:
    ends = []
    for rows in chunks.slices(len(inputs)):
        starts = unexpanded(references[:, rows])
        f_start = logits(module, starts.flatten(0, 1), score).view(starts.shape[:2])
        ends.append(logits(module, inputs[rows], score) - f_start)
    change = torch.cat(ends, dim=1)
    return (values.detach().flatten(2).sum(-1) - change).abs()
