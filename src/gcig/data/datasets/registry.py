"""Registry of datasets: shipped, from installed packages, and registered by the user."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from gcig._plugins import Registry
from gcig.data.datasets.dataset import Dataset, DatasetCard, check_frame
from gcig.data.datasets.shipped import shipped_specs
from gcig.data.datasets.spec import DatasetSpec

if TYPE_CHECKING:
    import pandas as pd


def _spec_of(name: str, found: object) -> DatasetSpec:
    """Return the declaration of a dataset that another package offers."""
    if not isinstance(found, DatasetSpec) or found.name != name:
        raise TypeError(f"it is not a DatasetSpec called {name!r}")
    return found


_SPECS = Registry("dataset", shipped_specs(), _spec_of)
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
    from gcig._tables import InputError  # imports pandas, which listing the datasets does not need

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
    >>> from gcig.data.datasets.spec import ProtectedAttribute
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
