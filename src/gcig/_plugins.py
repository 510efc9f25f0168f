"""Registries of methods and datasets: of this package, of installed packages, and added by the user."""

import warnings
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping
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


class Registry(UserDict[str, T]):
    """Entries of one ``kind`` by name, which `add` extends.

    Installed packages offer entries through the entry points ``gcig.<kind>s``, whose name and object
    ``convert`` turns into an entry. They are added when an unknown name is looked up, or all are listed.
    """

    def __init__(self, kind: str, entries: Mapping[str, T], convert: Callable[[str, Any], T]) -> None:
        super().__init__(entries)
        self._kind, self._convert, self._complete = kind, convert, False

    def __missing__(self, name: str) -> T:
        if name not in self._all():
            raise KeyError(f"no {self._kind} {name!r}; choose from {', '.join(self.data)}")
        return self.data[name]

    def __contains__(self, name: object) -> bool:
        return name in self.data or name in self._all()

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._all()))

    def __len__(self) -> int:
        return len(self._all())

    def add(self, name: str, entry: T, *, overwrite: bool) -> None:
        """Add an entry, or replace one."""
        if name in self.data and not overwrite:
            raise ValueError(
                f"A {self._kind} called {name!r} is already registered. Choose another name, or replace it "
                "with overwrite=True."
            )
        self.data[name] = entry

    def _all(self) -> dict[str, T]:
        if not self._complete:
            self._complete = True  # first: a package may look up entries while it is imported
            self._load_plugins(f"gcig.{self._kind}s")
        return self.data

    def _load_plugins(self, group: str) -> None:
        """Add all entry points of a group; a broken package must not prevent the use of the others."""
        taken = set(self.data)
        for point in sorted(entry_points(group=group), key=lambda each: each.name):
            try:
                if point.name in taken:
                    raise ValueError("the name is already taken")
                self.data.setdefault(point.name, self._convert(point.name, point.load()))
            except Exception as error:  # whatever another package raises
                reason = f"{point.value} cannot be used ({type(error).__name__}: {error})"
                warnings.warn(PluginWarning(group, point.name, reason), stacklevel=2)
