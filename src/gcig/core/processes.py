"""Several processes that train one network: sums over all processes, differentiated in the local rows only.

Every process computes the loss of the joined mini-batch from joined sums (rows, rates, baselines), but
differentiates only the part of its own rows. The gradients of all processes then add up to the gradient of
one process that has all rows. In a single process, each function returns its argument.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

import torch
from torch import Tensor


class Group(Protocol):
    """Processes that train one network together."""

    @property
    def rank(self) -> int:
        """The number of this process, from 0."""
        ...

    @property
    def size(self) -> int:
        """The number of processes."""
        ...

    def add(self, values: Tensor) -> None:
        """Replace values by their sum over all processes."""
        ...


_JOINED: ContextVar[Group | None] = ContextVar("joined", default=None)


@contextmanager
def joining(group: Group | None) -> Iterator[None]:
    """Let the functions of this module sum over the processes of a group inside the block."""
    token = _JOINED.set(group)
    try:
        yield
    finally:
        _JOINED.reset(token)


def joined_group() -> Group | None:
    """Return the group whose processes are joined; None if this process works alone."""
    # A compiled graph cannot look up a context variable, nor send messages.
    return None if torch.compiler.is_compiling() else _JOINED.get()


def joined(values: Tensor) -> Tensor:
    """Return the sum of values over all processes; its gradient is that of this process's values."""
    group = joined_group()
    if group is None:
        return values
    total = values.detach().clone()
    group.add(total)
    return values + (total - values).detach() if values.requires_grad else total


def anywhere(condition: bool, like: Tensor) -> bool:
    """Return whether a condition holds in any process; ``like`` is a tensor on the processes' device."""
    if joined_group() is None:
        return condition
    return bool(joined(torch.tensor(float(condition), device=like.device)) > 0)


def joined_mean(values: Tensor, dim: int | tuple[int, ...] | None = None) -> Tensor:
    """Return the mean of values over all processes; see `joined`."""
    if joined_group() is None:
        return values.mean() if dim is None else values.mean(dim)
    total = joined(values.sum() if dim is None else values.sum(dim))
    count = values.numel() // max(total.numel(), 1)
    return total / joined(torch.tensor(float(count), dtype=values.dtype, device=values.device))
