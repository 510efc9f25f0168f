"""Arrays that are reused between calls."""

import math
import threading
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch
from torch import Tensor

from gcig.core.modules import is_recording

_MOST_PLANS = 16

Plan = TypeVar("Plan")


class Scratch(threading.local):
    """Named arrays, and plans made of views of them, that are reused between calls.

    Newly allocated large arrays cause page faults, which take several times as long as the arithmetic in
    them, and creating a hundred views takes as long as a matrix product. Reuse is safe because a pass is
    complete, gradient included, when it returns. Every thread has its own arrays.

    Arrays of a recorded CUDA graph stay allocated after they are replaced, because the graph writes to them.
    """

    def __init__(self) -> None:
        super().__init__()
        self._storage: dict[str, Tensor] = {}
        self._plans: dict[Hashable, Any] = {}
        self._recorded, self._replaced = False, list[Any]()

    @property
    def n_bytes(self) -> int:
        """The size of the arrays of this thread."""
        return sum(storage.nbytes for storage in self._storage.values())

    def __deepcopy__(self, memo: object) -> "Scratch":
        return Scratch()

    def __reduce__(self) -> tuple[type["Scratch"], tuple[()]]:
        return Scratch, ()

    def array(self, name: str, like: Tensor, *shape: int) -> Tensor:
        """Return an array of this shape with arbitrary contents; the same memory for the same name."""
        size = math.prod(shape)
        storage = self._storage.get(name)
        kind = (like.dtype, like.device)
        if storage is None or len(storage) < size or (storage.dtype, storage.device) != kind:
            self._forget_plans(storage)  # they may hold the memory that is replaced
            with torch.inference_mode(False):  # otherwise training could not write to it later
                storage = self._storage[name] = like.new_empty(size)
        return storage[:size].view(shape)

    def recall(self, key: Hashable, build: Callable[[], Plan]) -> Plan:
        """Return the plan that was built under this key, or build it."""
        self._recorded = self._recorded or is_recording()
        if key not in self._plans:
            if len(self._plans) >= _MOST_PLANS:
                self._forget_plans()
            with torch.inference_mode(False):
                plan = build()
            self._plans[key] = plan
        found: Plan = self._plans[key]
        return found

    def _forget_plans(self, storage: Tensor | None = None) -> None:
        if self._recorded:
            self._replaced.append((self._plans, storage))
        self._plans = {}
