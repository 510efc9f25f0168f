"""Export of fitted classifiers to ONNX files, for services that have neither torch nor gcig.

The graph holds the operators of a fitted encoder, of a network in evaluation mode, and of a decision by
threshold. This module needs onnx, the extra ``gcig[onnx]``; `NetworkClassifier.to_onnx` imports it.
"""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from gcig._files import write_atomically
from gcig._validation import InputError, InputTypeError
from gcig._version import __version__
from gcig.core.secants import sequential_steps
from gcig.data.encoding import MISSING, OTHER, CategoryColumn, NumberColumn, TableEncoder
from gcig.data.passthrough import PassThrough
from gcig.methods.base import NetworkClassifier
from gcig.methods.randomised import RandomisedClassifier

try:
    import onnx
    from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper
except ImportError as error:
    raise ImportError(
        "export to ONNX needs onnx, which is not installed: pip install 'gcig[onnx]'."
    ) from error

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
    opset = _checked_opset(opset)
    inputs = table_inputs(model.encoder_, named=hasattr(model, "feature_names_in_"))
    names = [value.name for value in inputs]
    if "" in names:
        raise InputError("a column of the training data has no name, which ONNX does not allow: rename it.")
    graph = GraphBuilder(names)
    # The outputs are named first: only a column can have taken their names.
    outputs = [graph.fresh_name(name) for name in ("label", "probabilities")]
    encoded = encode_rows(graph, model.encoder_, names)
    logit = apply_network(graph, model.module_, encoded)
    positive = give_probabilities(graph, logit, outputs[1])
    classes = _classes(model.classes_)
    decide(graph, positive, model.threshold_, classes, outputs[0])
    kind = helper.np_dtype_to_tensor_dtype(classes.dtype) if classes.dtype != object else TensorProto.STRING
    label = helper.make_tensor_value_info(outputs[0], kind, [ROWS])
    both = helper.make_tensor_value_info(outputs[1], TensorProto.DOUBLE, [ROWS, 2])
    body = helper.make_graph(graph.nodes, model.method_key, inputs, [label, both], graph.constants)
    versions = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", _ML_OPSET)]
    exported = helper.make_model(
        body,
        opset_imports=versions,
        # The oldest format that holds these operators: runtimes refuse files newer than themselves.
        ir_version=helper.find_min_ir_version_for(versions),
        producer_name="gcig",
        producer_version=__version__,
    )
    notes = {
        "gcig_method": model.method_key,
        "gcig_classes": json.dumps(model.classes_.tolist()),
        "gcig_threshold": repr(float(model.threshold_)),
    }
    helper.set_model_props(exported, notes)
    onnx.checker.check_model(exported, full_check=True)
    return exported


def _classes(classes: NDArray[Any]) -> NDArray[Any]:
    """Return the two classes in a type of ONNX: integers, doubles, booleans or text."""
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


ROWS = "rows"  # the name of the dimension that is not fixed
# Spellings of a missing text entry, since text has no NaN: those of pandas and NumPy, and the empty string. A
# category of the training data keeps its meaning whatever its name.
MISSING_TEXT = ("", "nan", "NaN", "None", "<NA>")

Translation = Callable[["GraphBuilder", Any, str], str]


class GraphBuilder:
    """A growing ONNX graph: nodes and constants in order of computation, with names that are not ``taken``.

    >>> graph = GraphBuilder(["age"])
    >>> graph.apply("Sub", "age", graph.constant(np.array([[40.0]]), "mean"), name="age")
    'age_2'
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []
        self._names = set(taken)

    def fresh_name(self, wanted: str) -> str:
        """Return the wanted name, with a number if it is already in use."""
        name, count = wanted, 1
        while name in self._names:
            count += 1
            name = f"{wanted}_{count}"
        self._names.add(name)
        return name

    def constant(self, values: NDArray[Any], name: str) -> str:
        """Add a constant and return its name; text is given as an array of objects."""
        name = self.fresh_name(name)
        if values.dtype.kind in "OU":
            tensor = helper.make_tensor(name, TensorProto.STRING, values.shape, values.ravel().tolist())
        else:
            tensor = numpy_helper.from_array(np.ascontiguousarray(values), name)
        self.constants.append(tensor)
        return name

    def apply(self, operator: str, *inputs: str, name: str, domain: str = "", **attributes: Any) -> str:
        """Add an operator with one output, and return its name, as close to ``name`` as possible."""
        return self.give(operator, *inputs, output=self.fresh_name(name), domain=domain, **attributes)

    def give(self, operator: str, *inputs: str, output: str, domain: str = "", **attributes: Any) -> str:
        """Add an operator whose output has a reserved name, and return that name."""
        self.nodes.append(
            helper.make_node(operator, inputs, [output], name=f"make_{output}", domain=domain, **attributes)
        )
        return output

    def join(self, values: Sequence[str], name: str) -> str:
        """Concatenate blocks of columns; return a single one unchanged."""
        return values[0] if len(values) == 1 else self.apply("Concat", *values, name=name, axis=1)


def table_inputs(encoder: TableEncoder | PassThrough, *, named: bool) -> list[ValueInfoProto]:
    """Return one input (rows, 1) per column: doubles for numbers and booleans, text for categories.

    Unnamed columns of numbers are one input ``X`` (rows, columns), since they were one array in training.
    """
    categories = [isinstance(column, CategoryColumn) for column in _columns(encoder)]
    if not named and not any(categories):
        return [helper.make_tensor_value_info("X", TensorProto.DOUBLE, [ROWS, len(categories)])]
    return [
        helper.make_tensor_value_info(name, TensorProto.STRING if text else TensorProto.DOUBLE, [ROWS, 1])
        for name, text in zip(encoder.feature_names_in_, categories, strict=True)
    ]


def encode_rows(graph: GraphBuilder, encoder: TableEncoder | PassThrough, inputs: Sequence[str]) -> str:
    """Apply an encoder to the named inputs, as `encoder.encode` does; the result is float (rows, p)."""
    if isinstance(encoder, PassThrough):
        values = graph.join(inputs, "numbers")
        return graph.apply("Cast", values, name="encoded", to=TensorProto.FLOAT)
    columns = _columns(encoder)
    starts = np.searchsorted(encoder.origin_, np.arange(len(columns)))  # first encoded column of each column
    numbers = [(j, column) for j, column in enumerate(columns) if isinstance(column, NumberColumn)]
    blocks: list[str] = []
    places: list[int] = []  # position of each column of the joined blocks
    flags: list[str] = []
    if numbers:
        names = inputs if len(inputs) == 1 else [inputs[j] for j, _ in numbers]
        values = graph.join(names, "numbers")
        missing = graph.apply("IsNaN", values, name="missing")
        fill = graph.constant(np.array([[column.fill for _, column in numbers]]), "fill")
        filled = graph.apply("Where", missing, fill, values, name="filled")
        blocks.append(_standardise(graph, filled, [column for _, column in numbers]))
        places += [int(starts[j]) for j, _ in numbers]
        if any(column.edges for _, column in numbers):
            blocks.append(_bins(graph, filled, [column for _, column in numbers]))
            for j, number in numbers:
                first = int(starts[j]) + 1 + number.indicator
                places += range(first, first + max(0, len(number.edges) - 1))
        if marked := [i for i, (_, column) in enumerate(numbers) if column.indicator]:
            chosen = graph.constant(np.array(marked, dtype=np.int64), "columns_with_missing")
            flags.append(graph.apply("Gather", missing, chosen, name="indicators", axis=1))
            places += [int(starts[numbers[i][0]]) + 1 for i in marked]
    for j, column in enumerate(columns):
        if isinstance(column, CategoryColumn):
            flags.append(_one_hot(graph, inputs[j], column))
            places += range(int(starts[j]), int(starts[j]) + len(column.levels))
    if flags:
        together = graph.join(flags, "flags")
        blocks.append(graph.apply("Cast", together, name="indicated", to=TensorProto.FLOAT))
    encoded = graph.join(blocks, "blocks")
    if places == sorted(places):
        return encoded
    order = graph.constant(np.argsort(places).astype(np.int64), "order")
    return graph.apply("Gather", encoded, order, name="encoded", axis=1)


def _columns(encoder: TableEncoder | PassThrough) -> tuple[NumberColumn | CategoryColumn | None, ...]:
    """Return how each column is encoded; None if it is passed through."""
    if isinstance(encoder, TableEncoder):
        return encoder.columns_
    return (None,) * len(encoder.feature_names_in_)


def _bins(graph: GraphBuilder, filled: str, columns: list[NumberColumn]) -> str:
    """Compute the bins of the filled columns, in doubles like the encoder, as floats."""
    parts = [(i, pair) for i, column in enumerate(columns) for pair in pairwise(column.edges)]
    of_bin = graph.constant(np.array([i for i, _ in parts], dtype=np.int64), "column_of_bin")
    low = graph.constant(np.array([[low for _, (low, _) in parts]]), "low_edge")
    width = graph.constant(np.array([[high - low for _, (low, high) in parts]]), "bin_width")
    values = graph.apply("Gather", filled, of_bin, name="repeated", axis=1)
    share = graph.apply("Div", graph.apply("Sub", values, low, name="above"), width, name="risen")
    ends = graph.constant(np.array(0.0), "zero"), graph.constant(np.array(1.0), "one")
    return graph.apply(
        "Cast", graph.apply("Clip", share, *ends, name="share"), name="bins", to=TensorProto.FLOAT
    )


def _standardise(graph: GraphBuilder, filled: str, columns: list[NumberColumn]) -> str:
    """Compute (value - mean) / scale of the filled columns, in doubles like the encoder, as floats."""
    mean = graph.constant(np.array([[column.mean for column in columns]]), "mean")
    # A constant column is encoded as zeros: the result of a division by infinity.
    scale = graph.constant(np.array([[column.scale or np.inf for column in columns]]), "scale")
    centred = graph.apply("Sub", filled, mean, name="centred")
    scaled = graph.apply("Div", centred, scale, name="scaled")
    return graph.apply("Cast", scaled, name="standardised", to=TensorProto.FLOAT)


def _one_hot(graph: GraphBuilder, value: str, column: CategoryColumn) -> str:
    """Return booleans (rows, levels); a category that training did not see is `OTHER`, or all false."""
    codes = {level: code for code, level in enumerate(column.levels)}
    other = codes.get(OTHER, -1)
    if other >= 0 or MISSING in codes:
        codes = dict.fromkeys(MISSING_TEXT, codes.get(MISSING, -1)) | codes
    names = {"keys_strings": list(codes), "values_int64s": list(codes.values()), "default_int64": other}
    found = graph.apply("LabelEncoder", value, name="code", domain="ai.onnx.ml", **names)
    levels = graph.constant(np.arange(len(column.levels), dtype=np.int64)[np.newaxis], "levels")
    return graph.apply("Equal", found, levels, name="level")


def apply_network(graph: GraphBuilder, network: nn.Module, rows: str) -> str:
    """Apply a network to encoded rows (rows, p); the result is logits (rows, 1).

    The network is a chain (``nn.Sequential``, possibly nested) of the layers in `LAYERS`; any other is
    refused with an error that names the layer.
    """
    steps = sequential_steps(getattr(network, "_orig_mod", network))
    if steps is None:
        raise _not_exportable("it has hooks, parametrisations or its own forward")
    value, known = rows, ", ".join(layer.__name__ for layer in LAYERS)
    for step in steps:
        # By its exact type: a subclass may compute something else.
        if type(step) not in LAYERS:
            raise _not_exportable(f"its part {type(step).__name__} is not one of {known}")
        value = LAYERS[type(step)](graph, step, value)
    return value


def _linear(graph: GraphBuilder, layer: nn.Linear, value: str) -> str:
    inputs = [value, graph.constant(_array(layer.weight), "weight")]
    if layer.bias is not None:
        inputs.append(graph.constant(_array(layer.bias), "bias"))
    return graph.apply("Gemm", *inputs, name="linear", transB=1)


def _silu(graph: GraphBuilder, _: nn.SiLU, value: str) -> str:
    return graph.apply("Mul", value, graph.apply("Sigmoid", value, name="gate"), name="silu")


def _gelu(graph: GraphBuilder, layer: nn.GELU, value: str) -> str:
    if layer.approximate != "none":
        raise _not_exportable(f"GELU(approximate={layer.approximate!r}) is not the exact GELU")
    half, root = (graph.constant(np.array(v, np.float32), "factor") for v in (0.5, math.sqrt(0.5)))
    one = graph.constant(np.array(1, np.float32), "one")
    error = graph.apply("Erf", graph.apply("Mul", value, root, name="argument"), name="error")
    cumulative = graph.apply("Mul", graph.apply("Add", error, one, name="twice"), half, name="cumulative")
    return graph.apply("Mul", value, cumulative, name="gelu")


def _softplus(graph: GraphBuilder, layer: nn.Softplus, value: str) -> str:
    if (layer.beta, layer.threshold) != (1, 20):
        raise _not_exportable("Softplus has a beta or a threshold other than the default")
    return graph.apply("Softplus", value, name="softplus")


def _batch_norm(graph: GraphBuilder, layer: nn.BatchNorm1d, value: str) -> str:
    if layer.running_mean is None or layer.running_var is None:
        raise _not_exportable("BatchNorm1d without running statistics depends on the other rows")
    scale, shift = _affine(layer, layer.num_features)
    parts = {"scale": scale, "shift": shift, "mean": layer.running_mean, "variance": layer.running_var}
    constants = [graph.constant(_array(part), name) for name, part in parts.items()]
    return graph.apply("BatchNormalization", value, *constants, name="normalised", epsilon=layer.eps)


def _layer_norm(graph: GraphBuilder, layer: nn.LayerNorm, value: str) -> str:
    scale, shift = _affine(layer, layer.normalized_shape[-1])
    constants = [graph.constant(_array(part), name) for name, part in (("scale", scale), ("shift", shift))]
    return graph.apply("LayerNormalization", value, *constants, name="normalised", epsilon=layer.eps)


def _unchanged(_: GraphBuilder, __: nn.Module, value: str) -> str:
    # Dropout acts only in training. Values stay (rows, width) here, so flattening changes nothing.
    return value


LAYERS: dict[type[nn.Module], Translation] = {
    nn.Linear: _linear,
    nn.ReLU: lambda graph, _, value: graph.apply("Relu", value, name="relu"),
    nn.SiLU: _silu,
    nn.GELU: _gelu,
    nn.Tanh: lambda graph, _, value: graph.apply("Tanh", value, name="tanh"),
    nn.ELU: lambda graph, layer, value: graph.apply("Elu", value, name="elu", alpha=float(layer.alpha)),
    nn.Softplus: _softplus,
    nn.Sigmoid: lambda graph, _, value: graph.apply("Sigmoid", value, name="sigmoid"),
    nn.LeakyReLU: lambda graph, layer, value: graph.apply(
        "LeakyRelu", value, name="leaky_relu", alpha=float(layer.negative_slope)
    ),
    nn.BatchNorm1d: _batch_norm,
    nn.LayerNorm: _layer_norm,
    nn.Dropout: _unchanged,
    nn.Identity: _unchanged,
    nn.Flatten: _unchanged,
}


def _affine(layer: nn.BatchNorm1d | nn.LayerNorm, width: int) -> tuple[Any, Any]:
    """Return the scale and shift of a normalisation; 1 and 0 if it learns none."""
    scale = np.ones(width, np.float32) if layer.weight is None else layer.weight
    shift = np.zeros(width, np.float32) if layer.bias is None else layer.bias
    return scale, shift


def _array(values: Tensor | NDArray[np.float32]) -> NDArray[np.float32]:
    array = values.detach().cpu().numpy() if isinstance(values, Tensor) else values
    return array.astype(np.float32)


def _not_exportable(reason: str) -> InputError:
    return InputError(
        f"the network cannot be written as ONNX: {reason}. Export `module_` with torch.onnx.export instead, "
        "and feed it the rows of `encode`."
    )


def give_probabilities(graph: GraphBuilder, logit: str, output: str) -> str:
    """Output both probabilities in doubles; return the name of the second, (rows, 1)."""
    score = graph.apply("Cast", logit, name="score", to=TensorProto.DOUBLE)
    negative = graph.apply("Sigmoid", graph.apply("Neg", score, name="opposite"), name="negative")
    positive = graph.apply("Sigmoid", score, name="positive")
    graph.give("Concat", negative, positive, output=output, axis=1)
    return positive


def decide(graph: GraphBuilder, positive: str, threshold: float, classes: NDArray[Any], output: str) -> None:
    """Output the class of each row, (rows,)."""
    limit = graph.constant(np.array(threshold, dtype=np.float64), "threshold")
    decided = graph.apply("GreaterOrEqual", positive, limit, name="decided")
    code = graph.apply("Cast", decided, name="class_code", to=TensorProto.INT64)
    flat = graph.apply("Squeeze", code, graph.constant(np.array([1], dtype=np.int64), "axis"), name="flat")
    graph.give("Gather", graph.constant(classes, "classes"), flat, output=output, axis=0)
