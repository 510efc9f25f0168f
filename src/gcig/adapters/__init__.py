"""Adapters: any model as a score that can be explained, one file per kind of model."""

from gcig.adapters.base import AdaptedModel as AdaptedModel
from gcig.adapters.base import Outputs as Outputs
from gcig.adapters.base import call_with_groups as call_with_groups
from gcig.adapters.explainers import Advance as Advance
from gcig.adapters.explainers import Budget as Budget
from gcig.adapters.explainers import GradientExplainer as GradientExplainer
from gcig.adapters.explainers import Reasons as Reasons
from gcig.adapters.explainers import ShapleyExplainer as ShapleyExplainer
from gcig.adapters.explainers import block_shapley_values as block_shapley_values
from gcig.adapters.onnx import OnnxClassifier as OnnxClassifier
from gcig.adapters.selection import adapt as adapt
from gcig.adapters.selection import adapt_binary as adapt_binary
