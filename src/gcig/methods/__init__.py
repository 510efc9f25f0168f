"""FairX and the methods that it is compared with: one file or folder each, one interface."""

from importlib import import_module
from typing import TYPE_CHECKING

from gcig.methods.registry import METHODS, Method, register_method, skops_types

if TYPE_CHECKING:
    from gcig.methods.base import NetworkClassifier as NetworkClassifier
    from gcig.methods.base import NetworkRegressor as NetworkRegressor
    from gcig.methods.parameters import parameter as parameter
    from gcig.methods.training_data import TrainingData as TrainingData

# Imported when first used: the registry is needed where torch and scikit-learn are not.
_HOME = {
    "NetworkClassifier": "gcig.methods.base",
    "NetworkRegressor": "gcig.methods.base",
    "TrainingData": "gcig.methods.training_data",
    "parameter": "gcig.methods.parameters",
}

__all__ = ["METHODS", "Method", "register_method", "skops_types", *_HOME]


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'gcig.methods' has no attribute {name!r}")
