"""Random layers of a network, drawn from a generator of the fit instead of the process's."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

# Fits that must seed the process's generator, one at a time.
_PROCESS_GENERATOR = threading.RLock()
_DROPOUT = (nn.Dropout,)
# Layers of torch that draw random numbers, in training or when they are built.
_RANDOM = (
    nn.modules.dropout._DropoutNd,
    nn.modules.lazy.LazyModuleMixin,
    nn.RReLU,
    nn.FractionalMaxPool2d,
    nn.FractionalMaxPool3d,
    nn.MultiheadAttention,
    nn.Transformer,
    nn.TransformerEncoderLayer,
    nn.TransformerDecoderLayer,
    nn.RNNBase,
)


@contextmanager
def own_random_numbers(module: nn.Module | None, seed: int, device: torch.device) -> Iterator[None]:
    """Let a network draw random numbers that depend on the seed alone, also if other threads draw some.

    Networks without random layers draw none. Dropout draws from a generator of its own. If there are other
    layers that draw, or may draw, random numbers, the process's generators are seeded, and restored at the
    end; only one such fit runs at a time, and other threads should not draw from torch's generator meanwhile.

    Parameters
    ----------
    module : nn.Module or None
        The user's network; None stands for networks of this package, which are not random.
    """
    kinds = set() if module is None else {_kind(part) for part in module.modules()}
    if kinds <= {"fixed"}:
        yield
    elif kinds <= {"fixed", "dropout"} and device.type == "cpu":
        with _DropoutFrom(torch.Generator().manual_seed(seed)):
            yield
    else:
        with _PROCESS_GENERATOR, _seeded_process(seed, device):
            yield


def _kind(part: nn.Module) -> str:
    """Return "fixed", "dropout" or "unknown", the kind of a part of a network."""
    if type(part) in _DROPOUT:
        return "dropout"
    known = type(part).__module__.startswith(("torch.nn.modules.", "gcig."))
    return "fixed" if known and not isinstance(part, _RANDOM) else "unknown"


@contextmanager
def _seeded_process(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's global generators, and restore them afterwards."""
    cuda = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        torch.default_generator.manual_seed(seed)
        with torch.cuda.device(device) if cuda else nullcontext():
            if cuda:
                torch.cuda.manual_seed(seed)
            yield


class _DropoutFrom(TorchFunctionMode):
    """Replace the random numbers of dropout in this thread: torch's dropout takes no generator."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.generator = generator

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call the function, or draw a mask if it is dropout."""
        if func is F.dropout:
            return self._dropout(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _dropout(self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or p == 0:
            return input
        kept = torch.empty_like(input, requires_grad=False).bernoulli_(1 - p, generator=self.generator)
        mask = kept.div_(1 - p) if p < 1 else kept
        return input.mul_(mask) if inplace else input * mask
