"""Arrays that outlive a call."""

import math
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch
from torch import Tensor

__all__ = ["Scratch"]

_MOST_PLANS = 16

Plan = TypeVar("Plan")


class Scratch:
    """Named arrays, and plans made of views of them, that are kept from call to call.

    Fresh large arrays cost page faults in every step, several times what is computed in them, and making
    a hundred views costs as much as a product. Both are safe to keep because a pass is finished, gradient
    and all, when it returns. Not safe to share between threads.
    """

    def __init__(self) -> None:
        self._storage: dict[str, Tensor] = {}
        self._plans: dict[Hashable, Any] = {}

    def __deepcopy__(self, memo: object) -> "Scratch":
        return Scratch()

    def __reduce__(self) -> tuple[type["Scratch"], tuple[()]]:
        return Scratch, ()

    def array(self, name: str, like: Tensor, *shape: int) -> Tensor:
        """An array of this shape with arbitrary contents; the same memory for the same name."""
        size = math.prod(shape)
        storage = self._storage.get(name)
        kind = (like.dtype, like.device)
        if storage is None or len(storage) < size or (storage.dtype, storage.device) != kind:
            with torch.inference_mode(False):  # or training could not write there later
                storage = self._storage[name] = like.new_empty(size)
            self._plans.clear()  # they may hold on to the memory that was replaced
        return storage[:size].view(shape)

    def recall(self, key: Hashable, build: Callable[[], Plan]) -> Plan:
        """The plan that was built under this key, or a new one."""
        if key not in self._plans:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            with torch.inference_mode(False):
                plan = build()
            self._plans[key] = plan
        found: Plan = self._plans[key]
        return found
