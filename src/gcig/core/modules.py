"""Modules in evaluation mode, and what a forward pass shows about them."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from gcig._arguments import warn_caller

# Parts that were in training mode, and by how many callers each is being evaluated.
_EVALUATED: "WeakKeyDictionary[nn.Module, int]" = WeakKeyDictionary()
_EVALUATED_LOCK = threading.Lock()
_ATTENTION = ExitStack()  # holds the setting of `plain_attention` while some caller needs it
_ATTENTION_USERS = [0]
_ATTENTION_LOCK = threading.Lock()
_WRAPPERS = {"DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule"}
Score = Callable[[Tensor], Tensor]
PIECEWISE_LINEAR = (nn.ReLU, nn.LeakyReLU, nn.ReLU6, nn.Hardtanh)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put a module into evaluation mode; restore the mode of each part.

    Attributions of a row must not depend on other rows (BatchNorm) or on chance (dropout). If several threads
    evaluate a module, the last one to leave restores the modes.
    """
    with _EVALUATED_LOCK:
        entered = [part for part in module.modules() if part.training or part in _EVALUATED]
        for part in entered:
            object.__setattr__(part, "training", False)  # many times faster than Module.__setattr__
            _EVALUATED[part] = _EVALUATED.get(part, 0) + 1
    try:
        yield
    finally:
        with _EVALUATED_LOCK:
            for part in entered:
                _EVALUATED[part] -= 1
                if not _EVALUATED[part]:
                    del _EVALUATED[part]
                    object.__setattr__(part, "training", True)


def is_piecewise_linear(module: nn.Module) -> bool:
    """Return whether a part of a module is an activation that consists of straight pieces."""
    return any(isinstance(part, PIECEWISE_LINEAR) for part in module.modules())


def running_eagerly(module: nn.Module) -> AbstractContextManager[None]:
    """Run a module eagerly even if it or a part of it was compiled.

    Compiled code can be differentiated only once; training on attributions needs second derivatives.
    """
    compiled = any(
        part._compiled_call_impl is not None or hasattr(part, "_orig_mod") for part in module.modules()
    )
    if not compiled:
        return nullcontext()
    stance: AbstractContextManager[None] = torch.compiler.set_stance("force_eager")
    return stance


@contextmanager
def plain_attention() -> Iterator[None]:
    """Compute attention by plain operations: the fused kernels have a first derivative only.

    torch keeps this setting for the whole process. If several threads need it, the last one to leave restores
    what the first one found.
    """
    with _ATTENTION_LOCK:
        if not _ATTENTION_USERS[0]:
            _ATTENTION.enter_context(sdpa_kernel(SDPBackend.MATH))
        _ATTENTION_USERS[0] += 1
    try:
        yield
    finally:
        with _ATTENTION_LOCK:
            _ATTENTION_USERS[0] -= 1
            if not _ATTENTION_USERS[0]:
                _ATTENTION.close()


@contextmanager
def differentiating(module: nn.Module, *, twice: bool) -> Iterator[None]:
    """Evaluate a module with gradients with respect to its inputs, whatever the caller has set torch to.

    If the gradients are differentiated as well (`twice`), attention is computed by plain operations.
    """
    with (
        evaluating(module),
        running_eagerly(module),
        plain_attention() if twice else nullcontext(),
        torch.inference_mode(False),
        torch.enable_grad(),
    ):
        yield


def refuse_wrapped(module: nn.Module) -> None:
    """Raise an error if a module, or a part of it, is wrapped to average gradients over processes.

    Wrappers are recognised by the names of their classes: importing them takes long.
    """
    names = {base.__name__ for part in module.modules() for base in type(part).__mro__}
    if found := sorted(names & _WRAPPERS):
        raise ValueError(
            f"the module is wrapped in {found[0]}, which can silently give wrong gradients for a loss that "
            "itself contains a gradient. Lightning and Accelerate wrap modules without being asked. Train a "
            "plain module, and average the gradients of the processes with one all-reduce: see 'Several "
            "processes' in docs/howto/own_loop.rst. The wrapper's attribute `module` is wrong as well."
        )


# Autograd names of operations whose derivative jumps at a place that depends on the parameters.
_KINKED = (
    *("Relu", "LeakyRelu", "Prelu", "Rrelu", "Hardtanh", "Hardswish", "Hardsigmoid", "Hardshrink"),
    *("Softshrink", "Threshold", "MaxPool", "AdaptiveMaxPool"),
)
# ... and of gradients that cannot be differentiated again.
_UNDEFINED = ("torch::autograd::Error", "torch::autograd::NotImplemented")


class KinkWarning(UserWarning):
    """The penalty's gradient is wrong because an activation's derivative jumps."""


def check_trainable(
    module: nn.Module, score: Callable[[Tensor], Tensor], points: Tensor, *, kinks: bool
) -> None:
    """Raise an error if a module cannot be trained on its attributions; warn of kinks if `kinks`.

    ``score`` maps a few points (1, n, ...) to scores (1, n).
    """
    with differentiating(module, twice=True):
        points = points.detach().clone().requires_grad_()
        scores = score(points)
        if not scores.requires_grad:
            return
        kinked = kinks and any(_is_kink(node) for node in _graph(scores.grad_fn))
        # A weight that requires a gradient makes once_differentiable functions show.
        weights = torch.ones_like(scores, requires_grad=True)
        (gradient,) = torch.autograd.grad(scores, points, weights, create_graph=True, allow_unused=True)
    if gradient is not None and any(node.name() in _UNDEFINED for node in _graph(gradient.grad_fn)):
        raise RuntimeError(
            "the module cannot be trained on its attributions, since one of its operations has no second "
            "derivative. Fused attention kernels that are called directly, and autograd functions marked as "
            "once_differentiable, are such operations: use plain operations instead, or torch.nn.functional."
            "scaled_dot_product_attention, of which a version with a second derivative is selected."
        )
    if kinked:
        warn_of_kinks()


def warn_of_kinks() -> None:
    """Warn that the parameter gradient of attributions misses the movement of kinks."""
    warn_caller(
        "the parameter gradient of attributions by quadrature does not converge for activations with kinks "
        "(such as ReLU) outside a chain of linear layers, whatever the number of steps: it misses the "
        "movement of the kinks. Use a smooth activation (SiLU, GELU).",
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
