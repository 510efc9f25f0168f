"""Modules in evaluation mode, with one logit per row."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

# Parts that were in training mode, and by how many callers each is being evaluated.
_EVALUATED: "WeakKeyDictionary[nn.Module, int]" = WeakKeyDictionary()
_EVALUATED_LOCK = threading.Lock()
Score = Callable[[Tensor], Tensor]
Function = TypeVar("Function", bound=Callable[..., object])


@contextmanager
def evaluating(module: nn.Module, score: Score | None = None) -> Iterator[None]:
    """Put a module, and a score that is a module, into evaluation mode; restore the mode of each part.

    Attributions of a row must not depend on other rows (BatchNorm) or on chance (dropout). If several threads
    evaluate a module, the last one to leave restores the modes.
    """
    modules = [module, score] if isinstance(score, nn.Module) else [module]
    parts = [part for whole in modules for part in whole.modules()]
    with _EVALUATED_LOCK:
        entered = [part for part in parts if part.training or part in _EVALUATED]
        for part in entered:
            part.training = False
            _EVALUATED[part] = _EVALUATED.get(part, 0) + 1
    try:
        yield
    finally:
        with _EVALUATED_LOCK:
            for part in entered:
                _EVALUATED[part] -= 1
                if not _EVALUATED[part]:
                    del _EVALUATED[part]
                    part.training = True


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


def differentiable_attention(twice: bool) -> AbstractContextManager[None]:
    """Compute attention by plain operations if it is differentiated `twice`.

    The fused kernels of `scaled_dot_product_attention` have a first derivative only.
    """
    plain: AbstractContextManager[None] = sdpa_kernel(SDPBackend.MATH) if twice else nullcontext()
    return plain


def is_recording() -> bool:
    """Return whether operations are recorded, to be repeated later with other values.

    That is so under ``torch.compile`` and while a CUDA graph is captured: no value may then decide what is
    done, nor be waited for.
    """
    return torch.compiler.is_compiling() or (
        torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
    )


def untraced(function: Function) -> Function:
    """Return the function, excluded from tracing if `torch.compile` is tracing the caller."""
    if not torch.compiler.is_compiling():
        return function
    left_alone: Function = torch.compiler.disable(function)
    return left_alone


def logits(module: nn.Module, inputs: Tensor, score: Score | None = None) -> Tensor:
    """Return one logit per row, shape (n,), from a module that gives (n,) or (n, 1), or through `score`."""
    outputs: Tensor = module(inputs)
    if score is not None:
        outputs = score(outputs)
    if outputs.shape == (len(inputs), 1):
        outputs = outputs[:, 0]
    if outputs.shape != (len(inputs),):
        raise ValueError(
            f"the module must give one logit per row, shape ({len(inputs)},) or ({len(inputs)}, 1), but gave "
            f"{tuple(outputs.shape)}; pass score=, for two outputs score=lambda out: out[:, 1] - out[:, 0]"
        )
    return outputs
