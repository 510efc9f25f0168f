"""The epoch loop: mini-batches of row numbers, a step function, early stopping, and checkpoints.

The caller passes a `step` that does everything for one mini-batch and returns the values of its terms.
Adversarial, Lagrangian and plain training differ in nothing else.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from gcig._progress import progress as report_progress
from gcig.training.runtime import generator_on

Step = Callable[[Tensor], Mapping[str, Tensor]]
Validate = Callable[[int], "Validation"]

_SHOWN_FIGURES = ("total", "val_auc", "val_accuracy", "val_r2")  # more leave no room for the progress bar


class ScheduledOptimizer(Protocol):
    """The part of an optimizer that the loop uses: learning rates that a schedule can change."""

    param_groups: list[dict[str, Any]]


@dataclass(frozen=True)
class Validation:
    """The measurements of an epoch on validation data."""

    criterion: float  # the value that early stopping minimises
    metrics: Mapping[str, float] = field(default_factory=dict)  # measurements for the history
    eligible: bool = True  # whether training may return to this epoch


@dataclass(frozen=True)
class Loop:
    """The length of training, its mini-batches and its learning rate schedule."""

    max_epochs: int
    batch_size: int
    patience: int | None = None  # epochs without a better criterion before training stops; None: to the end
    schedule: str = "cosine"  # lowers the learning rate to a hundredth over all epochs; or "constant"
    steps_per_epoch: int | None = None  # mini-batches per epoch; None: each epoch passes over all rows once


@dataclass(frozen=True)
class Epoch:
    """One line of the history: mean terms over the mini-batches, and validation metrics."""

    number: int
    terms: Mapping[str, float]
    metrics: Mapping[str, float]

    def to_dict(self) -> dict[str, float]:
        """Return the epoch as one flat row."""
        return {"epoch": self.number, **self.terms, **self.metrics}


@dataclass(frozen=True)
class Outcome:
    """The result of training: its history, and the epoch whose parameters were kept."""

    history: tuple[Epoch, ...]
    best_epoch: int


class DivergenceError(RuntimeError):
    """Raised if the loss is no longer finite; the parameters of the last good epoch are restored.

    Parameters
    ----------
    message : str
    outcome : Outcome, optional
        The history so far, and the epoch whose parameters were restored.

    Examples
    --------
    >>> import gcig
    >>> data = gcig.load_dataset("german", include_sensitive=False)
    >>> model = gcig.FairXClassifier(learning_rate=1e30, max_epochs=2, random_state=0)
    >>> try:
    ...     model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    ... except DivergenceError as error:
    ...     print(error)
    training diverged in epoch 1: ...Lower learning_rate...
    """

    def __init__(self, message: str, outcome: Outcome | None = None) -> None:
        super().__init__(message)
        self.outcome = outcome or Outcome((), 0)
        self.network: nn.Module | None = None  # the network with the restored parameters

    @property
    def epoch(self) -> int:
        """The epoch whose parameters were restored; 0 if none was finished and nothing is trained."""
        return self.outcome.best_epoch

    def __reduce__(self) -> tuple[type["DivergenceError"], tuple[str, Outcome]]:
        # Worker processes pickle errors; by default the second argument would be lost.
        return type(self), (str(self), self.outcome)


def batches(
    n_rows: int, batch_size: int, generator: torch.Generator, device: torch.device
) -> Iterator[Tensor]:
    """Yield the row numbers of mini-batches of nearly equal sizes, pass after pass, without end.

    Each pass has a new random order. A small remainder would count as much as a full batch.
    """
    while True:
        order = torch.randperm(n_rows, generator=generator, device=generator.device).to(device)
        yield from order.tensor_split(math.ceil(n_rows / batch_size))


def train(
    step: Step,
    state: nn.Module,
    optimizer: ScheduledOptimizer,
    *,
    n_rows: int,
    loop: Loop,
    generator: torch.Generator,
    device: torch.device,
    validate: Validate | None = None,
    progress: bool = False,
    stage: str = "",
) -> Outcome:
    """Run epochs until the end or until patience is exhausted, and restore the best one.

    `step` takes the row numbers of a mini-batch, updates the parameters, and returns its terms, detached.
    `state` is everything that is restored if training returns to an earlier epoch. `validate` maps the number
    of an epoch to its `Validation`; without it the last epoch is kept. If a term or a parameter is not
    finite, a `DivergenceError` is raised, and `state` is that of the last good epoch.
    """
    generator = generator_on(device, generator)
    rates = [group["lr"] for group in optimizer.param_groups]
    history: list[Epoch] = []
    good = deepcopy(state.state_dict())
    best, best_epoch, best_criterion, waited = good, 0, math.inf, 0
    task = f"Training ({stage})" if stage else "Training"
    steps = loop.steps_per_epoch or math.ceil(n_rows / loop.batch_size)
    rows = batches(n_rows, loop.batch_size, generator, device)
    shown = report_progress(loop.max_epochs, task, unit="epochs", shown=True) if progress else nullcontext()
    with shown as advance:
        for number in range(1, loop.max_epochs + 1):
            _set_rates(optimizer, rates, loop, number)
            terms = mean_terms(step, islice(rows, steps))
            if not (all(map(math.isfinite, terms.values())) and _is_finite(state)):
                state.load_state_dict(good)
                raise DivergenceError(
                    _describe_divergence(terms, number), Outcome(tuple(history), number - 1)
                )
            outcome = validate(number) if validate is not None else Validation(criterion=-number)
            good = deepcopy(state.state_dict())  # after validation, which may change the state
            history.append(Epoch(number, terms, outcome.metrics))
            if advance is not None:
                figures = {**terms, **outcome.metrics}
                advance(1, **{name: figures[name] for name in _SHOWN_FIGURES if name in figures})
            if not outcome.eligible:
                continue
            if outcome.criterion < best_criterion:
                best, best_epoch, best_criterion, waited = good, number, outcome.criterion, 0
            else:
                waited += 1
            if loop.patience is not None and waited >= loop.patience:
                break
    if best_epoch:
        state.load_state_dict(best)
        return Outcome(tuple(history), best_epoch)
    return Outcome(tuple(history), len(history))


def mean_terms(step: Step, rows_of_batches: Iterator[Tensor]) -> dict[str, float]:
    """Return the mean of each term over the mini-batches that have it; synchronises the device once."""
    values: dict[str, list[Tensor]] = {}
    for rows in rows_of_batches:
        for name, value in step(rows).items():
            values.setdefault(name, []).append(value)
    return {name: float(torch.stack(each).mean()) for name, each in values.items()}


def _set_rates(optimizer: ScheduledOptimizer, rates: list[float], loop: Loop, number: int) -> None:
    share = 1.0
    if loop.schedule == "cosine":
        share = 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * (number - 1) / loop.max_epochs))
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate * share


def _is_finite(state: nn.Module) -> bool:
    """Return whether all parameters are finite: the last step may break them after its loss was finite."""
    return all(bool(torch.isfinite(parameter).all()) for parameter in state.parameters())


def _describe_divergence(terms: Mapping[str, float], number: int) -> str:
    what = "the parameters were not finite"
    if not all(map(math.isfinite, terms.values())):
        values = ", ".join(f"{name} {value:.4g}" for name, value in terms.items())
        what = f"the loss was not finite ({values})"
    restored = f"of epoch {number - 1}" if number > 1 else "from before training"
    return (
        f"training diverged in epoch {number}: {what}. The network's parameters {restored} were restored. "
        "Lower learning_rate, or the weight of the term that grew."
    )


def raise_if_diverged(scores: Tensor) -> None:
    """Raise a `DivergenceError` if scores are NaN: finite parameters can be so large that sums overflow."""
    missing = int(scores.isnan().sum())
    if missing:
        raise DivergenceError(
            f"training diverged: {missing} of {len(scores)} scores are NaN, because the network's parameters "
            "are too large. Lower learning_rate or weight_decay."
        )
