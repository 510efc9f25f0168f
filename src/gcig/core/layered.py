"""Layered networks: Linear, activation, ..., Linear, which have fast attributions."""

from dataclasses import dataclass

from torch import Tensor, nn

from gcig.core.activations import Activation, find_activation


@dataclass(frozen=True)
class LayeredNetwork:
    """The weights of ``x -> W_L s(... s(W_1 x + c_1) ...) + c_L`` with one output, and its activations.

    Attributes
    ----------
    weights : tuple of Tensor
        One (outputs, inputs) matrix per layer; the last has one row.
    biases : tuple of Tensor or None
        One vector per layer, or None.
    activations : tuple of Activation
        One fewer than there are layers.
    """

    weights: tuple[Tensor, ...]
    biases: tuple[Tensor | None, ...]
    activations: tuple[Activation, ...]

    @property
    def n_hidden(self) -> int:
        """The number of hidden layers."""
        return len(self.activations)

    @property
    def smooth(self) -> bool:
        """True if every activation has a continuous derivative."""
        return all(activation.smooth for activation in self.activations)

    @classmethod
    def recognise(cls, module: nn.Module) -> "LayeredNetwork | None":
        """Read a module as a layered network, or return None if it is not certainly one.

        Recognised is an ``nn.Sequential`` (nested, or a subclass that keeps its forward) of alternating
        ``Linear`` and known activations, ending in one output. Dropout is skipped, since attributions are
        those of evaluation mode; so is a final ``Flatten(0)``, which turns (n, 1) into (n,). A compiled
        module is unwrapped. A module with hooks, parametrisations or its own forward takes the general path.

        >>> import torch
        >>> net = nn.Sequential(nn.Linear(5, 4), nn.SiLU(), nn.Dropout(0.1), nn.Linear(4, 1))
        >>> LayeredNetwork.recognise(net).n_hidden
        1
        >>> LayeredNetwork.recognise(nn.Sequential(nn.Linear(5, 4), nn.SiLU())) is None
        True
        """
        steps = sequential_steps(getattr(module, "_orig_mod", module))
        if steps is None:
            return None
        if steps and type(steps[-1]) is nn.Flatten and steps[-1].start_dim == 0:
            steps = steps[:-1]
        steps = [step for step in steps if type(step) not in (nn.Dropout, nn.Identity)]
        between = steps[1::2]
        linear = [step for step in steps[0::2] if isinstance(step, nn.Linear) and type(step) is nn.Linear]
        if len(linear) != len(between) + 1 or len(linear) + len(between) != len(steps):
            return None
        if linear[-1].out_features != 1:
            return None
        activations = [find_activation(step) for step in between]
        known = tuple(activation for activation in activations if activation is not None)
        if len(known) != len(activations):
            return None
        return cls(
            weights=tuple(step.weight for step in linear),
            biases=tuple(step.bias for step in linear),
            activations=known,
        )


def sequential_steps(module: nn.Module) -> list[nn.Module] | None:
    """Return the steps of nested Sequentials in order, or None if something may change their computation."""
    if module._forward_hooks or module._forward_pre_hooks or hasattr(module, "parametrizations"):
        return None
    if "forward" in vars(module):
        return None
    if isinstance(module, nn.Sequential):
        if type(module).forward is not nn.Sequential.forward:
            return None
        nested = [sequential_steps(step) for step in module]
        if any(steps is None for steps in nested):
            return None
        return [step for steps in nested for step in steps or []]
    return [module]
