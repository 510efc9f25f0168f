"""Export of fitted estimators to ONNX files, for services that have neither torch nor gcig.

The graph holds the operators of a fitted encoder, of a network in evaluation mode, and of the decisions. This
module needs onnx, the extra ``gcig[onnx]``; `NetworkEstimator.to_onnx` imports it.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, ValueInfoProto, helper
from sklearn.utils.validation import check_is_fitted

from gcig._arguments import InputError, InputTypeError
from gcig._files import write_atomically
from gcig._version import __version__
from gcig.methods.base import NetworkClassifier, NetworkEstimator, NetworkRegressor
from gcig.methods.onnx_graph import GraphBuilder, apply_network
from gcig.tables.encoding import TableEncoder
from gcig.tables.passthrough import PassThrough

DEFAULT_OPSET = 17  # the first with all required operators; supported by runtimes since 2022
_ML_OPSET = 3  # of the domain with operators on text
ROWS = "rows"  # the name of the dimension that is not fixed
# A class that overrides one of these predicts differently from the graph.
_OF_THE_GRAPH = (
    *("encode", "outputs_from_encoded", "decision_function", "predict_proba", "predict"),
    *("proba_from_encoded", "expected_from_encoded"),
)


def export_onnx(model: Any, path: str | Path, *, opset: int | None = None) -> None:
    """Write a fitted estimator to an ONNX file, its encoder included.

    The graph takes the columns of the training table, one input of shape (rows, 1) per column under its name:
    doubles for numbers, booleans and dates (as days since 1970-01-01), text for categories. A model trained
    on an array of numbers has one input ``X`` of shape (rows, columns). The outputs of a classifier are
    ``label`` (rows,), equal to `predict`, and ``probabilities`` (rows, classes), equal to `predict_proba`;
    that of a regressor is ``prediction`` (rows,). If a column has the same name, they get a suffix
    (``label_2``).

    Missing entries are NaN for numbers, and "" (or "nan", "None", "<NA>") for text. They and categories that
    were not in the training data are encoded as in `predict`, but without a warning. The graph does not check
    for values that `predict` rejects, such as infinities.

    Methods that need the groups of new rows or draw their decisions cannot be exported, and the network must
    be a chain of linear layers, activations and normalisations. The default `opset` is 17, the oldest that
    suffices.

    >>> import gcig, tempfile
    >>> data = gcig.load_dataset("german")
    >>> model = gcig.methods.METHODS["unconstrained"].estimator(max_epochs=5, random_state=0)
    >>> model = model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    >>> export_onnx(model, tempfile.mkdtemp() + "/model.onnx")
    """
    if not isinstance(model, NetworkEstimator):
        raise InputTypeError(f"model must be an estimator of gcig, not a {type(model).__name__}.")
    check_is_fitted(model)
    _check_exportable(model)
    write_atomically(path, _make_model(model, _checked_opset(opset)).SerializeToString())


def _check_exportable(model: NetworkEstimator) -> None:
    """Raise an `InputError` if a graph of encoder, network and decisions would not predict like the model."""
    method, reason = type(model), ""
    base: Any = NetworkClassifier if isinstance(model, NetworkClassifier) else NetworkRegressor
    own = [name for name in _OF_THE_GRAPH if getattr(method, name, None) is not getattr(base, name, None)]
    if method.needs_groups_to_predict:
        reason = "it needs the group of every new row, which is not a column of the table"
    elif own:
        reason = f"it overrides {', '.join(own)}"
    elif model.diverged_:
        reason = "its last fit diverged, so fit it again first"
    if reason:
        raise InputError(
            f"{method.__name__} cannot be written as ONNX: {reason}. Methods that predict by a network and a "
            "threshold can (fairx, unconstrained, lagrangian, adversarial). Use save() instead."
        )


def _make_model(model: Any, opset: int) -> Any:
    """Return the ONNX model of a fitted estimator that predicts by one network."""
    inputs = table_inputs(model.encoder_, named=hasattr(model, "feature_names_in_"))
    names = [value.name for value in inputs]
    if "" in names:
        raise InputError("a column of the training data has no name, which ONNX does not allow: rename it.")
    graph, task = GraphBuilder(names), model.task_.key
    # The outputs are named first: only a column can have taken their names.
    wanted = ("prediction",) if task == "number" else ("label", "probabilities")
    outputs = [graph.fresh_name(name) for name in wanted]
    scores = apply_network(graph, model.module_, encode_rows(graph, model.encoder_, names))
    scores = graph.apply("Cast", scores, name="scores", to=TensorProto.DOUBLE)
    notes = {"gcig_method": model.method_key, "gcig_task": task}
    if task == "number":
        graph.apply("Squeeze", scores, graph.constant(np.array([1]), "axis"), output=outputs[0])
        described = [helper.make_tensor_value_info(outputs[0], TensorProto.DOUBLE, [ROWS])]
    else:
        classes = _classes(model.classes_)
        decide(
            graph, give_probabilities(graph, scores, task, outputs[1]), model.threshold_, classes, outputs[0]
        )
        kind = (
            helper.np_dtype_to_tensor_dtype(classes.dtype) if classes.dtype != object else TensorProto.STRING
        )
        described = [
            helper.make_tensor_value_info(outputs[0], kind, [ROWS]),
            helper.make_tensor_value_info(outputs[1], TensorProto.DOUBLE, [ROWS, len(classes)]),
        ]
        notes["gcig_classes"] = json.dumps(model.classes_.tolist())
    if task == "binary":
        notes["gcig_threshold"] = repr(float(model.threshold_))
    body = helper.make_graph(graph.nodes, model.method_key, inputs, described, graph.constants)
    versions = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", _ML_OPSET)]
    # The oldest format that holds these operators: runtimes refuse files newer than themselves.
    oldest = helper.find_min_ir_version_for(versions)
    exported = helper.make_model(
        body, opset_imports=versions, ir_version=oldest, producer_name="gcig", producer_version=__version__
    )
    helper.set_model_props(exported, notes)
    onnx.checker.check_model(exported, full_check=True)
    return exported


def _classes(classes: NDArray[Any]) -> NDArray[Any]:
    """Return the classes in a type of ONNX: integers, doubles, booleans or text."""
    kinds: dict[str, Any] = {"i": np.int64, "u": np.int64, "f": np.float64, "b": np.bool_}
    kind: Any = kinds.get(classes.dtype.kind, object)
    return classes.astype(kind) if kind is not object else np.array(list(map(str, classes)), dtype=object)


def _checked_opset(opset: int | None) -> int:
    newest = onnx.defs.onnx_opset_version()
    if opset is None:
        return DEFAULT_OPSET
    if isinstance(opset, bool) or not isinstance(opset, int) or not DEFAULT_OPSET <= opset <= newest:
        raise InputError(
            f"opset must be an integer from {DEFAULT_OPSET} to {newest}, the newest of the installed onnx, "
            f"not {opset!r}."
        )
    return opset


def table_inputs(encoder: TableEncoder, *, named: bool) -> list[ValueInfoProto]:
    """Return one input (rows, 1) per column: doubles for numbers and booleans, text for categories.

    Unnamed columns of numbers are one input ``X`` (rows, columns), since they were one array in training.
    """
    categories = [kind == "category" for kind in encoder.kinds_]
    if not named and not any(categories):
        return [helper.make_tensor_value_info("X", TensorProto.DOUBLE, [ROWS, len(categories)])]
    return [
        helper.make_tensor_value_info(name, TensorProto.STRING if text else TensorProto.DOUBLE, [ROWS, 1])
        for name, text in zip(encoder.feature_names_in_, categories, strict=True)
    ]


def encode_rows(graph: GraphBuilder, encoder: TableEncoder, inputs: Sequence[str]) -> str:
    """Apply an encoder to the named inputs, as `encoder.encode` does; the result is float (rows, p)."""
    if isinstance(encoder, PassThrough):
        return graph.as_float(graph.join(inputs, "numbers"), "encoded")
    values = list(inputs)
    if len(values) < len(encoder.columns_):  # one array of numbers
        places = [graph.constant(np.array([j]), "column") for j in range(len(encoder.columns_))]
        values = [graph.apply("Gather", inputs[0], place, name="number", axis=1) for place in places]
    blocks = [column.to_onnx(graph, value) for column, value in zip(encoder.columns_, values, strict=True)]
    return graph.join(blocks, "encoded")


def give_probabilities(graph: GraphBuilder, scores: str, task: str, output: str) -> str:
    """Output the probabilities of the classes, in doubles."""
    if task == "classes":
        return graph.apply("Softmax", scores, output=output, axis=1)
    negative = graph.apply("Sigmoid", graph.apply("Neg", scores), name="negative")
    return graph.apply("Concat", negative, graph.apply("Sigmoid", scores), output=output, axis=1)


def decide(graph: GraphBuilder, shares: str, threshold: float, classes: NDArray[Any], output: str) -> None:
    """Output the class of each row, (rows,): by the threshold, or the most probable one without (NaN)."""
    if math.isnan(threshold):
        code = graph.apply("ArgMax", shares, axis=1, keepdims=0)
    else:
        positive = graph.apply(
            "Gather", shares, graph.constant(np.array(1), "second"), name="positive", axis=1
        )
        limit = graph.constant(np.array(threshold, dtype=np.float64), "threshold")
        code = graph.apply("Cast", graph.apply("GreaterOrEqual", positive, limit), to=TensorProto.INT64)
    graph.apply("Gather", graph.constant(classes, "classes"), code, output=output, axis=0)
