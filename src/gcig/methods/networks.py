"""Networks of estimators: a user's own, mixtures, those that training continues, and those from storage."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, cast

import torch
from torch import Tensor, nn

from gcig._validation import InputError, InputTypeError
from gcig.core.modules import evaluating, logits
from gcig.models.mlp import MLP, mlp_from_architecture
from gcig.training.runtime import seeded_generator

__all__ = [
    "MixtureOfLogits",
    "architecture_of",
    "copy_checked",
    "copy_to_continue",
    "needs_module",
    "restore_network",
]


class MixtureOfLogits(nn.Module):
    """The weighted mean of the logits of several networks: (n, p) -> (n,).

    Parameters
    ----------
    networks : sequence of nn.Module
        Each maps (n, p) to one logit per row.
    weights : sequence of float
        Positive; scaled to a sum of one.

    Examples
    --------
    >>> one, two = nn.Linear(2, 1), nn.Linear(2, 1)
    >>> rows = torch.ones(3, 2)
    >>> mixture = MixtureOfLogits([one, two], [1.0, 3.0])
    >>> torch.allclose(mixture(rows), (0.25 * one(rows) + 0.75 * two(rows))[:, 0])
    True
    """

    weights: Tensor

    def __init__(self, networks: Sequence[nn.Module], weights: Sequence[float]) -> None:
        super().__init__()
        self.networks = nn.ModuleList()
        self.register_buffer("weights", torch.empty(0))
        self.replace(networks, weights)

    def replace(self, networks: Sequence[nn.Module], weights: Sequence[float]) -> None:
        """Take other networks and weights, on the device of the present ones."""
        if len(networks) != len(weights) or not networks or not min(weights) > 0:
            raise ValueError(f"{len(networks)} networks need as many positive weights, not {len(weights)}")
        self.networks = nn.ModuleList(networks)
        shares = torch.tensor(weights, dtype=torch.float64, device=self.weights.device)
        self.weights = (shares / shares.sum()).float()

    def each(self, inputs: Tensor) -> Tensor:
        """Return the logits of every network, shape (n, networks)."""
        return torch.stack([logits(network, inputs) for network in self.networks], dim=1)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the weighted mean of the networks' logits."""
        return self.each(inputs) @ self.weights


def copy_checked(module: nn.Module, n_inputs: int) -> nn.Module:
    """Copy a network that maps (n, n_inputs) to one logit per row to the CPU; refuse any other.

    >>> copy_checked(nn.Linear(3, 1), 2)
    Traceback (most recent call last):
    gcig._tables.InputError: module cannot take rows of 2 encoded columns (RuntimeError: mat1...
    """
    if not isinstance(module, nn.Module):
        raise InputTypeError(f"module must be a torch.nn.Module, not a {type(module).__name__}.")
    network = deepcopy(module).cpu()
    trainable = [parameter for parameter in network.parameters() if parameter.requires_grad]
    if not trainable:
        raise InputError("module has no parameters that require gradients: there is nothing to train.")
    if any(parameter.dtype != torch.float32 for parameter in trainable):
        raise InputError("module must have float32 parameters, like the rows: call module.float().")
    rows = torch.zeros(2, n_inputs, requires_grad=True)
    with evaluating(network), torch.enable_grad():
        scores = _score_rows(network, rows)
        gradient = None
        if scores.requires_grad:
            (gradient,) = torch.autograd.grad(scores.sum(), rows, allow_unused=True)
    if _ends_in_sigmoid(network):
        raise InputError(
            "module ends in a Sigmoid and therefore returns probabilities. It must return logits: remove the "
            "last layer."
        )
    if gradient is None:
        raise InputError(
            "module: the network's output is not differentiable in its input. Remove detach(), no_grad(), "
            "rounding or argmax from its forward."
        )
    return network


def _score_rows(network: nn.Module, rows: Tensor) -> Tensor:
    try:
        scores = network(rows)
    except Exception as error:  # a user's forward may raise anything
        what = f"rows of {rows.shape[1]} encoded columns"
        raise InputError(f"module cannot take {what} ({type(error).__name__}: {error}).") from error
    found = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
    if found not in ((len(rows),), (len(rows), 1)):
        raise InputError(
            f"module must return one logit per row, shape (n,) or (n, 1), but returned {found} for "
            f"{len(rows)} rows. For two outputs a and b the logit is b - a: add that as a last layer."
        )
    return cast(Tensor, scores)


def _ends_in_sigmoid(network: nn.Module) -> bool:
    """Return whether the last layer of a chain is a sigmoid; for other networks this is not known."""
    last = network
    while isinstance(last, nn.Sequential) and len(last):
        parts = [part for part in last if not isinstance(part, nn.Flatten | nn.Identity)]
        last = parts[-1] if parts else nn.Identity()
    return isinstance(last, nn.Sigmoid)


def copy_to_continue(model: Any, classes: tuple[Any, ...]) -> nn.Module | None:
    """Copy the network of a fitted model for `warm_start`; None if the model is not fitted."""
    if not hasattr(model, "module_"):
        return None
    present = tuple(model.classes_.tolist())
    if classes != present:
        raise InputError(
            f"warm_start: y has the classes {classes}, but the network was trained for {present}. Set "
            "warm_start=False to start anew."
        )
    if not _describes(model, model.module_):
        raise InputError(
            "warm_start: hidden_sizes or module describe other layers than those of the trained network. Set "
            "warm_start=False to start anew."
        )
    network: nn.Module = deepcopy(model.module_)
    return network


def _describes(model: Any, network: nn.Module) -> bool:
    """Return whether the parameters describe a network; a loaded one may have no description."""
    if model.module is None and not isinstance(network, MLP):
        return True
    described = model.make_network(model.baselines_.shape[-1], seeded_generator(0))
    return [each.shape for each in described.parameters()] == [each.shape for each in network.parameters()]


def architecture_of(module: nn.Module) -> dict[str, Any] | None:
    """Return how to build a network of this package again; None for any other, whose code is not stored."""
    if type(module) is MixtureOfLogits:
        return {"mixture": [architecture_of(network) for network in module.networks]}
    # A subclass may compute something else with the same layers.
    return module.architecture() if type(module) is MLP else None


def needs_module(architecture: Mapping[str, Any] | None) -> bool:
    """Return whether a stored network can only be restored with the user's module."""
    if architecture is None:
        return True
    return any(map(needs_module, architecture.get("mixture", ())))


def restore_network(
    architecture: Mapping[str, Any] | None, state: Mapping[str, Tensor], module: nn.Module | None
) -> nn.Module:
    """Build the network of a stored model anew, or copy the user's module, with the stored weights."""
    if architecture is not None and "mixture" in architecture:
        return _restore_mixture(architecture["mixture"], state, module)
    if architecture is not None:
        return mlp_from_architecture(architecture, state).eval()
    if module is None:
        raise InputError(
            "module is missing: this model has a network of its own, whose code is not stored. Pass "
            "gcig.load(path, module=...) an untrained network of the same architecture."
        )
    network = deepcopy(module).cpu()
    try:
        network.load_state_dict(dict(state))
    except RuntimeError as error:
        raise InputError(f"module does not have the architecture of the stored network: {error}") from error
    return network.eval()


def _restore_mixture(
    parts: Sequence[Mapping[str, Any] | None], state: Mapping[str, Tensor], module: nn.Module | None
) -> nn.Module:
    networks = []
    for index, part in enumerate(parts):
        prefix = f"networks.{index}."
        own = {name.removeprefix(prefix): each for name, each in state.items() if name.startswith(prefix)}
        networks.append(restore_network(part, own, module))
    mixture = MixtureOfLogits(networks, [1.0] * len(networks))
    mixture.load_state_dict(dict(state))
    return mixture.eval()
