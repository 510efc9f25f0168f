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
from typing import Any

import torch
from torch import Tensor, nn

__all__ = [
    "DivergenceError",
    "Validation",
    "Epoch",
    "Loop",
    "Outcome",
    "batches",
    "one_thread",
    "resolve_batch_size",
    "resolve_device",
    "resolve_learning_rate",
    "seeded_generator",
    "train",
]

Step = Callable[[Tensor], Mapping[str, Tensor]]
Validate = Callable[[int], "Validation"]


class DivergenceError(RuntimeError):
    """The loss was no longer finite; the parameters are back at the last good epoch."""


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
        Whether this epoch may be the one that is returned to (not while weights are still being raised).
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


def resolve_device(device: str | torch.device) -> torch.device:
    """``"auto"`` is a CUDA device where there is one, else the CPU."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(device)


def resolve_batch_size(batch_size: int | str, n_rows: int) -> int:
    """``"auto"`` is a power of two near a 64th of the rows, between 64 and 512.

    >>> [resolve_batch_size("auto", n) for n in (500, 5_000, 30_000, 10**6)]
    [64, 64, 512, 512]
    """
    if batch_size != "auto":
        return int(batch_size)
    return int(2 ** round(math.log2(min(512, max(64, n_rows / 64)))))


def resolve_learning_rate(learning_rate: float | str, batch_size: int) -> float:
    """``"auto"`` is 0.002 at 64 rows a batch and grows with its cube root, to 0.004 at 512."""
    return 2e-3 * (batch_size / 64) ** (1 / 3) if learning_rate == "auto" else float(learning_rate)


def seeded_generator(seed: int | None) -> torch.Generator:
    """A generator of its own, so that training neither reads nor moves torch's global one."""
    generator = torch.Generator()
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed)
    return generator


@contextmanager
def one_thread(device: torch.device) -> Iterator[None]:
    """Small networks on a CPU are fastest on one thread, and give the same bits on any machine size."""
    threads = torch.get_num_threads()
    if device.type == "cpu":
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def batches(n_rows: int, batch_size: int, generator: torch.Generator, device: torch.device) -> Iterator[Tensor]:
    """Row numbers of the mini-batches of one epoch, in a new random order.

    Batches have nearly equal sizes, so that no small rest is left that would weigh as much as a full one.

    >>> [len(rows) for rows in batches(10, 4, seeded_generator(0), torch.device("cpu"))]
    [4, 3, 3]
    """
    order = torch.randperm(n_rows, generator=generator).to(device)
    yield from order.tensor_split(math.ceil(n_rows / batch_size))


def train(
    step: Step,
    state: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    n_rows: int,
    loop: Loop,
    generator: torch.Generator,
    device: torch.device,
    validate: Validate | None = None,
    progress: bool = False,
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

    Raises
    ------
    DivergenceError
        When a loss is not finite; `state` is then that of the last good epoch.
    """
    bar = _ProgressBar(loop.max_epochs) if progress else None
    rates = [group["lr"] for group in optimizer.param_groups]
    history: list[Epoch] = []
    good = _snapshot(state)
    best, best_epoch, best_criterion, waited = good, 0, math.inf, 0
    for number in range(1, loop.max_epochs + 1):
        _set_rates(optimizer, rates, loop, number)
        terms = _run_epoch(step, batches(n_rows, loop.batch_size, generator, device))
        if not all(map(math.isfinite, terms.values())):
            state.load_state_dict(good)
            raise DivergenceError(
                f"the loss was not finite in epoch {number} ({_describe(terms)}); the parameters are those "
                f"of epoch {number - 1}. Lower learning_rate or the weight of the term that is not finite."
            )
        good = _snapshot(state)
        outcome = validate(number) if validate is not None else Validation(criterion=-number)
        history.append(Epoch(number, terms, outcome.metrics))
        if bar is not None:
            bar.update({**terms, **outcome.metrics})
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
    if bar is not None:
        bar.close()
    return Outcome(tuple(history), best_epoch or len(history))


def _run_epoch(step: Step, rows_of_batches: Iterator[Tensor]) -> dict[str, float]:
    """Mean of each term over the mini-batches; the device is waited for once."""
    sums: dict[str, Tensor] = {}
    counts: dict[str, int] = {}
    for rows in rows_of_batches:
        for name, value in step(rows).items():
            sums[name] = sums[name] + value if name in sums else value
            counts[name] = counts.get(name, 0) + 1
    return {name: float(total) / counts[name] for name, total in sums.items()}


def _set_rates(optimizer: torch.optim.Optimizer, rates: list[float], loop: Loop, number: int) -> None:
    share = 1.0
    if loop.schedule == "cosine":
        share = 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * (number - 1) / loop.max_epochs))
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate * share


def _snapshot(state: nn.Module) -> dict[str, Any]:
    return deepcopy(state.state_dict())


def _describe(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items())


class _ProgressBar:
    """A bar on a terminal, plain lines in a pipe; always on standard error."""

    def __init__(self, total: int) -> None:
        self._total, self._done = total, 0
        self._bar: Any = None
        if sys.stderr.isatty():
            try:
                from tqdm import tqdm
            except ImportError:
                return
            self._bar = tqdm(total=total, unit="epoch", file=sys.stderr)

    def update(self, values: Mapping[str, float]) -> None:
        self._done += 1
        if self._bar is not None:
            self._bar.set_postfix({name: f"{value:.3g}" for name, value in values.items()}, refresh=False)
            self._bar.update()
        else:
            print(f"epoch {self._done}/{self._total}: {_describe(values)}", file=sys.stderr)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
