"""The data files that ship with the package. Every read checks the SHA-256 of the file first."""

from __future__ import annotations

import json
from hashlib import sha256
from importlib.resources import files
from io import BytesIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

MANIFEST = "manifest.json"


def read_shipped(name: str) -> pd.DataFrame:
    """Read a shipped table: numbers as integers, text as categories, nothing missing."""
    import pandas as pd

    # Without na_filter=False pandas would read the category "None" as a missing value.
    frame = pd.read_csv(BytesIO(shipped_bytes(name)), compression="gzip", na_filter=False)
    texts = frame.select_dtypes(exclude="number").columns
    return frame.astype(dict.fromkeys(texts, "category"))


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
