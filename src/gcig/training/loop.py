"""The one epoch loop: batches of row numbers, a step function, early stopping, and a way back.

Whoever trains hands over a `step` that does everything for one mini-batch and says what its terms were
worth; adversarial, Lagrangian and plain training differ in nothing else.
"""

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

__all__ = [
    "DivergenceError",
    "Epoch",
    "Loop",
    "Outcome",
    "Validate",
    "Validation",
    "batches",
    "train",
]

Step = Callable[[Tensor], Mapping[str, Tensor]]
Validate = Callable[[int], "Validation"]


class Rated(Protocol):
    """What the loop needs of an optimizer: learning rates that a schedule can change."""

    param_groups: list[dict[str, Any]]


@dataclass(frozen=True)
class Validation:
    """What an epoch was worth on validation data.

    Parameters
    ----------
    criterion : float
        What early stopping minimises.
    metrics : mapping
        What the history keeps.
    eligible : bool
        Whether this epoch may be the one that is returned to.
    """

    criterion: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    eligible: bool = True


@dataclass(frozen=True)
class Loop:
    """How long and in what batches to train.

    Parameters
    ----------
    max_epochs, batch_size : int
    patience : int or None
        Epochs without a better criterion before training stops; None trains to the end.
    schedule : {"cosine", "constant"}
        Whether the learning rate is lowered to a hundredth over all epochs.
    """

    max_epochs: int
    batch_size: int
    patience: int | None = None
    schedule: str = "cosine"


@dataclass(frozen=True)
class Epoch:
    """One line of the history: mean terms over the mini-batches, and validation metrics."""

    number: int
    terms: Mapping[str, float]
    metrics: Mapping[str, float]

    def to_dict(self) -> dict[str, float]:
        """One flat row."""
        return {"epoch": self.number, **self.terms, **self.metrics}


@dataclass(frozen=True)
class Outcome:
    """What training did: its history and the epoch whose parameters were kept."""

    history: tuple[Epoch, ...]
    best_epoch: int


class DivergenceError(RuntimeError):
    """The loss was no longer finite; the parameters are back at the last good epoch.

    Parameters
    ----------
    message : str
    outcome : Outcome, optional
        The history up to there, and the epoch whose parameters were put back.

    Examples
    --------
    >>> import gcig
    >>> data = gcig.load_dataset("german", include_sensitive=False)
    >>> model = gcig.FairXClassifier(learning_rate=1e30, max_epochs=2, random_state=0)
    >>> try:
    ...     model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    ... except DivergenceError as error:
    ...     print(error)
    without any fairness term, training diverged in epoch 1: ...Lower learning_rate...
    """

    def __init__(self, message: str, outcome: Outcome | None = None) -> None:
        super().__init__(message)
        self.outcome = outcome or Outcome((), 0)

    @property
    def epoch(self) -> int:
        """The epoch whose parameters were put back; 0 where none was finished, and nothing is trained."""
        return self.outcome.best_epoch

    def __reduce__(self) -> tuple[type["DivergenceError"], tuple[str, Outcome]]:
        # Errors come back from worker processes pickled; by default the second argument would be lost.
        return type(self), (str(self), self.outcome)


def batches(
    n_rows: int, batch_size: int, generator: torch.Generator, device: torch.device
) -> Iterator[Tensor]:
    """Row numbers of the mini-batches of one epoch, in a new random order.

    Batches have nearly equal sizes, so that no small rest is left that would weigh as much as a full one.

    >>> from gcig.training.runtime import seeded_generator
    >>> [len(rows) for rows in batches(10, 4, seeded_generator(0), torch.device("cpu"))]
    [4, 3, 3]
    """
    order = torch.randperm(n_rows, generator=generator).to(device)
    yield from order.tensor_split(math.ceil(n_rows / batch_size))


def train(
    step: Step,
    state: nn.Module,
    optimizer: Rated,
    *,
    n_rows: int,
    loop: Loop,
    generator: torch.Generator,
    device: torch.device,
    validate: Validate | None = None,
    start: float | None = None,
    progress: bool = False,
    stage: str = "",
) -> Outcome:
    """Run epochs until the end or until patience is exhausted, and go back to the best one.

    Parameters
    ----------
    step : callable
        Takes the row numbers of a mini-batch, updates the parameters, and returns its terms, detached;
        the one called ``"total"`` is watched for divergence.
    state : nn.Module
        Everything that is put back when training returns to an earlier epoch.
    optimizer : Optimizer
        Whose learning rate follows the schedule.
    validate : callable, optional
        Takes the epoch's number; without it the last epoch is kept.
    start : float, optional
        What the state is worth before the first epoch, where that may be returned to, as epoch 0.
    progress, stage : bool, str
        Whether to show it, and what it is called.

    Raises
    ------
    DivergenceError
        When a loss is not finite; `state` is then that of the last good epoch.
    """
    rates = [group["lr"] for group in optimizer.param_groups]
    history: list[Epoch] = []
    good = _snapshot(state)
    best, best_epoch, best_criterion, waited = good, 0, math.inf if start is None else start, 0
    with _progress_bar(loop.max_epochs, stage, shown=progress) as show:
        for number in range(1, loop.max_epochs + 1):
            _set_rates(optimizer, rates, loop, number)
            terms = _run_epoch(step, batches(n_rows, loop.batch_size, generator, device))
            if not (all(map(math.isfinite, terms.values())) and _is_finite(state)):
                state.load_state_dict(good)
                raise DivergenceError(
                    _describe_divergence(terms, number), Outcome(tuple(history), number - 1)
                )
            outcome = validate(number) if validate is not None else Validation(criterion=-number)
            good = _snapshot(state)  # as it was judged: validation may change what it looks at
            history.append(Epoch(number, terms, outcome.metrics))
            show({**terms, **outcome.metrics})
            if not outcome.eligible:
                continue
            if outcome.criterion < best_criterion:
                best, best_epoch, best_criterion, waited = good, number, outcome.criterion, 0
            else:
                waited += 1
            if loop.patience is not None and waited >= loop.patience:
                break
    if best_epoch or start is not None:
        state.load_state_dict(best)
        return Outcome(tuple(history), best_epoch)
    return Outcome(tuple(history), len(history))


def _run_epoch(step: Step, rows_of_batches: Iterator[Tensor]) -> dict[str, float]:
    """Mean of each term over the mini-batches that have it; the device is waited for once."""
    values: dict[str, list[Tensor]] = {}
    for rows in rows_of_batches:
        for name, value in step(rows).items():
            values.setdefault(name, []).append(value)
    return {name: float(torch.stack(each).mean()) for name, each in values.items()}


def _set_rates(optimizer: Rated, rates: list[float], loop: Loop, number: int) -> None:
    share = 1.0
    if loop.schedule == "cosine":
        share = 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * (number - 1) / loop.max_epochs))
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate * share


def _snapshot(state: nn.Module) -> dict[str, Any]:
    return deepcopy(state.state_dict())


def _is_finite(state: nn.Module) -> bool:
    """Whether all parameters are finite: a last step may break them after its loss was still good."""
    return all(bool(torch.isfinite(parameter).all()) for parameter in state.parameters())


def _describe(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items())


def _describe_divergence(terms: Mapping[str, float], number: int) -> str:
    wrong = [name for name, value in terms.items() if not math.isfinite(value)]
    what = f"the loss was not finite ({_describe(terms)})" if wrong else "the parameters were not finite"
    back = f"those of epoch {number - 1}" if number > 1 else "those from before training"
    return (
        f"training diverged in epoch {number}: {what}. The network's parameters are back at {back}. "
        "Lower learning_rate, or the weight of the term that grew."
    )


Show = Callable[[Mapping[str, float]], None]
_ON_THE_BAR = ("total", "val_auc", "val_gcig")  # more would not leave room for the bar


@contextmanager
def _progress_bar(total: int, stage: str, *, shown: bool) -> Iterator[Show]:
    """A bar on a terminal, plain lines in a pipe; always on standard error."""
    bar = _terminal_bar(total, stage) if shown else None
    done = 0

    def show(values: Mapping[str, float]) -> None:
        nonlocal done
        done += 1
        if bar is not None:
            shown_here = {name: f"{values[name]:.3g}" for name in _ON_THE_BAR if name in values}
            bar.set_postfix(shown_here, refresh=False)
            bar.update()
        elif shown:
            print(f"{stage} epoch {done}/{total}: {_describe(values)}".lstrip(), file=sys.stderr, flush=True)

    try:
        yield show
    finally:
        if bar is not None:
            bar.close()


def _terminal_bar(total: int, stage: str) -> Any:
    """A bar of tqdm, where that is installed and someone can see it."""
    if not sys.stderr.isatty():
        return None
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    # It goes when training is over: stopped early, it would stand at less than 100 % for ever.
    return tqdm(
        total=total, desc=stage or None, unit="epoch", file=sys.stderr, dynamic_ncols=True, leave=False
    )
