"""Registry of datasets: shipped, from installed packages, and registered by the user.

A shipped dataset is a TOML file with its declaration, and a compressed table that is checked when it is read.
This module does not import pandas, which keeps listing the declarations fast.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from hashlib import sha256
from importlib.resources import files
from io import BytesIO
from typing import TYPE_CHECKING, Any

from gcig._arguments import InputError
from gcig._plugins import Registry
from gcig.datasets.dataset import Dataset, DatasetCard, check_frame
from gcig.datasets.spec import DatasetSpec, ProtectedAttribute, two_groups

if TYPE_CHECKING:
    import pandas as pd

MANIFEST = "manifest.json"  # of the shipped data files
_NAMES = (
    *("adult", "german", "compas", "compas-paper", "bank"),
    *("compas-risk", "adult-occupation", "adult-hours"),
)
# How a declaration says which rows are inside a group, given a column and a value.
_CONDITIONS: dict[str, Callable[[pd.Series[Any], Any], pd.Series[bool]]] = {
    "equals": lambda column, value: column == value,
    "between": lambda column, ends: column.between(*ends),
    "starts_with": lambda column, text: column.astype(str).str.startswith(text),
}


def _read_spec(name: str) -> DatasetSpec:
    declared = _read_toml(name)
    table = declared.pop("based_on", name)
    if table != name:  # the same table with other inputs, or another target
        declared = _read_toml(table) | declared
    left_out = declared.pop("left_out_inputs", [])
    inputs = [*declared["inputs"], *declared.pop("additional_inputs", [])]
    declared["inputs"] = [column for column in inputs if column not in left_out]
    if declared.get("task", "binary") != "binary":
        del declared["positive"], declared["positive_means"]
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

    # By default pandas before 3.1 rounds a quarter of all long numbers wrongly in the last digit.
    old = tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1)
    exact: Any = {"float_precision": "round_trip"} if old else {}
    # Without na_filter=False pandas would read the category "None" as a missing value.
    frame: pd.DataFrame = pd.read_csv(
        BytesIO(shipped_bytes(name)), compression="gzip", na_filter=False, **exact
    )
    texts = frame.select_dtypes(exclude="number").columns
    frame = frame.astype(dict.fromkeys(texts, "category"))
    for column, words in (codebook or {}).items():
        frame[column] = frame[column].map(words).astype("category")  # one word may stand for several codes
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


def _spec_of(name: str, found: object) -> DatasetSpec:
    """Return the declaration of a dataset that another package offers."""
    if not isinstance(found, DatasetSpec) or found.name != name:
        raise TypeError(f"it is not a DatasetSpec called {name!r}")
    return found


_SPECS = Registry("dataset", {name: _read_spec(name) for name in _NAMES}, _spec_of)
# Tables loaded in this process; callers get copies.
_LOADED: dict[str, tuple[pd.DataFrame, DatasetCard]] = {}


def list_datasets() -> list[str]:
    """Return the names of all registered datasets.

    Examples
    --------
    >>> list_datasets()[:3]
    ['adult', 'german', 'compas']
    """
    return list(_SPECS)


def dataset_spec(name: str) -> DatasetSpec:
    """Return the declaration of a dataset, without reading its table."""
    if name in _SPECS:
        return _SPECS[name]
    close = get_close_matches(name, _SPECS, n=1)
    guess = f" Did you mean {close[0]!r}?" if close else ""
    raise InputError(
        f"{name!r} is not a registered dataset.{guess} Available: {', '.join(_SPECS)}.", argument="name"
    )


def load_dataset(
    name: str, sensitive: str | Sequence[str] | None = None, include_sensitive: bool = True
) -> Dataset:
    """Load a dataset by name.

    The first call reads the table; later calls in the same process copy it from memory.

    Parameters
    ----------
    name
        One of ``list_datasets()``.
    sensitive
        A protected attribute (the card lists them), or a list of several; the default one if None.
    include_sensitive
        False drops the columns from ``X`` that the chosen attributes are derived from. Other columns may
        still reveal them.

    Returns
    -------
    Dataset
        With ``X``, ``y``, ``sensitive_features`` and ``card``.

    Examples
    --------
    >>> german = load_dataset("german", include_sensitive=False)
    >>> german.X.shape, sorted(german.sensitive_features.unique())
    ((1000, 19), ['female', 'male'])
    """
    spec = dataset_spec(name)
    if name not in _LOADED:
        # The copy separates the cache from a table that the loader may still hold.
        frame = check_frame(spec, spec.load()).copy()
        _LOADED[name] = frame, DatasetCard.from_frame(spec, frame)
    frame, card = _LOADED[name]
    return Dataset.from_frame(spec, frame, card, sensitive, include_sensitive)


def register_dataset(spec: DatasetSpec, *, overwrite: bool = False) -> DatasetSpec:
    """Register a dataset for this process.

    Parameters
    ----------
    spec
        The declaration. Its ``load`` is called when the dataset is first loaded.
    overwrite
        True replaces a dataset of the same name.

    Examples
    --------
    >>> import pandas as pd
    >>> from gcig.datasets.spec import ProtectedAttribute
    >>> spec = DatasetSpec(
    ...     name="tiny",
    ...     load=lambda: pd.DataFrame({"income": [1, 2], "sex": ["f", "m"], "paid": ["no", "yes"]}),
    ...     target="paid",
    ...     positive="yes",
    ...     protected=(ProtectedAttribute("sex"),),
    ... )
    >>> load_dataset(register_dataset(spec, overwrite=True).name).y.tolist()
    [0, 1]
    """
    if not isinstance(spec, DatasetSpec):
        raise TypeError(f"spec must be a DatasetSpec, got {type(spec).__name__}.")
    _SPECS.add(spec.name, spec, overwrite=overwrite)
    _LOADED.pop(spec.name, None)
    return spec
