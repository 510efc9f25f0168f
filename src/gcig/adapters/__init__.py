"""Any model as a score that can be explained: what evaluation and audits need of it, and nothing else."""

from gcig.adapters.base import AdaptedModel, Outputs
from gcig.adapters.choosing import adapt
from gcig.adapters.explainers import Advance, Budget, Explainer, GradientExplainer, Reasons
from gcig.adapters.onnx import OnnxClassifier
from gcig.adapters.rows import call_with_groups, to_tensor
from gcig.adapters.shapley import ShapleyExplainer

__all__ = [
    "AdaptedModel",
    "Advance",
    "Budget",
    "Explainer",
    "GradientExplainer",
    "OnnxClassifier",
    "Outputs",
    "Reasons",
    "ShapleyExplainer",
    "adapt",
    "call_with_groups",
    "to_tensor",
]
