"""What one forward pass tells about a module: the memory that gradients take, and whether it has kinks."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gcig._warnings import warn_caller
from gcig.core.method import Method
from gcig.core.modules import Score, evaluating, logits, running_eagerly

__all__ = ["KinkWarning", "Probe", "probe", "warn_of_kinks"]

# Operations whose derivative jumps where parameters can move the jump, as autograd calls them.
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


class KinkWarning(UserWarning):
    """The penalty's gradient is wrong because an activation's derivative jumps."""


class Probe(NamedTuple):
    """What was found.

    Attributes
    ----------
    n_bytes : int
        About how much memory a point takes in a forward pass, its differentiable gradient and the
        backward pass through both.
    kinked : bool
        Whether the output's derivative jumps somewhere.
    """

    n_bytes: int
    kinked: bool


def probe(module: nn.Module, points: Tensor, score: Score | None = None) -> Probe:
    """Run a module on two points and look at what autograd keeps of it.

    >>> probe(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)), torch.zeros(2, 3)).kinked
    True
    """
    kept = 0
    own = {tensor.data_ptr() for tensor in [*module.parameters(), *module.buffers()]}

    def pack(tensor: Tensor) -> Tensor:
        nonlocal kept
        if tensor.data_ptr() not in own:
            kept += tensor.nbytes
        return tensor

    with (
        evaluating(module, score),
        running_eagerly(module),
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
    ):
        point = points[:1].detach() if len(points) else points.new_zeros(1, *points.shape[1:])
        two = point.expand(2, *points.shape[1:]).clone().requires_grad_()
        outputs = logits(module, two, score)
        kinked = any(_is_kink(node) for node in _graph(outputs.grad_fn))
        if outputs.requires_grad:
            torch.autograd.grad(outputs.sum(), two, create_graph=True)
    # What two points keep stands for one: as much again is taken by temporaries and gradients.
    return Probe(max(2 * two.nbytes, kept), kinked)


def warn_of_kinks(method: Method, kinked: bool) -> None:
    """Warn where quadrature at fixed nodes loses part of the parameter gradient."""
    if method.network is not None:
        kinked = not (method.by_secants or method.network.smooth)
    if kinked:
        warn_caller(
            f"the parameter gradient of attributions by the rule {method.rule!r} does not converge for "
            "activations with kinks (ReLU and its kin), whatever the number of steps: it misses how kinks "
            "move. Use a smooth activation (SiLU, GELU), or rule='secant' for layered networks.",
            KinkWarning,
        )


def _graph(root: Any) -> Iterator[Any]:
    """All nodes of an autograd graph."""
    seen, ahead = {root}, [root] if root is not None else []
    while ahead:
        node = ahead.pop()
        yield node
        fresh = [other for other, _ in node.next_functions if other is not None and other not in seen]
        seen.update(fresh)
        ahead.extend(fresh)


def _is_kink(node: Any) -> bool:
    name = str(node.name())
    if name.startswith("EluBackward"):  # SELU as well; smooth where both sides have the slope `scale`
        return float(node._saved_alpha) * float(node._saved_input_scale) != 1
    return name.startswith(_KINKED)
