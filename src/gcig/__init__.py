"""Procedural fairness: classifiers whose reasons do not depend on the protected group.

The public names are imported when they are first used: ``import gcig`` and ``gcig --help`` do not load torch,
scikit-learn and pandas.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from gcig._version import __version__

_NAMES = {  # by the module that defines them
    "_arguments": "InputError InputWarning",
    "adapters": "adapt",
    "auditing.audits": "audit",
    "auditing.explanations": "explain",
    "auditing.result": "AuditResult",
    "benchmark.comparison": "ComparisonResult compare",
    "core.attribution": "register_attribution",
    "core.definition": "Definition",
    "core.outcome": "EqualizedOddsLoss",
    "core.penalties": "GCIGPenalty ReasonGapPenalty",
    "core.references": "GroupBaselines register_references",
    "core.task": "register_task",
    "datasets.dataset": "Dataset",
    "datasets.registry": "list_datasets load_dataset register_dataset",
    "datasets.spec": "DatasetSpec ProtectedAttribute",
    "methods.explanation": "Explanation",
    "methods.fairx.estimator": "FairXClassifier FairXRegressor",
    "methods.fairx.paper": "FairXPaperClassifier",
    "methods.fairx.path": "TradeOff",
    "methods.fairx.warnings": (
        "BoundWarning CollapseWarning NothingToRepairWarning ReasonsWarning ThresholdWarning"
    ),
    "methods.registry": "register_method",
    "methods.saving": "load",
    "metrics.evaluation": "evaluate",
    "metrics.measure": "register_measure",
    "metrics.planning": "prepare",
    "persistence": "PersistenceError",
    "records": "Evaluation",
    "records.limits": "CheckResult",
    "training.loop": "DivergenceError",
}
_HOME = {name: f"gcig.{module}" for module, names in _NAMES.items() for name in names.split()}
_SUBPACKAGES = ("core", "datasets", "tables", "methods", "metrics", "models", "report", "validity")

__all__ = ["__version__", *sorted(_HOME)]

if TYPE_CHECKING:
    from gcig._arguments import InputError as InputError
    from gcig._arguments import InputWarning as InputWarning
    from gcig.adapters import adapt as adapt
    from gcig.auditing.audits import audit as audit
    from gcig.auditing.explanations import explain as explain
    from gcig.auditing.result import AuditResult as AuditResult
    from gcig.benchmark.comparison import ComparisonResult as ComparisonResult
    from gcig.benchmark.comparison import compare as compare
    from gcig.core.attribution import register_attribution as register_attribution
    from gcig.core.definition import Definition as Definition
    from gcig.core.outcome import EqualizedOddsLoss as EqualizedOddsLoss
    from gcig.core.penalties import GCIGPenalty as GCIGPenalty
    from gcig.core.penalties import ReasonGapPenalty as ReasonGapPenalty
    from gcig.core.references import GroupBaselines as GroupBaselines
    from gcig.core.references import register_references as register_references
    from gcig.core.task import register_task as register_task
    from gcig.datasets.dataset import Dataset as Dataset
    from gcig.datasets.registry import list_datasets as list_datasets
    from gcig.datasets.registry import load_dataset as load_dataset
    from gcig.datasets.registry import register_dataset as register_dataset
    from gcig.datasets.spec import DatasetSpec as DatasetSpec
    from gcig.datasets.spec import ProtectedAttribute as ProtectedAttribute
    from gcig.methods.explanation import Explanation as Explanation
    from gcig.methods.fairx.estimator import FairXClassifier as FairXClassifier
    from gcig.methods.fairx.estimator import FairXRegressor as FairXRegressor
    from gcig.methods.fairx.paper import FairXPaperClassifier as FairXPaperClassifier
    from gcig.methods.fairx.path import TradeOff as TradeOff
    from gcig.methods.fairx.warnings import BoundWarning as BoundWarning
    from gcig.methods.fairx.warnings import CollapseWarning as CollapseWarning
    from gcig.methods.fairx.warnings import NothingToRepairWarning as NothingToRepairWarning
    from gcig.methods.fairx.warnings import ReasonsWarning as ReasonsWarning
    from gcig.methods.fairx.warnings import ThresholdWarning as ThresholdWarning
    from gcig.methods.registry import register_method as register_method
    from gcig.methods.saving import load as load
    from gcig.metrics.evaluation import evaluate as evaluate
    from gcig.metrics.measure import register_measure as register_measure
    from gcig.metrics.planning import prepare as prepare
    from gcig.persistence import PersistenceError as PersistenceError
    from gcig.records import Evaluation as Evaluation
    from gcig.records.limits import CheckResult as CheckResult
    from gcig.training.loop import DivergenceError as DivergenceError


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
