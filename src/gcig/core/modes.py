"""Modules as they are when they predict: in evaluation mode, with one logit a row."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import Tensor, nn

__all__ = ["Score", "evaluating", "logits"]

Score = Callable[[Tensor], Tensor]


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put a module in evaluation mode, and every part of it back in the mode it was in.

    Attributions of a row must not depend on the other rows (BatchNorm) or on chance (dropout).
    """
    training = [part for part in module.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True


def logits(module: nn.Module, inputs: Tensor, score: Score | None = None) -> Tensor:
    """One logit a row, shape (n,), from a module that gives (n,) or (n, 1), or else through `score`."""
    outputs = module(inputs)
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
