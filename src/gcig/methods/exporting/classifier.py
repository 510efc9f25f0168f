"""A fitted classifier as one ONNX model: table in, label and probabilities out."""

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper

from gcig._validation import InputError
from gcig._version import __version__
from gcig.methods.exporting.graph import GraphBuilder
from gcig.methods.exporting.networks import apply_network
from gcig.methods.exporting.tables import ROWS, encode_rows, table_inputs

if TYPE_CHECKING:
    from gcig.methods.base import NetworkClassifier

__all__ = ["DEFAULT_OPSET", "classifier_graph"]

DEFAULT_OPSET = 17  # the first with all the operators; runtimes since 2022 know it
_ML_OPSET = 3  # of the domain with the operators on text


def classifier_graph(model: "NetworkClassifier", *, opset: int | None = None) -> ModelProto:
    """The ONNX model of a fitted classifier that predicts by one network and one threshold."""
    opset = _checked_opset(opset)
    inputs = table_inputs(model.encoder_, named=hasattr(model, "feature_names_in_"))
    names = [value.name for value in inputs]
    if "" in names:
        raise InputError("a column of training has an empty name, which ONNX does not allow: rename it.")
    graph = GraphBuilder(names)
    # The outputs come first, so that their names are free unless a column has them.
    outputs = [graph.fresh_name(name) for name in ("label", "probabilities")]
    logit = apply_network(graph, model.module_, encode_rows(graph, model.encoder_, names))
    positive = _probabilities(graph, logit, outputs[1])
    classes = _classes(model.classes_)
    _decide(graph, positive, model.threshold_, classes, outputs[0])
    kind = helper.np_dtype_to_tensor_dtype(classes.dtype) if classes.dtype != object else TensorProto.STRING
    body = helper.make_graph(
        graph.nodes,
        model.method_key,
        inputs,
        [
            helper.make_tensor_value_info(outputs[0], kind, [ROWS]),
            helper.make_tensor_value_info(outputs[1], TensorProto.DOUBLE, [ROWS, 2]),
        ],
        graph.constants,
    )
    versions = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", _ML_OPSET)]
    exported = helper.make_model(
        body,
        opset_imports=versions,
        # The oldest format that holds these operators: runtimes refuse files newer than themselves.
        ir_version=helper.find_min_ir_version_for(versions),
        producer_name="gcig",
        producer_version=__version__,
    )
    helper.set_model_props(
        exported,
        {
            "gcig_method": model.method_key,
            "gcig_classes": json.dumps(model.classes_.tolist()),
            "gcig_threshold": repr(float(model.threshold_)),
        },
    )
    onnx.checker.check_model(exported, full_check=True)
    return exported


def _probabilities(graph: GraphBuilder, logit: str, output: str) -> str:
    """Both probabilities as the output, in doubles; the name of the second, (rows, 1)."""
    score = graph.apply("Cast", logit, name="score", to=TensorProto.DOUBLE)
    negative = graph.apply("Sigmoid", graph.apply("Neg", score, name="opposite"), name="negative")
    positive = graph.apply("Sigmoid", score, name="positive")
    graph.give("Concat", negative, positive, output=output, axis=1)
    return positive


def _decide(graph: GraphBuilder, positive: str, threshold: float, classes: NDArray[Any], output: str) -> None:
    """The class of each row as the output, (rows,)."""
    limit = graph.constant(np.array(threshold, dtype=np.float64), "threshold")
    decided = graph.apply("GreaterOrEqual", positive, limit, name="decided")
    code = graph.apply("Cast", decided, name="class_code", to=TensorProto.INT64)
    flat = graph.apply("Squeeze", code, graph.constant(np.array([1], dtype=np.int64), "axis"), name="flat")
    graph.give("Gather", graph.constant(classes, "classes"), flat, output=output, axis=0)


def _classes(classes: NDArray[Any]) -> NDArray[Any]:
    """The two classes in a type that ONNX has: integers, doubles, booleans or text."""
    kinds: dict[str, Any] = {"i": np.int64, "u": np.int64, "f": np.float64, "b": np.bool_}
    kind: Any = kinds.get(classes.dtype.kind, object)
    return classes.astype(kind) if kind is not object else np.array(list(map(str, classes)), dtype=object)


def _checked_opset(opset: int | None) -> int:
    newest = onnx.defs.onnx_opset_version()
    if opset is None:
        return DEFAULT_OPSET
    if isinstance(opset, bool) or not isinstance(opset, int) or not DEFAULT_OPSET <= opset <= newest:
        raise InputError(
            f"opset must be an integer from {DEFAULT_OPSET} to {newest}, the newest that the installed onnx "
            f"knows, not {opset!r}."
        )
    return opset
