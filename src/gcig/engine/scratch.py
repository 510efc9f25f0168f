"""Arrays that are kept from call to call."""

import math
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch
from torch import Tensor

_MOST_PLANS = 16

Plan = TypeVar("Plan")


class Scratch:
    """Named arrays, and plans made of views of them, that are kept from call to call.

    Fresh large arrays cost page faults in every step, several times the cost of the arithmetic in them, and
    creating a hundred views costs as much as a matrix product. Both are safe to keep because a pass is
    complete, gradient included, when it returns. A scratch must not be shared between threads.
    """

    def __init__(self) -> None:
        self._storage: dict[str, Tensor] = {}
        self._plans: dict[Hashable, Any] = {}

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
            with torch.inference_mode(False):  # otherwise training could not write to it later
                storage = self._storage[name] = like.new_empty(size)
            self._plans.clear()  # they may hold the memory that was replaced
        return storage[:size].view(shape)

    def recall(self, key: Hashable, build: Callable[[], Plan]) -> Plan:
        """Return the plan that was built under this key, or build it."""
        if key not in self._plans:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            with torch.inference_mode(False):
                plan = build()
            self._plans[key] = plan
        found: Plan = self._plans[key]
        return found
