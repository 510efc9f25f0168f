"""Properties of a module that one forward pass shows: memory per point, kinks, second derivatives."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gcig._warnings import warn_caller
from gcig.core.integration import Integration
from gcig.core.modules import Score, differentiable_attention, evaluating, logits, running_eagerly

# Autograd names of operations whose derivative jumps at a place that depends on the parameters.
_KINKED = (
    "Relu",
    "LeakyRelu",
    "Prelu",
    "Rrelu",
    "Hardtanh",
    "Hardswish",
    "Hardsigmoid",
    "Hardshrink",
    "Softshrink",
    "Threshold",
    "MaxPool",
    "AdaptiveMaxPool",
)

# ... and of gradients that cannot be differentiated again.
_UNDEFINED = ("torch::autograd::Error", "torch::autograd::NotImplemented")


class KinkWarning(UserWarning):
    """The penalty's gradient is wrong because an activation's derivative jumps."""


class Probe(NamedTuple):
    """Properties of a module found by one forward pass.

    Attributes
    ----------
    n_bytes : int
        Approximate memory of one point in a forward pass, its differentiable gradient, and the backward
        pass through both.
    kinked : bool
        Whether the output's derivative has jumps.
    twice : bool
        Whether the output can be differentiated twice.
    """

    n_bytes: int
    kinked: bool
    twice: bool = True


def probe(module: nn.Module, points: Tensor, score: Score | None = None) -> Probe:
    """Run a module on two points, and inspect what autograd keeps.

    >>> probe(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)), torch.zeros(2, 3)).kinked
    True
    """
    kept, twice = 0, True
    own = {tensor.data_ptr() for tensor in [*module.parameters(), *module.buffers()]}

    def pack(tensor: Tensor) -> Tensor:
        nonlocal kept
        if tensor.data_ptr() not in own:
            kept += tensor.nbytes
        return tensor

    with (
        evaluating(module, score),
        running_eagerly(module),
        differentiable_attention(twice=True),
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
    ):
        point = points[:1].detach() if len(points) else points.new_zeros(1, *points.shape[1:])
        two = point.expand(2, *points.shape[1:]).clone().requires_grad_()
        outputs = logits(module, two, score)
        kinked = any(_is_kink(node) for node in _graph(outputs.grad_fn))
        if outputs.requires_grad:
            # A weight that requires a gradient makes once_differentiable functions show.
            (gradient,) = torch.autograd.grad(
                outputs,
                two,
                torch.ones_like(outputs, requires_grad=True),
                create_graph=True,
                allow_unused=True,
            )
            if gradient is not None:
                twice = not any(node.name() in _UNDEFINED for node in _graph(gradient.grad_fn))
    # The tensors kept for two points estimate one: temporaries and gradients take as much again.
    return Probe(max(2 * two.nbytes, kept), kinked, twice)


def require_second_derivative(found: Probe) -> None:
    """Raise an error that says what to do if a module cannot be trained on its attributions."""
    if not found.twice:
        raise RuntimeError(
            "the module cannot be trained on its attributions, since one of its operations has no second "
            "derivative. Fused attention kernels that are called directly, and autograd functions marked as "
            "once_differentiable, are such operations: use plain operations instead, or torch.nn.functional."
            "scaled_dot_product_attention, of which a version with a second derivative is selected."
        )


def warn_of_kinks(integration: Integration, kinked: bool) -> None:
    """Warn if quadrature at fixed nodes loses part of the parameter gradient."""
    if integration.network is not None:
        kinked = not (integration.by_secants or integration.network.smooth)
    if kinked:
        warn_caller(
            f"the parameter gradient of attributions by the rule {integration.rule!r} does not converge for "
            "activations with kinks (such as ReLU), whatever the number of steps: it misses the movement of "
            "the kinks. Use a smooth activation (SiLU, GELU), or rule='secant' for layered networks.",
            KinkWarning,
        )


def _graph(root: Any) -> Iterator[Any]:
    """Iterate over all nodes of an autograd graph."""
    seen, ahead = {root}, [root] if root is not None else []
    while ahead:
        node = ahead.pop()
        yield node
        fresh = [other for other, _ in node.next_functions if other is not None and other not in seen]
        seen.update(fresh)
        ahead.extend(fresh)


def _is_kink(node: Any) -> bool:
    name = str(node.name())
    if name.startswith("EluBackward"):  # SELU as well; smooth if both sides have the slope `scale`
        return float(node._saved_alpha) * float(node._saved_input_scale) != 1
    return name.startswith(_KINKED)
