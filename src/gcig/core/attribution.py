"""Group counterfactual attributions: which way to compute them, in how many steps, in how much memory."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from gcig.core.layered import LayeredNetwork
from gcig.core.memory import Chunks, compute_attributions, plan_chunks
from gcig.core.method import Method
from gcig.core.modules import Score, evaluating, logits
from gcig.core.paths import unexpanded
from gcig.core.probing import Probe, probe, warn_of_kinks

__all__ = ["MAX_BYTES", "Attribution", "attributions", "choose_method"]

MAX_BYTES = 1 << 28
# About what stays in a processor's cache; without a graph to keep, smaller pieces are faster.
_CACHED_BYTES = 1 << 25
_PROBE_ROWS = 128
_LADDER = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
_DOUBLING = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Attribution(NamedTuple):
    """Attributions of some rows under every group's baseline.

    Attributes
    ----------
    values : Tensor of shape (groups, n, ...)
    residual : Tensor of shape (groups, n)
        Completeness: ``|sum of the attributions - (f(x) - f(b))|``.
    rule, n_steps : str, int
        How the path was integrated.
    exact : bool
        Whether that is the integral itself, up to rounding.
    """

    values: Tensor
    residual: Tensor
    rule: str
    n_steps: int
    exact: bool


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
    max_bytes: int = MAX_BYTES,
    score: Score | None = None,
) -> Attribution:
    """Integrated gradients of each row from every group's reference.

    Parameters
    ----------
    module : nn.Module
        Maps (n, ...) to one logit a row; taken in evaluation mode and left in the mode it was in.
    inputs : Tensor of shape (n, ...)
        Rows of any shape: columns, images, sequences of embeddings.
    references : Tensor of shape (groups, n, ...)
        Where the paths start, as from `GroupBaselines.of`. Cheaper where one reference a group was
        expanded to all rows.
    rule : {"auto", "secant", "romberg", "right", "midpoint", "simpson", "gauss_legendre"}
        How the path is integrated. ``"secant"`` and ``"romberg"``, its extrapolation, are for layered
        networks.
    n_steps : int or "auto"
        Steps; ``"auto"`` takes as many as `tolerance` requires.
    tolerance : float
        Relative error of the attributions (in the l1 norm, mean over rows) that the automatic mode allows.
        It stops at 256 steps, which modules with kinks off the fast paths may need more than; what is
        left then shows in the residual.
    create_graph : bool
        Whether the result can be differentiated with respect to the module's parameters.
    fast : bool
        Whether layered networks take their fast paths; False is the general path, the reference.
    max_bytes : int
        Bound on the memory of forward and backward together, beyond inputs, parameters and result.
        Rows are worked off in chunks, and recomputed for the backward pass.
    score : callable, optional
        From the module's output to one logit a row.

    Examples
    --------
    >>> net = nn.Linear(2, 1)
    >>> _ = nn.init.constant_(net.weight, 2.0)
    >>> x, b = torch.tensor([[1.0, 3.0]]), torch.zeros(2, 1, 2)
    >>> attributions(net, x, b).values[0]
    tensor([[2., 6.]])
    """
    if references.shape[1:] != inputs.shape:
        raise ValueError(
            f"references must have shape (groups, {', '.join(map(str, inputs.shape))}), as many as there are "
            f"groups for each row of the inputs, not {tuple(references.shape)}"
        )
    inputs, references = inputs.detach(), references.detach().to(inputs.dtype)
    method = choose_method(
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
    found = _probe(module, method, references, score)
    if create_graph:
        warn_of_kinks(method, found.kinked)
    if not create_graph and method.network is not None and inputs.device.type == "cpu":
        max_bytes = min(max_bytes, _CACHED_BYTES)
    chunks = plan_chunks(method, references, max_bytes, found.n_bytes)
    values = compute_attributions(module, inputs, references, method, chunks, create_graph, score)
    with evaluating(module, score), torch.no_grad():
        residual = _residual(module, inputs, references, values, chunks, score)
    return Attribution(values, residual, method.rule, method.n_steps, method.exact)


def choose_method(
    module: nn.Module,
    inputs: Tensor,
    references: Tensor,
    *,
    rule: str = "auto",
    n_steps: int | str = "auto",
    tolerance: float = 1e-4,
    fast: bool = True,
    score: Score | None = None,
    max_bytes: int = MAX_BYTES,
) -> Method:
    """Resolve ``"auto"``: the cheapest rule for the module, and the steps that reach the tolerance.

    Steps are raised, to 256 at most, until two successive results agree on a sample of the rows.
    Completeness alone would not do: secants are complete at any number of steps.
    """
    network = LayeredNetwork.recognise(module) if fast and score is None and inputs.dim() == 2 else None
    method = Method.of(network, rule)
    if n_steps != "auto":
        extrapolated = rule == "auto" and method.rule == "romberg"
        if extrapolated and not isinstance(n_steps, str) and int(n_steps).bit_count() > 1:
            method = Method.of(network, "secant")  # extrapolation is for powers of two
        return method.with_steps(n_steps)
    if method.exact or not len(inputs):
        return method
    point_bytes = _probe(module, method, references, score).n_bytes
    step = max(1, len(inputs) // _PROBE_ROWS)
    rows, starts = inputs[::step], references[:, ::step]
    before, fewer = None, 0
    for count in _DOUBLING if method.rule == "romberg" else _LADDER:
        candidate = method.with_steps(count)
        chunks = plan_chunks(candidate, starts, max_bytes, point_bytes)
        after = compute_attributions(module, rows, starts, candidate, chunks, False, score)
        if before is not None:
            norm = after.abs().flatten(2).sum(-1)
            error = (after - before).abs().flatten(2).sum(-1) / norm.clamp(min=torch.finfo(norm.dtype).tiny)
            # The right Riemann sum creeps: what is left is more than the last change.
            allowed = tolerance * min(1, count / fewer - 1) if method.rule == "right" else tolerance
            if float(error.mean()) <= allowed:
                # An extrapolation that doubling the steps hardly changes was good before.
                return method.with_steps(fewer) if method.rule == "romberg" else candidate
        before, fewer = after, count
    return candidate


def _probe(module: nn.Module, method: Method, references: Tensor, score: Score | None) -> Probe:
    """On fast paths there is nothing to find out."""
    return Probe(0, False) if method.network is not None else probe(module, references[0], score)


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
