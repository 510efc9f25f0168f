"""Procedural fairness: classifiers whose reasons do not depend on the protected group.

The public names are imported when they are first used, so that ``import gcig`` and ``gcig --help``
do not pay for torch, scikit-learn and pandas.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

_HOME = {
    "Dataset": "gcig.data.dataset",
    "DatasetSpec": "gcig.data.dataset",
    "list_datasets": "gcig.data.registry",
    "load_dataset": "gcig.data.registry",
    "register_dataset": "gcig.data.registry",
}
_SUBPACKAGES = ("core", "data", "losses", "metrics", "methods", "models")

__all__ = ["__version__", *_HOME]

if TYPE_CHECKING:
    from gcig.data.dataset import Dataset as Dataset
    from gcig.data.dataset import DatasetSpec as DatasetSpec
    from gcig.data.registry import list_datasets as list_datasets
    from gcig.data.registry import load_dataset as load_dataset
    from gcig.data.registry import register_dataset as register_dataset


def __getattr__(name: str) -> object:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    if name in _SUBPACKAGES:
        return import_module(f"gcig.{name}")
    raise AttributeError(f"module 'gcig' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_SUBPACKAGES])
