"""Procedural fairness: classifiers whose reasons do not depend on the protected group.

The public names are imported when they are first used, so that ``import gcig`` and ``gcig --help``
do not pay for torch, scikit-learn and pandas.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from gcig._version import __version__

_HOME = {
    "Dataset": "gcig.data.dataset",
    "DatasetSpec": "gcig.data.spec",
    "Definition": "gcig.core.disparity",
    "EqualizedOddsLoss": "gcig.losses.equalized_odds",
    "Evaluation": "gcig.records",
    "FairXClassifier": "gcig.methods.fairx",
    "GCIGPenalty": "gcig.losses.gcig",
    "GroupBaselines": "gcig.core.baselines",
    "ProtectedAttribute": "gcig.data.spec",
    "adapt": "gcig.adapters",
    "evaluate": "gcig.metrics.evaluation",
    "list_datasets": "gcig.data.registry",
    "load": "gcig.methods.loading",
    "load_dataset": "gcig.data.registry",
    "register_dataset": "gcig.data.registry",
    "register_method": "gcig.methods.registry",
}
_SUBPACKAGES = ("core", "data", "losses", "methods", "metrics", "models")

__all__ = ["__version__", *_HOME]

if TYPE_CHECKING:
    from gcig.adapters import adapt as adapt
    from gcig.core.baselines import GroupBaselines as GroupBaselines
    from gcig.core.disparity import Definition as Definition
    from gcig.data.dataset import Dataset as Dataset
    from gcig.data.registry import list_datasets as list_datasets
    from gcig.data.registry import load_dataset as load_dataset
    from gcig.data.registry import register_dataset as register_dataset
    from gcig.data.spec import DatasetSpec as DatasetSpec
    from gcig.data.spec import ProtectedAttribute as ProtectedAttribute
    from gcig.losses.equalized_odds import EqualizedOddsLoss as EqualizedOddsLoss
    from gcig.losses.gcig import GCIGPenalty as GCIGPenalty
    from gcig.methods.fairx import FairXClassifier as FairXClassifier
    from gcig.methods.loading import load as load
    from gcig.methods.registry import register_method as register_method
    from gcig.metrics.evaluation import evaluate as evaluate
    from gcig.records import Evaluation as Evaluation


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
