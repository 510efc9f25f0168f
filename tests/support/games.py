"""Games of a network and an opponent on small random rows, without an estimator around them."""

from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from gcig.core.references import Rows
from gcig.core.task import Binary, Classes, Number, Task
from gcig.methods.outcome_bounded import Game
from gcig.methods.training_data import TrainingData
from gcig.training.runtime import flattened


def make_rows(
    task: str, n: int = 64, n_groups: int = 2, weights: Tensor | None = None, seed: int = 0
) -> tuple[Rows, Task]:
    """Return rows whose labels and inputs depend on the group, and their task."""
    generator = torch.Generator().manual_seed(seed)
    groups = torch.randint(n_groups, (n,), generator=generator)
    inputs = torch.randn(n, 3, generator=generator)
    inputs[:, 0] += groups
    score = inputs.sum(1) + torch.randn(n, generator=generator)
    labels = {"binary": (score > 0.5).long(), "classes": (score > 0).long() + (score > 1), "number": score}[
        task
    ]
    rows = Rows(inputs, labels, groups, weights)
    kinds = {"binary": lambda _: Binary(), "classes": Classes.of, "number": Number.of}
    return rows, kinds[task](labels)


def make_data(
    task: str, n: int = 64, n_groups: int = 2, weights: Tensor | None = None, **more: Any
) -> TrainingData:
    """Return rows as training data of which nothing is held out."""
    return data_of(*make_rows(task, n, n_groups, weights, **more), n_groups)


def data_of(rows: Rows, task: Task, n_groups: int = 2, validation: Rows | None = None) -> TrainingData:
    """Return training data of encoded rows."""
    columns = torch.arange(rows.inputs.shape[1])
    return TrainingData(rows, rows, validation, n_groups, None, task, columns, columns)


def make_game(
    kind: type[Game], settings: Any, network: nn.Module, data: TrainingData, rate: float = 0.0, **more: Any
) -> Any:
    """Return a game in which the network takes plain gradient steps, whose gradients are not clipped."""
    stack = ExitStack()
    flat = stack.enter_context(flattened(network))
    game = kind(settings, network, flat, torch.optim.SGD([flat], lr=rate), data, clip_norm=None, **more)
    game.stack = stack  # keeps the parameters of the network joined
    return game
