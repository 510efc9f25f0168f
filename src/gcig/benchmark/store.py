"""What survives a crash: a folder with one file per finished cell."""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from gcig._warnings import warn_caller
from gcig.benchmark.cell import Cell, canonical_json
from gcig.benchmark.claims import claim, exclusively
from gcig.benchmark.manifest import Manifest
from gcig.benchmark.packing import pack_columns, unpack_columns
from gcig.benchmark.run_files import RunError, RunWarning, read_bounded, write_file
from gcig.benchmark.table import Table
from gcig.records import FoldResult

__all__ = ["RunStore"]

_MANIFEST = "manifest.json"
_MAX_BYTES = 256 * 2**20


class RunStore:
    """The folder of a run: ``manifest.json``, and in ``cells/`` one file per finished cell.

    A file is written beside its place, flushed and renamed, so that it is whole or not there. A file that is
    neither (torn by the disk, edited) counts as not there, and its cell is done again.

    Parameters
    ----------
    path : the folder of a run that exists; `open` starts one.

    Examples
    --------
    >>> import tempfile
    >>> store = RunStore.open(tempfile.mkdtemp(), tables=[], configuration={"folds": 5})
    >>> store.finished(), store.results()
    (set(), [])
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not (self.path / _MANIFEST).is_file():
            raise RunError(f"there is no run in {str(self.path)!r}: it has no {_MANIFEST}.")
        self.manifest = Manifest.read(self.path / _MANIFEST)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        tables: Iterable[Table],
        configuration: Mapping[str, Any],
        methods: Iterable[str] = (),
    ) -> "RunStore":
        """Start a run in a folder, or go on with the one that is there.

        Refused, with the names of what changed, when the run there was started with other rows under the
        same name, another configuration or other code. Tables that are new to it are added.
        """
        folder = Path(path)
        if folder.exists() and not folder.is_dir():
            raise RunError(f"{str(folder)!r} is a file: give a folder.")
        now = Manifest.now({table.name: table.sha256 for table in tables}, configuration, methods)
        file = folder / _MANIFEST
        with exclusively(folder / "claims" / "manifest"):
            before = Manifest.read(file) if file.exists() else None
            known = now if before is None else before.merged(now, folder)
            if known != before:
                write_file(file, known.to_bytes())
            return cls(folder)

    @property
    def _cells(self) -> Path:
        return self.path / "cells"

    def finished(self) -> set[str]:
        """Keys of the cells that have a result, a failure included."""
        return {cell.key for cell, _ in self._entries()}

    def failed(self) -> set[str]:
        """Keys of the cells whose fit failed."""
        return {cell.key for cell, result in self._entries() if result.error is not None}

    def get(self, cell: Cell) -> FoldResult | None:
        """The result of a cell; None where it is not finished."""
        found = _read(self._cells / cell.file_name)
        return found[1] if found is not None and found[0] == cell else None

    def results(self, cells: Iterable[Cell] | None = None) -> list[FoldResult]:
        """The results there are of the given cells, in their order; default: of all test cells."""
        if cells is not None:
            return [result for cell in cells if (result := self.get(cell)) is not None]
        return [result for cell, result in self._entries() if cell.role == "test"]

    def entries(self) -> list[tuple[Cell, FoldResult]]:
        """All finished cells with their results, in the order of their file names."""
        return list(self._entries())

    def put(self, cell: Cell, result: FoldResult) -> None:
        """Store a result; it replaces an earlier one."""
        content = {"cell": cell.to_dict(), "result": _plain(result)}
        data = {"sha256": _checksum(content), **content}
        write_file(self._cells / cell.file_name, json.dumps(data, allow_nan=False) + "\n")

    def claim(self, cell: Cell) -> AbstractContextManager[bool]:
        """Whether this process, and no other, may work on the cell while the block runs."""
        return claim(self.path / "claims" / cell.key[:32])

    def stamp(self, cell: Cell) -> tuple[int, int] | None:
        """Changes when the cell's result is replaced; None where there is none."""
        try:
            status = (self._cells / cell.file_name).stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino

    def sweep(self, cell: Cell) -> None:
        """Remove what a killed process left beside the cell's file; only under its claim."""
        for leftover in self._cells.glob(f".{cell.file_name}.*.tmp"):
            leftover.unlink(missing_ok=True)

    def _entries(self) -> Iterator[tuple[Cell, FoldResult]]:
        torn = 0
        for file in sorted(self._cells.glob("*.json")):
            found = _read(file)
            if found is None or found[0].file_name != file.name:
                torn += 1
            else:
                yield found
        if torn:
            warn_caller(
                f"{torn} files in {str(self._cells)!r} are damaged and count as not there: their cells are "
                "done again by the next run.",
                RunWarning,
            )


def _read(file: Path) -> tuple[Cell, FoldResult] | None:
    try:
        content = json.loads(read_bounded(file, _MAX_BYTES))
        if content.pop("sha256") != _checksum(content):
            return None
        result = content["result"]
        result["predictions"] = unpack_columns(result["predictions"])
        return Cell.from_dict(content["cell"]), _result(result)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _plain(result: FoldResult) -> dict[str, Any]:
    return {**result.to_dict(), "predictions": pack_columns(result.predictions)}


def _result(plain: dict[str, Any]) -> FoldResult:
    plain["predictions"] = {name: list(values) for name, values in plain["predictions"].items()}
    return FoldResult.from_dict(plain)


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()
