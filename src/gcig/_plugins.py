"""Methods and datasets that installed packages offer through entry points."""

import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from typing import Any, TypeVar

T = TypeVar("T")


class PluginWarning(UserWarning):
    """An entry point of another package that cannot be used; everything else works without it."""

    def __init__(self, group: str, name: str, reason: str) -> None:
        self.group = group
        self.name = name
        self.reason = reason
        super().__init__(f"The entry point {name!r} of {group!r} is left out: {reason}.")

    def __reduce__(self) -> tuple[type["PluginWarning"], tuple[str, str, str]]:
        return type(self), (self.group, self.name, self.reason)


def load_plugins(group: str, taken: set[str], convert: Callable[[str, Any], T]) -> Iterator[tuple[str, T]]:
    """Yield the name of every entry point of a group, and the result of ``convert`` for its name and object.

    A name that is ``taken``, and an object that cannot be imported or converted, are left out with a
    `PluginWarning`: a broken package must not prevent the use of the others.
    """
    for entry in sorted(entry_points(group=group), key=lambda each: each.name):
        try:
            if entry.name in taken:
                raise ValueError("the name is already taken")
            found = convert(entry.name, entry.load())
        except Exception as error:  # whatever another package raises
            reason = f"{entry.value} cannot be used ({type(error).__name__}: {error})"
            warnings.warn(PluginWarning(group, entry.name, reason), stacklevel=2)
        else:
            yield entry.name, found
