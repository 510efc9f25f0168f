"""Networks of estimators: mixed outputs, checked copies, and storage."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gcig._arguments import InputError, InputTypeError
from gcig.adapters.modules import check_output
from gcig.models.mlp import MLP, Affine, mlp_from_architecture, with_affine
from gcig.training.runtime import seeded_generator


class MixtureOfOutputs(nn.Module):
    """The mean of the outputs of several networks, with positive weights that sum to one.

    >>> one, two = nn.Linear(2, 1), nn.Linear(2, 1)
    >>> rows = torch.ones(3, 2)
    >>> mixture = MixtureOfOutputs([one, two], [1.0, 3.0])
    >>> torch.allclose(mixture(rows), (0.25 * one(rows) + 0.75 * two(rows))[:, 0])
    True
    """

    weights: Tensor

    def __init__(self, networks: Sequence[nn.Module], weights: Sequence[float]) -> None:
        super().__init__()
        if len(networks) != len(weights) or not networks or not min(weights) > 0:
            raise ValueError(f"{len(networks)} networks need as many positive weights, not {len(weights)}")
        self.networks = nn.ModuleList(networks)
        shares = torch.tensor(weights, dtype=torch.float64)
        self.register_buffer("weights", (shares / shares.sum()).float())

    def each(self, inputs: Tensor) -> Tensor:
        """Return the outputs of every network, (n, networks), or (n, K, networks)."""
        return torch.stack([network(inputs) for network in self.networks], dim=-1)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the weighted mean of the networks' outputs."""
        return self.each(inputs) @ self.weights


def heaviest(network: nn.Module) -> nn.Module:
    """Return the network of a mixture with the largest weight, scaled and shifted as the mixture is.

    >>> mixture = MixtureOfOutputs([MLP(2, ()), MLP(2, (3,))], [1.0, 3.0])
    >>> heaviest(mixture).hidden_sizes
    (3,)
    """
    if isinstance(network, MixtureOfOutputs):
        return network.networks[int(network.weights.argmax())]
    if isinstance(network, Affine) and isinstance(network.network, MixtureOfOutputs):
        return with_affine(heaviest(network.network), float(network.scale), network.shift)
    return network


def copy_checked(module: nn.Module, n_inputs: int, n_outputs: int = 1) -> nn.Module:
    """Copy a network to the CPU; raise an error unless it maps (n, n_inputs) to (n,) or (n, n_outputs).

    >>> copy_checked(nn.Linear(3, 1), 2)
    Traceback (most recent call last):
    gcig._arguments.InputError: module does not take rows of 2 numbers (RuntimeError: mat1...
    """
    if not isinstance(module, nn.Module):
        raise InputTypeError(f"module must be a torch.nn.Module, not a {type(module).__name__}.")
    network = deepcopy(module).cpu()
    trainable = [parameter for parameter in network.parameters() if parameter.requires_grad]
    if not trainable:
        raise InputError("module has no parameters that require gradients: there is nothing to train.")
    if any(parameter.dtype != torch.float32 for parameter in trainable):
        raise InputError("module must have float32 parameters, like the rows: call module.float().")
    several = n_outputs if n_outputs > 1 else None
    width = check_output(
        network,
        np.zeros((2, n_inputs), dtype=np.float32),
        argument="module",
        columns="It gets the columns that encode(X) returns.",
        score="For two outputs a and b the logit is b - a: add that as a last layer.",
        least_classes=several,
    )
    if several is not None and width != n_outputs:
        raise InputError(f"module must give one logit per class, shape (n, {n_outputs}), but gave {width}.")
    if _ends_in(network, nn.Sigmoid, nn.Softmax, nn.LogSoftmax):
        raise InputError(
            "module ends in a Sigmoid or Softmax and therefore returns probabilities. It must return logits: "
            "remove the last layer."
        )
    return network


def _ends_in(network: nn.Module, *kinds: type[nn.Module]) -> bool:
    """Return whether the last layer of a chain is of these kinds; for other networks this is not known."""
    last = network
    while isinstance(last, nn.Sequential) and len(last):
        parts = [part for part in last if not isinstance(part, nn.Flatten | nn.Identity)]
        last = parts[-1] if parts else nn.Identity()
    return isinstance(last, kinds)


def copy_to_continue(model: Any, classes: tuple[Any, ...]) -> nn.Module | None:
    """Copy the network of a fitted model for `warm_start`; None if the model is not fitted."""
    if not hasattr(model, "module_"):
        return None
    present = tuple(model.classes_.tolist()) if classes else ()
    if classes != present:
        raise InputError(
            f"warm_start: y has the classes {classes}, but the network was trained for {present}. Set "
            "warm_start=False to start anew."
        )
    network = heaviest(deepcopy(model.module_))
    if not _describes(model, network):
        raise InputError(
            "warm_start: hidden_sizes or module describe other layers than those of the trained network. Set "
            "warm_start=False to start anew."
        )
    return network


def _describes(model: Any, network: nn.Module) -> bool:
    """Return whether the parameters describe a network; a loaded one may have no description."""
    if model.module is None and not isinstance(network, MLP):
        return True
    described = model.make_network(model.baselines_.shape[-1], model.task_.n_outputs, seeded_generator(0))
    return [each.shape for each in described.parameters()] == [each.shape for each in network.parameters()]


def architecture_of(module: nn.Module) -> dict[str, Any] | None:
    """Return the architecture of a network of this package; None for any other, whose code is not stored."""
    if type(module) is Affine:
        return {"affine": architecture_of(module.network)}
    if type(module) is MixtureOfOutputs:
        return {"mixture": [architecture_of(network) for network in module.networks]}
    # A subclass may compute something else with the same layers.
    return module.architecture() if type(module) is MLP else None


def needs_module(architecture: Mapping[str, Any] | None) -> bool:
    """Return whether a stored network can only be restored with the user's module."""
    if architecture is None:
        return True
    if "affine" in architecture:
        return needs_module(architecture["affine"])
    return any(map(needs_module, architecture.get("mixture", ())))


def restore_network(
    architecture: Mapping[str, Any] | None, state: Mapping[str, Tensor], module: nn.Module | None
) -> nn.Module:
    """Build the network of a stored model anew, or copy the user's module, with the stored weights."""
    if architecture is not None and "mixture" in architecture:
        return _restore_mixture(architecture["mixture"], state, module)
    if architecture is not None and "affine" in architecture:
        inner = {
            name.removeprefix("network."): each for name, each in state.items() if name.startswith("network.")
        }
        network = restore_network(architecture["affine"], inner, module)
        return Affine(network, float(state["scale"]), state["shift"]).eval()
    if architecture is not None:
        return mlp_from_architecture(architecture, state).eval()
    if module is None:
        raise InputError(
            "module is missing: this model has a custom network, whose code is not stored. Pass "
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
    mixture = MixtureOfOutputs(networks, [1.0] * len(networks))
    mixture.load_state_dict(dict(state))
    return mixture.eval()
