"""Graphs of ONNX: a builder of operators, and the operators of networks."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from gcig._arguments import InputError
from gcig.core.secants import sequential_steps
from gcig.methods.networks import MixtureOfOutputs
from gcig.models.mlp import Affine


class GraphBuilder:
    """A growing ONNX graph: nodes and constants in order of computation, with names that are not ``taken``.

    >>> graph = GraphBuilder(["age"])
    >>> graph.apply("Sub", "age", graph.constant(np.array([[40.0]]), "mean"), name="age")
    'age_2'
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._names = set(taken)

    def fresh_name(self, wanted: str) -> str:
        """Return the wanted name, with a number if it is already in use."""
        name, count = wanted, 1
        while name in self._names:
            count += 1
            name = f"{wanted}_{count}"
        self._names.add(name)
        return name

    def constant(self, values: Any, name: str) -> str:
        """Add a constant and return its name; tensors become float, and text is an array of objects."""
        name = self.fresh_name(name)
        if isinstance(values, Tensor):
            values = values.detach().cpu().numpy().astype(np.float32)
        if values.dtype.kind in "OU":
            tensor = helper.make_tensor(name, TensorProto.STRING, values.shape, values.ravel().tolist())
        else:
            tensor = numpy_helper.from_array(np.ascontiguousarray(values).reshape(values.shape), name)
        self.constants.append(tensor)
        return name

    def apply(
        self, operator: str, *inputs: str, name: str = "", output: str = "", domain: str = "", **options: Any
    ) -> str:
        """Add an operator with one output and return its name: ``output``, or one as close to ``name``."""
        output = output or self.fresh_name(name or operator.lower())
        node = helper.make_node(operator, inputs, [output], name=f"make_{output}", domain=domain, **options)
        self.nodes.append(node)
        return output

    def as_float(self, value: str, name: str) -> str:
        """Convert into float32."""
        return self.apply("Cast", value, name=name, to=TensorProto.FLOAT)

    def join(self, values: Sequence[str], name: str) -> str:
        """Concatenate blocks of columns; return a single one unchanged."""
        return values[0] if len(values) == 1 else self.apply("Concat", *values, name=name, axis=1)


Translation = Callable[[GraphBuilder, Any, str], str]


def apply_network(graph: GraphBuilder, network: nn.Module, rows: str) -> str:
    """Apply a network to encoded rows (rows, p); the result is (rows, outputs).

    The network is a chain (``nn.Sequential``, possibly nested) of the layers in `LAYERS`, a weighted mean of
    several, or a scaled and shifted one; any other is refused with an error that names the layer.
    """
    network = getattr(network, "_orig_mod", network)
    if type(network) is Affine:
        scaled = graph.apply(
            "Mul", apply_network(graph, network.network, rows), graph.constant(network.scale, "scale")
        )
        return graph.apply("Add", scaled, graph.constant(network.shift, "shift"), name="shifted")
    if type(network) is MixtureOfOutputs:
        shares = [graph.constant(share, "share") for share in network.weights]
        parts = [apply_network(graph, each, rows) for each in network.networks]
        weighted = [graph.apply("Mul", *pair) for pair in zip(parts, shares, strict=True)]
        return graph.apply("Sum", *weighted, name="mixture")
    steps = sequential_steps(network)
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
    inputs = [value, graph.constant(layer.weight, "weight")]
    if layer.bias is not None:
        inputs.append(graph.constant(layer.bias, "bias"))
    return graph.apply("Gemm", *inputs, name="linear", transB=1)


def _gelu(graph: GraphBuilder, layer: nn.GELU, value: str) -> str:
    if layer.approximate != "none":
        raise _not_exportable(f"GELU(approximate={layer.approximate!r}) is not the exact GELU")
    half, root, one = (graph.constant(np.array(v, np.float32), "factor") for v in (0.5, math.sqrt(0.5), 1))
    error = graph.apply("Erf", graph.apply("Mul", value, root))
    cumulative = graph.apply("Mul", graph.apply("Add", error, one), half, name="cumulative")
    return graph.apply("Mul", value, cumulative, name="gelu")


def _softplus(graph: GraphBuilder, layer: nn.Softplus, value: str) -> str:
    if (layer.beta, layer.threshold) != (1, 20):
        raise _not_exportable("Softplus has a beta or a threshold other than the default")
    return graph.apply("Softplus", value)


def _batch_norm(graph: GraphBuilder, layer: nn.BatchNorm1d, value: str) -> str:
    if layer.running_mean is None or layer.running_var is None:
        raise _not_exportable("BatchNorm1d without running statistics depends on the other rows")
    statistics = graph.constant(layer.running_mean, "mean"), graph.constant(layer.running_var, "variance")
    inputs = (*_affine(graph, layer, layer.num_features), *statistics)
    return graph.apply("BatchNormalization", value, *inputs, name="normalised", epsilon=layer.eps)


def _layer_norm(graph: GraphBuilder, layer: nn.LayerNorm, value: str) -> str:
    inputs = _affine(graph, layer, layer.normalized_shape[-1])
    return graph.apply("LayerNormalization", value, *inputs, name="normalised", epsilon=layer.eps)


def _affine(graph: GraphBuilder, layer: nn.BatchNorm1d | nn.LayerNorm, width: int) -> tuple[str, str]:
    """Add the scale and shift of a normalisation; 1 and 0 if it learns none."""
    scale = np.ones(width, np.float32) if layer.weight is None else layer.weight
    shift = np.zeros(width, np.float32) if layer.bias is None else layer.bias
    return graph.constant(scale, "scale"), graph.constant(shift, "shift")


def _operator(name: str, **attributes: str) -> Translation:
    """Return the translation of a layer into one operator, whose attributes are some of the layer's."""

    def translate(graph: GraphBuilder, layer: nn.Module, value: str) -> str:
        options: dict[str, Any] = {option: float(getattr(layer, own)) for option, own in attributes.items()}
        return graph.apply(name, value, **options)

    return translate


def _unchanged(_: GraphBuilder, __: nn.Module, value: str) -> str:
    # Dropout acts only in training. Values stay (rows, width) here, so flattening changes nothing.
    return value


LAYERS: dict[type[nn.Module], Translation] = {
    nn.Linear: _linear,
    nn.ReLU: _operator("Relu"),
    nn.SiLU: lambda graph, _, value: graph.apply("Mul", value, graph.apply("Sigmoid", value), name="silu"),
    nn.GELU: _gelu,
    nn.Tanh: _operator("Tanh"),
    nn.ELU: _operator("Elu", alpha="alpha"),
    nn.Softplus: _softplus,
    nn.Sigmoid: _operator("Sigmoid"),
    nn.LeakyReLU: _operator("LeakyRelu", alpha="negative_slope"),
    nn.BatchNorm1d: _batch_norm,
    nn.LayerNorm: _layer_norm,
    nn.Dropout: _unchanged,
    nn.Identity: _unchanged,
    nn.Flatten: _unchanged,
}


def _not_exportable(reason: str) -> InputError:
    return InputError(
        f"the network cannot be written as ONNX: {reason}. Export `module_` with torch.onnx.export instead, "
        "and feed it the rows of `encode`."
    )
