"""The multi-layer perceptron that every method trains by default, and networks with scaled outputs."""

import difflib
import math
import operator
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, Final

import torch
from torch import Tensor, nn

ACTIVATIONS: Final[dict[str, type[nn.Module]]] = {
    "relu": nn.ReLU,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
    "tanh": nn.Tanh,
    "elu": nn.ELU,
    "softplus": nn.Softplus,
    "sigmoid": nn.Sigmoid,
    "leaky_relu": nn.LeakyReLU,
}


class MLP(nn.Sequential):
    """Linear maps with an activation between them: (n, inputs) -> (n,), or (n, outputs) for several outputs.

    The modules are ``Linear, activation, ..., Linear`` in order, with a `~torch.nn.Dropout` after each
    activation if ``dropout`` is not 0, and a ``Flatten`` after a single output. `make_mlp` describes the
    parameters and initialises the weights; this constructor leaves weights on ``device="meta"`` unset.
    """

    def __init__(
        self,
        n_inputs: int,
        hidden_sizes: Iterable[int] = (64, 32),
        activation: str = "silu",
        *,
        n_outputs: int = 1,
        dropout: float = 0.0,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        n_outputs = _as_size(n_outputs, "n_outputs")
        n_inputs, hidden_sizes = _as_size(n_inputs, "n_inputs"), _as_sizes(hidden_sizes)
        activation, dropout = _as_activation(activation), _as_dropout(dropout)
        steps: list[nn.Module] = []
        for index, (n_in, n_out) in enumerate(pairwise((n_inputs, *hidden_sizes, n_outputs))):
            if index:
                steps.append(ACTIVATIONS[activation]())
                if dropout:
                    steps.append(nn.Dropout(dropout))
            steps.append(_make_linear(n_in, n_out, generator, device))
        super().__init__(*steps, *([nn.Flatten(0)] if n_outputs == 1 else []))
        self.n_inputs, self.hidden_sizes, self.n_outputs = n_inputs, hidden_sizes, n_outputs
        self.activation, self.dropout = activation, dropout

    @property
    def last(self) -> nn.Linear:
        """The output layer."""
        return next(part for part in reversed(self) if isinstance(part, nn.Linear))

    def architecture(self) -> dict[str, Any]:
        """Return the arguments of `mlp_from_architecture`, in types of JSON."""
        return {
            "n_inputs": self.n_inputs,
            "hidden_sizes": list(self.hidden_sizes),
            "n_outputs": self.n_outputs,
            "activation": self.activation,
            "dropout": self.dropout,
        }


def make_mlp(
    n_inputs: int,
    hidden_sizes: Iterable[int] = (64, 32),
    activation: str = "silu",
    *,
    n_outputs: int = 1,
    dropout: float = 0.0,
    generator: torch.Generator | None = None,
) -> MLP:
    r"""Return a multi-layer perceptron with weights drawn from ``generator``.

    Weights and biases are uniform on :math:`\pm 1/\sqrt{\text{fan in}}`, the default of
    `torch.nn.Linear`: the same seed gives the weights of a chain of these.

    Parameters
    ----------
    n_inputs : int
        Number of input columns.
    hidden_sizes : iterable of int
        Widths of the hidden layers; ``()`` gives a linear model.
    activation : str
        A key of `ACTIVATIONS`.
    n_outputs : int
        Number of outputs; a single one has no dimension of its own.
    dropout : float
        Probability, in [0, 1), of zeroing a hidden unit in training. Like every `torch.nn.Dropout`, it draws
        from torch's global generator.
    generator : torch.Generator, optional
        Source of the initial weights; by default torch's global generator, which is otherwise not used.

    Examples
    --------
    >>> import torch
    >>> mlp = make_mlp(3, (4,), generator=torch.Generator().manual_seed(0))
    >>> mlp
    MLP(
      (0): Linear(in_features=3, out_features=4, bias=True)
      (1): SiLU()
      (2): Linear(in_features=4, out_features=1, bias=True)
      (3): Flatten(start_dim=0, end_dim=-1)
    )
    >>> mlp(torch.zeros(5, 3)).shape
    torch.Size([5])
    """
    return MLP(n_inputs, hidden_sizes, activation, n_outputs=n_outputs, dropout=dropout, generator=generator)


def mlp_from_architecture(architecture: Mapping[str, Any], state: Mapping[str, Tensor]) -> MLP:
    """Build the network that `MLP.architecture` described, with the weights of a ``state_dict``.

    Memory is allocated for the given weights, not for the sizes and layers in the description, and no random
    number is drawn.
    """
    expected = {"n_inputs", "hidden_sizes", "n_outputs", "activation", "dropout"}
    if architecture.keys() != expected:
        raise ValueError(f"architecture must have the keys {sorted(expected)}; got {sorted(architecture)}")
    sizes = architecture["hidden_sizes"]
    if isinstance(sizes, list | tuple) and len(state) != 2 * (len(sizes) + 1):
        raise ValueError(f"state does not fit {len(sizes)} hidden layers: it has {len(state)} tensors")
    try:
        mlp = MLP(**architecture, device="meta")
        mlp.load_state_dict({name: value.detach().clone() for name, value in state.items()}, assign=True)
    except (RuntimeError, TypeError, OverflowError) as error:  # torch's errors for impossible sizes
        raise ValueError(f"state does not fit the architecture {dict(architecture)}: {error}") from error
    return mlp


def _make_linear(
    n_in: int, n_out: int, generator: torch.Generator | None, device: torch.device | str | None
) -> nn.Linear:
    # On "meta" the constructor draws nothing, so the global generator is not advanced.
    linear = nn.Linear(n_in, n_out, device="meta", dtype=torch.float32)  # the type of encoded tables
    if device is not None and torch.device(device).type == "meta":
        return linear
    linear = linear.to_empty(device=device or torch.get_default_device())
    bound = 1 / math.sqrt(n_in)
    nn.init.uniform_(linear.weight, -bound, bound, generator=generator)
    nn.init.uniform_(linear.bias, -bound, bound, generator=generator)
    return linear


def _as_size(size: int, name: str) -> int:
    if isinstance(size, bool):
        raise TypeError(f"{name} must be a positive integer; got {size}")
    try:
        value = operator.index(size)
    except TypeError:
        raise TypeError(f"{name} must be a positive integer; got {type(size).__name__}") from None
    if value < 1:
        raise ValueError(f"{name} must be a positive integer; got {value}")
    return value


def _as_sizes(hidden_sizes: Iterable[int]) -> tuple[int, ...]:
    if isinstance(hidden_sizes, str) or not isinstance(hidden_sizes, Iterable):
        raise TypeError(f"hidden_sizes must be a sequence of integers such as (64, 32); got {hidden_sizes!r}")
    return tuple(_as_size(size, f"hidden_sizes[{index}]") for index, size in enumerate(hidden_sizes))


def _as_activation(activation: str) -> str:
    if isinstance(activation, str) and activation in ACTIVATIONS:
        return activation
    close = difflib.get_close_matches(str(activation).lower(), ACTIVATIONS, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"choose from {', '.join(ACTIVATIONS)}"
    raise ValueError(f"unknown activation {activation!r}: {hint}")


def _as_dropout(dropout: float) -> float:
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be in [0, 1); got {dropout}")
    return float(dropout)


class Affine(nn.Module):
    """A network whose outputs are scaled and shifted."""

    scale: Tensor
    shift: Tensor

    def __init__(self, network: nn.Module, scale: float, shift: Tensor) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("scale", torch.tensor(float(scale), dtype=torch.float32))
        self.register_buffer("shift", shift.detach().float().clone())

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the network's outputs, times the scale, plus the shift."""
        outputs: Tensor = self.network(inputs)
        shift = self.shift if outputs.dim() > 1 else self.shift[0]
        return outputs * self.scale + shift


def with_affine(network: nn.Module, scale: float, shift: Tensor) -> nn.Module:
    """Return a network whose outputs are scaled and shifted (K,); the output layer of an `MLP` absorbs both.

    >>> network = MLP(2, ())
    >>> rows = torch.ones(3, 2)
    >>> before = network(rows)
    >>> torch.allclose(with_affine(network, 2.0, torch.ones(1))(rows), 2 * before + 1)
    True
    """
    if scale == 1 and not shift.any():
        return network
    with torch.no_grad():
        if isinstance(network, MLP):
            network.last.weight.mul_(scale)
            network.last.bias.mul_(scale).add_(shift.to(network.last.bias))
            return network
        if isinstance(network, Affine):
            network.shift.mul_(scale).add_(shift.to(network.shift))
            network.scale.mul_(scale)
            return network
    return Affine(network, scale, shift)
