"""Adapters: any model as a score that can be explained, one file per kind of model."""

from gcig.adapters.base import AdaptedModel, Outputs, call_with_groups
from gcig.adapters.black_boxes import within_budget
from gcig.adapters.explainers import Advance, Budget, GradientExplainer, Reasons, block_shapley_values
from gcig.adapters.onnx import OnnxClassifier
from gcig.adapters.remote import RemoteModel, RemoteModelError
from gcig.adapters.selection import adapt

__all__ = [
    "AdaptedModel",
    "Advance",
    "Budget",
    "GradientExplainer",
    "OnnxClassifier",
    "Outputs",
    "Reasons",
    "RemoteModel",
    "RemoteModelError",
    "adapt",
    "block_shapley_values",
    "call_with_groups",
    "within_budget",
]
