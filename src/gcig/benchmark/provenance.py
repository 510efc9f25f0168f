"""Where results come from: versions, threads, seeds, definition and kind of machine; no names of either."""

import json
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gcig.benchmark.cell import Cell
from gcig.benchmark.manifest import Manifest
from gcig.benchmark.run_files import write_file

__all__ = ["provenance", "write_provenance"]


def provenance(cells: Iterable[Cell], manifest: Manifest) -> dict[str, Any]:
    """What one has to know to get the results of some cells again, as plain values.

    Versions and code are those that the run was started with, whoever writes it down later.

    Examples
    --------
    >>> cell = Cell(dataset="german", data_hash="ab", method="fairx", seed=3)
    >>> found = provenance([cell], Manifest.now({}, {"folds": 5}))
    >>> found["seeds"], found["threads"], found["definitions"][0]["norm"]
    ([3], 1, 'l1')
    """
    own = list(dict.fromkeys(cells))
    return {
        "versions": dict(manifest.versions),
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
        "cells": len(own),
        "code": dict(manifest.code),
        "configuration": dict(manifest.configuration),
    }


def write_provenance(path: str | Path, cells: Iterable[Cell], manifest: Manifest) -> None:
    """Write it as JSON."""
    content = provenance(cells, manifest)
    write_file(Path(path), json.dumps(content, indent=1, allow_nan=False) + "\n")
