"""Export of fitted classifiers to ONNX files, for services that have neither torch nor gcig."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from gcig._files import write_atomically
from gcig._validation import InputError, InputTypeError
from gcig._version import __version__
from gcig.methods.base import NetworkClassifier
from gcig.methods.randomised import RandomisedClassifier

DEFAULT_OPSET = 17  # the first with all required operators; supported by runtimes since 2022
_ML_OPSET = 3  # of the domain with operators on text
# A class that overrides one of these predicts differently from the graph.
_OF_THE_GRAPH = (
    *("encode", "decision_function", "predict_proba", "predict", "_logits"),
    *("proba_from_encoded", "expected_from_encoded"),
)


def export_onnx(model: Any, path: str | Path, *, opset: int | None = None) -> None:
    """Write a fitted classifier to an ONNX file, its encoder included.

    The graph takes the columns of the training table, one input of shape (rows, 1) per column under its name:
    doubles for numbers, booleans and dates (as days since 1970-01-01), text for categories. A model trained
    on an array of numbers has one input ``X`` of shape (rows, columns). The outputs are ``label`` (rows,),
    equal to `predict`, and ``probabilities`` (rows, 2), equal to `predict_proba`; if a column has the same
    name, they get a suffix (``label_2``).

    Missing entries are NaN for numbers, and "" (or "nan", "None", "<NA>") for text. They and categories that
    were not in the training data are encoded as in `predict`, but without a warning. The graph does not check
    for values that `predict` rejects, such as infinities.

    Methods that need the groups of new rows or draw their decisions cannot be exported, and the network must
    be a chain of linear layers, activations and normalisations. The default `opset` is 17, the oldest that
    suffices.

    >>> import gcig, tempfile
    >>> data = gcig.load_dataset("german")
    >>> model = gcig.FairXClassifier(max_epochs=5, random_state=0)
    >>> model = model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    >>> export_onnx(model, tempfile.mkdtemp() + "/model.onnx")
    """
    if not isinstance(model, NetworkClassifier):
        raise InputTypeError(f"model must be an estimator of gcig, not a {type(model).__name__}.")
    check_is_fitted(model)
    _check_exportable(model)
    try:
        import onnx  # noqa: F401 (an optional dependency)
    except ImportError as error:
        raise ImportError(
            "export to ONNX needs onnx, which is not installed: pip install 'gcig[onnx]'."
        ) from error
    write_atomically(path, _classifier_graph(model, opset=opset).SerializeToString())


def _check_exportable(model: NetworkClassifier) -> None:
    """Raise an `InputError` if a graph of encoder, network and threshold would not predict like the model."""
    method = type(model)
    reason = ""
    if method.needs_groups_to_predict:
        reason = "it needs the group of every new row, which is not a column of the table"
    elif issubclass(method, RandomisedClassifier):
        reason = "it draws its decisions, which no operator of ONNX can repeat"
    elif own := [
        name for name in _OF_THE_GRAPH if getattr(method, name) is not getattr(NetworkClassifier, name)
    ]:
        reason = f"it overrides {', '.join(own)}"
    elif model.diverged_:
        reason = "its last fit diverged, so fit it again first"
    if reason:
        raise InputError(
            f"{method.__name__} cannot be written as ONNX: {reason}. Methods that predict by a network and a "
            "threshold can (fairx, unconstrained, lagrangian, adversarial). Use save() instead."
        )


def _classifier_graph(model: NetworkClassifier, *, opset: int | None = None) -> Any:
    """Return the ONNX model of a fitted classifier that predicts by one network and one threshold."""
    import onnx
    from onnx import TensorProto, helper

    from gcig.methods import onnx_operators as operators

    opset = _checked_opset(opset)
    inputs = operators.table_inputs(model.encoder_, named=hasattr(model, "feature_names_in_"))
    names = [value.name for value in inputs]
    if "" in names:
        raise InputError("a column of the training data has no name, which ONNX does not allow: rename it.")
    graph = operators.GraphBuilder(names)
    # The outputs are named first: only a column can have taken their names.
    outputs = [graph.fresh_name(name) for name in ("label", "probabilities")]
    encoded = operators.encode_rows(graph, model.encoder_, names)
    logit = operators.apply_network(graph, model.module_, encoded)
    positive = operators.give_probabilities(graph, logit, outputs[1])
    classes = _classes(model.classes_)
    operators.decide(graph, positive, model.threshold_, classes, outputs[0])
    kind = helper.np_dtype_to_tensor_dtype(classes.dtype) if classes.dtype != object else TensorProto.STRING
    body = helper.make_graph(
        graph.nodes,
        model.method_key,
        inputs,
        [
            helper.make_tensor_value_info(outputs[0], kind, [operators.ROWS]),
            helper.make_tensor_value_info(outputs[1], TensorProto.DOUBLE, [operators.ROWS, 2]),
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


def _classes(classes: NDArray[Any]) -> NDArray[Any]:
    """Return the two classes in a type of ONNX: integers, doubles, booleans or text."""
    kinds: dict[str, Any] = {"i": np.int64, "u": np.int64, "f": np.float64, "b": np.bool_}
    kind: Any = kinds.get(classes.dtype.kind, object)
    return classes.astype(kind) if kind is not object else np.array(list(map(str, classes)), dtype=object)


def _checked_opset(opset: int | None) -> int:
    import onnx

    newest = onnx.defs.onnx_opset_version()
    if opset is None:
        return DEFAULT_OPSET
    if isinstance(opset, bool) or not isinstance(opset, int) or not DEFAULT_OPSET <= opset <= newest:
        raise InputError(
            f"opset must be an integer from {DEFAULT_OPSET} to {newest}, the newest of the installed onnx, "
            f"not {opset!r}."
        )
    return opset
