"""Modules as they are when they predict: in evaluation mode, with one logit a row."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeVar

import torch
from torch import Tensor, nn

__all__ = ["Score", "evaluating", "logits", "running_eagerly", "untraced"]

Score = Callable[[Tensor], Tensor]
Function = TypeVar("Function", bound=Callable[..., object])


@contextmanager
def evaluating(module: nn.Module, score: Score | None = None) -> Iterator[None]:
    """Put a module in evaluation mode, and every part of it back in the mode it was in.

    Attributions of a row must not depend on the other rows (BatchNorm) or on chance (dropout). The same
    goes for the score, where that is a module.
    """
    modules = [module, score] if isinstance(score, nn.Module) else [module]
    training = [part for whole in modules for part in whole.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True


def running_eagerly(module: nn.Module) -> AbstractContextManager[None]:
    """Call a module as it is written, even where it or a part of it was compiled.

    Compiled code can be differentiated once; attributions that train need it twice.
    """
    compiled = any(
        part._compiled_call_impl is not None or hasattr(part, "_orig_mod") for part in module.modules()
    )
    if not compiled:
        return nullcontext()
    stance: AbstractContextManager[None] = torch.compiler.set_stance("force_eager")
    return stance


def untraced(function: Function) -> Function:
    """The function, which `torch.compile` calls as it is when it is tracing the caller."""
    if not torch.compiler.is_compiling():
        return function
    left_alone: Function = torch.compiler.disable(function)
    return left_alone


def logits(module: nn.Module, inputs: Tensor, score: Score | None = None) -> Tensor:
    """One logit a row, shape (n,), from a module that gives (n,) or (n, 1), or else through `score`."""
    outputs: Tensor = module(inputs)
    if score is not None:
        outputs = score(outputs)
    if outputs.shape == (len(inputs), 1):
        outputs = outputs[:, 0]
    if outputs.shape != (len(inputs),):
        raise ValueError(
            f"the module must give one logit a row, shape ({len(inputs)},) or ({len(inputs)}, 1), but gave "
            f"{tuple(outputs.shape)}; pass score=, for two outputs score=lambda out: out[:, 1] - out[:, 0]"
        )
    return outputs
