"""Group counterfactual attributions: which way to compute them, in how many steps, in how much memory."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from gcig.core.layered import LayeredNetwork
from gcig.core.modes import Score, evaluating, logits
from gcig.core.paths import general_attributions, node_attributions, secant_attributions
from gcig.core.quadrature import quadrature

__all__ = [
    "Attribution",
    "KinkWarning",
    "Method",
    "attributions",
    "bytes_per_row",
    "choose_method",
    "compute_attributions",
    "training_method",
    "warn_of_kinks",
]

MAX_BYTES = 1 << 28
_PROBE_ROWS = 128
_LADDER = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
_KINKED = (nn.ReLU, nn.LeakyReLU, nn.ReLU6, nn.PReLU, nn.RReLU, nn.Hardtanh, nn.Hardswish, nn.Hardsigmoid)


class KinkWarning(UserWarning):
    """The penalty's gradient is wrong because an activation's derivative jumps."""


@dataclass(frozen=True)
class Method:
    """How attributions are computed.

    Attributes
    ----------
    network : LayeredNetwork or None
        Set where a fast path for layered networks is taken.
    rule : str
        A rule of `gcig.core.quadrature`, or ``"secant"``.
    n_steps : int
        Its steps.
    """

    network: LayeredNetwork | None
    rule: str
    n_steps: int

    @property
    def exact(self) -> bool:
        """Whether the result is the integral itself: secants of one hidden layer, or a linear model."""
        return self.network is not None and (
            self.network.n_hidden == 0 or (self.network.n_hidden == 1 and self.rule == "secant")
        )


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
        Where the paths start, as from `GroupBaselines.of`.
    rule : {"auto", "secant", "right", "midpoint", "simpson", "gauss_legendre"}
        How the path is integrated. ``"secant"`` is for layered networks.
    n_steps : int or "auto"
        Steps; ``"auto"`` takes as many as `tolerance` requires.
    tolerance : float
        Relative error of the attributions (in the l1 norm, mean over rows) that the automatic mode allows.
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
            f"references must have shape (groups, *inputs.shape) = (groups, {', '.join(map(str, inputs.shape))}), "
            f"not {tuple(references.shape)}"
        )
    inputs, references = inputs.detach(), references.detach().to(inputs.dtype)
    with evaluating(module):
        method = choose_method(
            module, inputs, references, rule=rule, n_steps=n_steps, tolerance=tolerance, fast=fast, score=score
        )
        if create_graph:
            warn_of_kinks(module, method)
        size = max(1, max_bytes // bytes_per_row(module, method, references, score))
        values = compute_attributions(module, inputs, references, method, size, create_graph, score)
        with torch.no_grad():
            residual = _residual(module, inputs, references, values, size, score)
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
) -> Method:
    """Resolve ``"auto"``: the cheapest rule for the module, and the steps that reach the tolerance.

    Steps are raised until two successive results agree on a sample of the rows. Completeness alone
    would not do: secants are complete at any number of steps.
    """
    network = LayeredNetwork.recognise(module) if fast and score is None and inputs.dim() == 2 else None
    method = _with_rule(network, rule)
    if n_steps != "auto":
        return replace(method, n_steps=int(n_steps))
    if method.exact:
        return method
    step = max(1, len(inputs) // _PROBE_ROWS)
    rows, starts = inputs[::step], references[:, ::step]
    before: Tensor | None = None
    for count in _LADDER:
        candidate = replace(method, n_steps=count)
        with torch.no_grad():
            after = _computation(module, candidate, score)(rows, starts, False)
        if before is not None:
            norm = after.abs().flatten(2).sum(-1)
            error = (after - before).abs().flatten(2).sum(-1) / norm.clamp(min=torch.finfo(norm.dtype).tiny)
            if float(error.mean()) <= tolerance:
                return candidate
        before = after
    return candidate


def training_method(module: nn.Module, *, rule: str, n_steps: int | str, fast: bool, tabular: bool) -> Method:
    """Resolve ``"auto"`` for training, where a fixed cost matters more than the last digits.

    The defaults are at least as accurate as the paper's right Riemann sum with 16 steps: one secant
    segment for layered networks with smooth activations, two for those with kinks, and two Gauss-Legendre
    nodes for any other module.
    """
    network = LayeredNetwork.recognise(module) if fast and tabular else None
    method = _with_rule(network, "secant" if rule == "auto" and network is not None else rule)
    if n_steps != "auto":
        return replace(method, n_steps=int(n_steps))
    if method.rule == "secant" and network is not None:
        return replace(method, n_steps=1 if network.smooth or network.n_hidden < 2 else 2)
    return replace(method, n_steps={"right": 16, "midpoint": 2, "simpson": 1}.get(method.rule, 2))


def _with_rule(network: LayeredNetwork | None, rule: str) -> Method:
    if rule == "auto":
        curved = network is None or (network.smooth and network.n_hidden > 1)
        rule = "gauss_legendre" if curved else "secant"
    if rule == "secant":
        if network is None:
            raise ValueError(
                "rule='secant' needs a layered network: nn.Sequential of Linear and known activations in "
                "turn, with one output and fast=True; choose another rule for this module"
            )
        return Method(network, rule, 1)
    quadrature(rule, 1)
    return Method(network, rule, 1)


def warn_of_kinks(module: nn.Module, method: Method) -> None:
    """Warn where quadrature at fixed nodes loses part of the parameter gradient."""
    if method.rule == "secant":
        return
    if method.network is not None:
        kinked = not method.network.smooth
    else:
        kinked = any(isinstance(part, _KINKED) for part in module.modules())
    if kinked:
        warnings.warn(
            f"the parameter gradient of attributions by the rule {method.rule!r} does not converge for "
            "activations with kinks (ReLU and its kin), whatever the number of steps: it misses how kinks "
            "move. Use a smooth activation (SiLU, GELU), or rule='secant' for layered networks.",
            KinkWarning,
            stacklevel=3,
        )


Computation = Callable[[Tensor, Tensor, bool], Tensor]


def _computation(module: nn.Module, method: Method, score: Score | None) -> Computation:
    """The chosen way as a function of inputs, references and create_graph."""
    network = method.network

    def compute(inputs: Tensor, references: Tensor, create_graph: bool) -> Tensor:
        if network is None:
            rule = quadrature(method.rule, method.n_steps)
            return general_attributions(
                module, inputs, references, rule, create_graph=create_graph, score=score
            )
        # Differences of slopes do not survive half precision.
        with torch.autocast(inputs.device.type, enabled=False):
            if network.n_hidden == 0:
                return (inputs - references) * network.weights[0][0]
            if method.rule == "secant":
                return secant_attributions(network, inputs, references, method.n_steps)
            return node_attributions(network, inputs, references, quadrature(method.rule, method.n_steps))

    return compute


def bytes_per_row(module: nn.Module, method: Method, references: Tensor, score: Score | None = None) -> int:
    """About how much memory one row takes in the forward and the backward pass together."""
    groups, per_item = len(references), references.element_size()
    if method.network is not None:
        units = sum(len(weight) for weight in method.network.weights)
        nodes = method.n_steps + 1 if method.rule == "secant" else len(quadrature(method.rule, method.n_steps))
        # Values, slopes and products at every node, and as much again for their gradients.
        return per_item * groups * (16 * nodes * units + 6 * references.shape[-1])
    nodes = len(quadrature(method.rule, method.n_steps))
    return groups * nodes * _bytes_per_point(module, references[0, :1], score)


def _bytes_per_point(module: nn.Module, point: Tensor, score: Score | None) -> int:
    """What autograd keeps for one point in a forward pass and its differentiable gradient."""
    kept = 0
    own = {tensor.data_ptr() for tensor in [*module.parameters(), *module.buffers()]}

    def pack(tensor: Tensor) -> Tensor:
        nonlocal kept
        if tensor.data_ptr() not in own:
            kept += tensor.nbytes
        return tensor

    two = point.expand(2, *point.shape[1:]).clone().requires_grad_()
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        outputs = logits(module, two, score)
        if outputs.requires_grad:
            torch.autograd.grad(outputs.sum(), two, create_graph=True)
    # Twice: temporaries and gradients of what is kept.
    return max(4 * point.nbytes, kept)


def compute_attributions(
    module: nn.Module,
    inputs: Tensor,
    references: Tensor,
    method: Method,
    size: int,
    create_graph: bool,
    score: Score | None = None,
) -> Tensor:
    """Attributions by a given method, `size` rows at a time; the module is taken in the mode it is in."""
    compute = _computation(module, method, score)
    if len(inputs) <= size:
        with torch.set_grad_enabled(create_graph):
            return compute(inputs, references, create_graph)
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if create_graph and parameters:
        result: Tensor = _Recomputed.apply(compute, inputs, references, size, *parameters)
        return result
    with torch.no_grad():
        return _map_rows(compute, inputs, references, size)


def _map_rows(compute: Computation, inputs: Tensor, references: Tensor, size: int) -> Tensor:
    result = torch.empty_like(references)
    for start in range(0, len(inputs), size):
        rows = slice(start, start + size)
        result[:, rows] = compute(inputs[rows], references[:, rows], False)
    return result


class _Recomputed(torch.autograd.Function):
    """Chunks are computed without a graph, and again with one, chunk by chunk, in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, compute: Computation, inputs: Tensor, references: Tensor, size: int, *parameters: Tensor
    ) -> Tensor:
        ctx.compute, ctx.size = compute, size
        ctx.save_for_backward(inputs, references, *parameters)
        return _map_rows(compute, inputs, references, size)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, d_values: Tensor) -> tuple[Tensor | None, ...]:
        inputs, references, *parameters = ctx.saved_tensors
        totals: Sequence[Tensor] = [torch.zeros_like(parameter) for parameter in parameters]
        for start in range(0, len(inputs), ctx.size):
            rows = slice(start, start + ctx.size)
            with torch.enable_grad():
                values = ctx.compute(inputs[rows], references[:, rows], True)
            parts = torch.autograd.grad(values, parameters, d_values[:, rows], allow_unused=True)
            for total, part in zip(totals, parts, strict=True):
                if part is not None:
                    total += part
        return None, None, None, None, *totals


def _residual(
    module: nn.Module, inputs: Tensor, references: Tensor, values: Tensor, size: int, score: Score | None
) -> Tensor:
    ends = []
    for start in range(0, len(inputs), size):
        rows = slice(start, start + size)
        starts = references[:, rows]
        f_start = logits(module, starts.flatten(0, 1), score).view(starts.shape[:2])
        ends.append(logits(module, inputs[rows], score) - f_start)
    change = torch.cat(ends, dim=1)
    return (values.detach().flatten(2).sum(-1) - change).abs()
