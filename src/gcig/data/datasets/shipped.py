"""Shipped datasets: a TOML file each with the declaration, and a compressed table that is checked when read.

This module does not import pandas, which keeps listing the declarations fast.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from importlib.resources import files
from io import BytesIO
from typing import TYPE_CHECKING, Any

from gcig.data.datasets.spec import DatasetSpec, ProtectedAttribute, two_groups

if TYPE_CHECKING:
    import pandas as pd

MANIFEST = "manifest.json"  # of the shipped data files
_NAMES = ("adult", "german", "compas", "compas-paper", "bank")
# How a declaration says which rows are inside a group, given a column and a value.
_CONDITIONS: dict[str, Callable[[pd.Series[Any], Any], pd.Series[bool]]] = {
    "equals": lambda column, value: column == value,
    "between": lambda column, ends: column.between(*ends),
    "starts_with": lambda column, text: column.astype(str).str.startswith(text),
}


def shipped_specs() -> dict[str, DatasetSpec]:
    """Return the declarations of the shipped datasets by name."""
    return {name: _read_spec(name) for name in _NAMES}


def _read_spec(name: str) -> DatasetSpec:
    declared = _read_toml(name)
    table = declared.pop("based_on", name)
    if table != name:  # the same table with other inputs
        declared = _read_toml(table) | declared
    declared["inputs"] += declared.pop("additional_inputs", [])
    load = partial(read_shipped, table, declared.pop("codebook", {}))
    protected = tuple(map(_attribute, declared.pop("protected")))
    plain: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in declared.items()
    }
    return DatasetSpec(name=name, load=load, protected=protected, **plain)


def _read_toml(name: str) -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath(f"{name}.toml").read_text("utf-8"))


def _attribute(declared: Mapping[str, Any]) -> ProtectedAttribute:
    columns = tuple(declared.get("columns", (declared["name"],)))
    groups = None
    if "groups" in declared:
        groups = partial(_name_groups, column=columns[0], **declared["groups"])
    return ProtectedAttribute(declared["name"], declared["description"], columns, groups)


def _name_groups(
    frame: pd.DataFrame, *, column: str, inside: str, outside: str, **condition: Any
) -> pd.Series[str]:
    ((kind, value),) = condition.items()
    return two_groups(_CONDITIONS[kind](frame[column], value), inside, outside)


def read_shipped(name: str, codebook: Mapping[str, dict[str, str]] | None = None) -> pd.DataFrame:
    """Read a shipped table: numbers as integers, text as categories in words, nothing missing."""
    import pandas as pd

    from gcig._tables import EXACT_NUMBERS

    # Without na_filter=False pandas would read the category "None" as a missing value.
    frame: pd.DataFrame = pd.read_csv(
        BytesIO(shipped_bytes(name)), compression="gzip", na_filter=False, **EXACT_NUMBERS
    )
    texts = frame.select_dtypes(exclude="number").columns
    frame = frame.astype(dict.fromkeys(texts, "category"))
    for column, words in (codebook or {}).items():
        frame[column] = frame[column].cat.rename_categories(words)
    return frame


def shipped_bytes(name: str) -> bytes:
    """Return the compressed file of a table; raise an error unless its hash is that of the manifest."""
    file = f"{name}.csv.gz"
    content = files(__package__).joinpath("files", file).read_bytes()
    found, expected = sha256(content).hexdigest(), manifest()[file]["sha256"]
    if found != expected:
        raise ValueError(
            f"data file {file} is damaged: its sha256 is {found}, but the manifest says {expected}. "
            f"Reinstall gcig."
        )
    return content


def manifest() -> dict[str, Any]:
    """Return the manifest: file name -> SHA-256 of the file and of its table, and its number of rows."""
    loaded: dict[str, Any] = json.loads(files(__package__).joinpath("files", MANIFEST).read_text("utf-8"))
    return loaded
