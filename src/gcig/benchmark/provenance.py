"""Where results come from: versions, threads, seeds, definition and kind of machine; no names of either."""

import json
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gcig.benchmark.atomic import write_atomically
from gcig.benchmark.cell import Cell
from gcig.benchmark.manifest import code_fingerprints, installed_versions

__all__ = ["provenance", "write_provenance"]


def provenance(cells: Iterable[Cell], configuration: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What one has to know to get the same results again, as plain values.

    Examples
    --------
    >>> cell = Cell(dataset="german", data_hash="ab", method="fairx", seed=3)
    >>> found = provenance([cell])
    >>> found["seeds"], found["threads"], found["definitions"][0]["norm"]
    ([3], 1, 'l1')
    """
    own = list(cells)
    return {
        "versions": installed_versions(),
        "platform": {
            "system": platform.system(),
            "machine": platform.machine(),
            "python": platform.python_implementation(),
        },
        "threads": 1,
        "data": {cell.dataset: cell.data_hash for cell in own},
        "methods": sorted({cell.method for cell in own}),
        "folds": sorted({cell.n_folds for cell in own if cell.role == "test"}),
        "seeds": sorted({cell.seed for cell in own}),
        "definitions": list(
            {json.dumps(each): each for each in (cell.definition.to_dict() for cell in own)}.values()
        ),
        "cells": len(set(own)),
        "code": code_fingerprints({cell.method for cell in own}),
        "configuration": dict(configuration or {}),
    }


def write_provenance(
    path: str | Path, cells: Iterable[Cell], configuration: Mapping[str, Any] | None = None
) -> None:
    """Write it as JSON."""
    content = provenance(cells, configuration)
    write_atomically(Path(path), (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())
