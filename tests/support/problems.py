"""Small problems of every task: rows with labels and groups, and networks."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from gcig.core.attribution import Score
from gcig.core.references import GroupBaselines
from gcig.core.task import Task, task_of
from gcig.models.mlp import make_mlp


class Problem(NamedTuple):
    """Rows of a task and a network, in float64."""

    x: Tensor
    y: Tensor
    groups: Tensor
    task: Task
    network: nn.Module

    def baselines(self, **options) -> GroupBaselines:
        return GroupBaselines.from_data(self.x, self.y, self.groups, **{"task": self.task, **options})

    @property
    def score(self) -> Score:
        return Score.of(self.network, self.task, self.y)


def make_problem(
    task: str = "binary", *, n=48, groups=2, columns=4, hidden=(6, 5), activation="silu", seed=0
) -> Problem:
    """Return a problem in which every label occurs in every group."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, columns, generator=generator, dtype=torch.float64)
    order = torch.randperm(n, generator=generator)
    codes, g = torch.arange(n)[order], (torch.arange(n) // 3 % groups)[order]
    x[:, 0] += 0.7 * g
    y = {"binary": codes % 2, "classes": codes % 3, "number": x[:, 0] + x[:, 1].exp()}[task]
    of_labels = task_of(y, task)
    network = make_mlp(
        columns, hidden, activation, n_outputs=of_labels.n_outputs, generator=generator
    ).double()
    with torch.no_grad():  # larger than at initialisation, so that paths are well curved
        for parameter in network.parameters():
            parameter *= 2
    return Problem(x, y, g, of_labels, network)


class Formula(nn.Module):
    """A module that evaluates a formula of the rows."""

    def __init__(self, formula):
        super().__init__()
        self.formula = formula

    def forward(self, rows):
        return self.formula(rows)


def flat_gradient(loss: Tensor, module: nn.Module) -> Tensor:
    """Return the gradient with respect to all parameters in one vector."""
    parts = torch.autograd.grad(loss, list(module.parameters()), allow_unused=True, materialize_grads=True)
    return torch.cat([part.flatten() for part in parts])


def finite_differences(value, module: nn.Module, step: float = 1e-6) -> Tensor:
    """Return central differences of ``value()`` with respect to the parameters."""
    start, slopes = nn.utils.parameters_to_vector(module.parameters()).detach(), []
    for index in range(len(start)):
        ends = []
        for sign in (1, -1):
            moved = start.clone()
            moved[index] += sign * step
            nn.utils.vector_to_parameters(moved, module.parameters())
            ends.append(value().item())
        slopes.append((ends[0] - ends[1]) / (2 * step))
    nn.utils.vector_to_parameters(start, module.parameters())
    return torch.tensor(slopes, dtype=start.dtype)
