"""Adapters: any model as a score that can be explained, one file per kind of model."""

from gcig.adapters.base import AdaptedModel as AdaptedModel
from gcig.adapters.base import Outputs as Outputs
from gcig.adapters.base import call_with_groups as call_with_groups
from gcig.adapters.onnx import OnnxClassifier as OnnxClassifier
from gcig.adapters.selection import adapt as adapt
