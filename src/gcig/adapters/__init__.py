"""Any model as a score that can be explained: what evaluation and audits need of it, and nothing else."""

from gcig.adapters.base import AdaptedModel
from gcig.adapters.choosing import adapt
from gcig.adapters.explainers import Explainer, GradientExplainer, Reasons
from gcig.adapters.rows import call_with_groups, to_tensor

__all__ = [
    "AdaptedModel",
    "Explainer",
    "GradientExplainer",
    "Reasons",
    "adapt",
    "call_with_groups",
    "to_tensor",
]
