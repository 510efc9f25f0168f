"""The parameters that tuning chose, as data of the package: one file per dataset."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gcig.benchmark.run_files import RunError, write_file
from gcig.benchmark.table import Table

__all__ = ["FOLDER", "chosen_parameters", "parameters_for", "read_chosen", "write_chosen"]

FOLDER = Path(__file__).parent / "chosen"


def chosen_parameters(dataset: str, method: str, *, folder: Path = FOLDER) -> dict[str, Any]:
    """What tuning chose for a method on a shipped dataset; empty (the defaults) where it was not tuned.

    Examples
    --------
    >>> chosen_parameters("no such dataset", "fairx")
    {}
    """
    return _parameters(read_chosen(dataset, folder=folder), method)


def parameters_for(table: Table, method: str, *, folder: Path = FOLDER) -> dict[str, Any]:
    """The chosen parameters, where the table has the rows that they were chosen on; else the defaults."""
    content = read_chosen(table.name, folder=folder)
    return _parameters(content, method) if content.get("data_hash") == table.sha256 else {}


def read_chosen(dataset: str, *, folder: Path = FOLDER) -> dict[str, Any]:
    """The whole file of a dataset: rule, seeds, candidates with their figures, versions; empty if none."""
    file = folder / f"{dataset}.json"
    if Path(dataset).name != dataset or not file.is_file():
        return {}
    try:
        content = json.loads(file.read_bytes())
    except ValueError as error:
        raise RunError(f"{file.name} in {str(folder)!r} is not JSON: {error}.") from None
    return content if isinstance(content, dict) else {}


def write_chosen(dataset: str, content: Mapping[str, Any], *, folder: Path = FOLDER) -> Path:
    """Write the file of a dataset; methods that the new content lacks are kept from the old one.

    They are kept only where both are of the same rows and rule.
    """
    if Path(dataset).name != dataset:
        raise RunError(f"{dataset!r} cannot be the name of a file.")
    before = read_chosen(dataset, folder=folder)
    same = ("data_hash", "rule", "split")
    kept = before.get("methods", {}) if all(before.get(n) == content.get(n) for n in same) else {}
    merged = {**content, "methods": {**kept, **content["methods"]}}
    file = folder / f"{dataset}.json"
    write_file(file, json.dumps(merged, indent=1, allow_nan=False) + "\n")
    return file


def _parameters(content: Mapping[str, Any], method: str) -> dict[str, Any]:
    return dict(content.get("methods", {}).get(method, {}).get("parameters", {}))
