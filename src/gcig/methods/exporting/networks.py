"""A network in evaluation mode as ONNX operators: from encoded rows to one logit each."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from gcig._validation import InputError
from gcig.core.layered import sequential_steps
from gcig.methods.exporting.graph import GraphBuilder

__all__ = ["LAYERS", "apply_network"]

Translation = Callable[[GraphBuilder, Any, str], str]


def apply_network(graph: GraphBuilder, network: nn.Module, rows: str) -> str:
    """The logits (rows, 1) of encoded rows (rows, p).

    The network is a chain, ``nn.Sequential`` or nested ones, of the layers in `LAYERS`; anything else is an
    error that names the layer.
    """
    steps = sequential_steps(getattr(network, "_orig_mod", network))
    if steps is None:
        raise _not_exportable("it has hooks, parametrisations or a forward of its own")
    value = rows
    for step in steps:
        # By its very type: a subclass may compute something else.
        if type(step) not in LAYERS:
            raise _not_exportable(f"its part {type(step).__name__} is not one of {', '.join(_names())}")
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
        raise _not_exportable(f"GELU(approximate={layer.approximate!r}) is not the exact one")
    half, root = (graph.constant(np.array(v, np.float32), "factor") for v in (0.5, math.sqrt(0.5)))
    one = graph.constant(np.array(1, np.float32), "one")
    error = graph.apply("Erf", graph.apply("Mul", value, root, name="argument"), name="error")
    cumulative = graph.apply("Mul", graph.apply("Add", error, one, name="twice"), half, name="cumulative")
    return graph.apply("Mul", value, cumulative, name="gelu")


def _softplus(graph: GraphBuilder, layer: nn.Softplus, value: str) -> str:
    if (layer.beta, layer.threshold) != (1, 20):
        raise _not_exportable("Softplus has a beta or a threshold of its own")
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
    # Dropout acts in training alone. Rows stay (rows, width) here, and flattening the one output of a row,
    # or a row that is flat, changes nothing in that view.
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
    """Scale and shift of a normalisation; 1 and 0 where it learns none."""
    scale = np.ones(width, np.float32) if layer.weight is None else layer.weight
    shift = np.zeros(width, np.float32) if layer.bias is None else layer.bias
    return scale, shift


def _array(values: Tensor | NDArray[np.float32]) -> NDArray[np.float32]:
    array = values.detach().cpu().numpy() if isinstance(values, Tensor) else values
    return array.astype(np.float32)


def _names() -> list[str]:
    return [layer.__name__ for layer in LAYERS]


def _not_exportable(reason: str) -> InputError:
    return InputError(
        f"the network cannot be written as ONNX: {reason}. Write `module_` with torch.onnx.export instead, "
        "and give it the rows of `encode`."
    )
