"""Fits that train their networks as one batched model.

A small network leaves nearly all of a GPU idle. `run_together` runs several fits in threads of which one runs
at a time, like coroutines: a fit runs until it needs an epoch of training, and waits. Once all fits wait, the
epoch is computed for all networks that can be stacked (`gcig.losses.stacked`). Early stopping, checkpoints
and weights therefore stay those of each fit, and a fit that stops leaves the stack. Methods with steps of
their own do not wait, so their fits run one after another.
"""

import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from gcig.engine.cuda_graph import in_parallel, make_step
from gcig.losses.objective import ObjectiveGradient
from gcig.losses.stacked import StackedGradient, stacking_key
from gcig.training.loop import Step, mean_terms
from gcig.training.runtime import one_thread

Result = TypeVar("Result")
_Terms = dict[str, float]
_ROW_TOLERANCE = 2  # mini-batches of networks that are stacked may differ by this many rows, as folds do


class _Local(threading.local):
    team: "_Team | None" = None
    number = 0  # of this thread's fit
    n_stages = 0  # how many networks, or stages of one, the fit has begun to train
    resumed = 0.0  # when the fit last began to run, in seconds


_local = _Local()


def run_together(fits: Sequence[Callable[[], Result]]) -> list[Result]:
    """Call functions that fit models, train their networks together, and return the results in order.

    An error of one of them is raised once all of them have ended.

    >>> run_together([team_size, lambda: 3]), team_size()
    ([2, 3], 1)
    """
    team = _Team(len(fits))
    results: list[Any] = [None] * len(fits)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        with team.turn:
            _local.team, _local.number, _local.resumed = team, number, time.perf_counter()
            try:
                if not team.stopped:
                    results[number] = fits[number]()
            except BaseException as error:
                errors.append(error)
            finally:
                team.step_aside()

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(fits))]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException:  # such as Ctrl-C, which the main thread receives
        team.stopped = True
        for thread in threads:
            if thread.ident is not None:  # it was started
                thread.join()
        raise
    if errors:
        raise errors[0]
    return results


def team_size() -> int:
    """Return how many fits this one runs together with, itself included."""
    return 1 if _local.team is None else _local.team.size


def running_seconds() -> float:
    """Return the time, in seconds, of a clock that stands still while this thread's fit waits for others.

    Epochs that are computed together count in equal shares.
    """
    now, team = time.perf_counter(), _local.team
    return now if team is None else team.seconds[_local.number] + now - _local.resumed


def share_steps(
    step: Step,
    gradient: ObjectiveGradient,
    parameters: list[nn.Parameter],
    *,
    load: Callable[[], Any],
    update: Callable[[], None],
) -> Step:
    """Return the step of a network in training, or one that the fits of `run_together` compute together.

    `step` does the same as `load`, `gradient` and `update` do one after another: `load` writes what changes
    from step to step (weights, learning rate), `update` changes the parameters by their gradient.
    """
    key = None if _local.team is None else stacking_key(gradient, parameters)
    if _local.team is None or key is None:
        return step
    _local.n_stages += 1
    kind = _local.n_stages, key
    return _SharedStep(step, _local.team, _local.number, kind, gradient, parameters[0], load, update)


@dataclass(frozen=True, eq=False)
class _SharedStep:
    """The training step of one of several networks that are trained together."""

    alone: Step
    team: "_Team"
    number: int  # of the fit
    kind: tuple[int, Hashable]  # the stage of the fit, and what its network and objective compute
    gradient: ObjectiveGradient
    parameter: nn.Parameter  # flat
    load: Callable[[], Any]
    update: Callable[[], None]

    def __call__(self, rows: Tensor) -> Mapping[str, Tensor]:
        """Run the step on a mini-batch, without the others."""
        return self.alone(rows)

    def run_epoch(self, batches: Iterator[Tensor]) -> _Terms:
        """Run the steps of an epoch, and return the mean of each term."""
        return self.team.run_epoch(self, list(batches))


class _Team:
    """The fits that run together; all but one wait for their turn.

    A thread holds `turn` while it runs, and releases it while it waits for an epoch.
    """

    def __init__(self, size: int) -> None:
        self.size, self.turn, self.stopped = size, threading.Condition(), False
        self.seconds = [0.0] * size  # by fit: how long it ran before it last waited
        self._n_awake = size
        self._waiting: dict[_SharedStep, list[Tensor]] = {}
        self._done: dict[_SharedStep, _Terms | BaseException] = {}
        self._stack: _Stack | None = None

    def run_epoch(self, step: _SharedStep, batches: list[Tensor]) -> _Terms:
        """Wait until the epoch of a network has been computed, and return the means of its terms."""
        self._waiting[step] = batches
        self.seconds[step.number] += time.perf_counter() - _local.resumed
        self.step_aside()
        while step not in self._done and not self.stopped:
            self.turn.wait(timeout=1.0)
        _local.resumed = time.perf_counter()
        if self.stopped:
            raise KeyboardInterrupt
        terms = self._done.pop(step)
        if isinstance(terms, BaseException):
            raise RuntimeError(
                f"training many networks together failed: {terms}. With as many jobs as trials, each "
                "network is trained alone."
            ) from terms
        return terms

    def step_aside(self) -> None:
        """Let the other fits run; if all of them wait or have ended, compute the epochs they wait for."""
        self._n_awake -= 1
        if self._n_awake or not self._waiting:
            return
        steps, start = self._choose(), time.perf_counter()
        try:
            with one_thread(steps[0].parameter.device):  # the fit of this thread may have ended
                found: Sequence[_Terms | BaseException] = self._compute(steps)
        except Exception as error:
            found = [error] * len(steps)
        for step, terms in zip(steps, found, strict=True):
            del self._waiting[step]
            self._done[step] = terms
            self.seconds[step.number] += (time.perf_counter() - start) / len(steps)
        self._n_awake += len(steps)
        self.turn.notify_all()

    def _choose(self) -> list[_SharedStep]:
        """Return the largest group of stackable networks among the fits at the earliest stage.

        Later fits wait, so that earlier ones can catch up and join them.
        """
        groups: list[list[_SharedStep]] = []
        first = min(step.kind[0] for step in self._waiting)
        for step in sorted(self._waiting, key=lambda step: step.number):  # whichever thread was first
            if step.kind[0] == first:
                like = (group for group in groups if self._are_alike(step, group[0]))
                if (group := next(like, None)) is None:
                    groups.append(group := [])
                group.append(step)
        return max(groups, key=len)

    def _are_alike(self, one: _SharedStep, other: _SharedStep) -> bool:
        """Return whether two networks can be stacked and have mini-batches of nearly the same sizes."""
        sizes = [list(map(len, self._waiting[step])) for step in (one, other)]
        if one.kind != other.kind or len(sizes[0]) != len(sizes[1]):
            return False
        return all(abs(own - its) <= _ROW_TOLERANCE for own, its in zip(*sizes, strict=True))

    def _compute(self, steps: list[_SharedStep]) -> list[_Terms]:
        batches = [self._waiting[step] for step in steps]
        if len(steps) == 1:
            return [mean_terms(steps[0].alone, iter(batches[0]))]
        if self._stack is None or self._stack.steps != steps:
            self._stack = _Stack(steps)
        return self._stack.run_epoch(batches)


class _Stack:
    """Networks whose steps are computed as one."""

    def __init__(self, steps: list[_SharedStep]) -> None:
        self.steps, self._n_rows = steps, 0
        self._gradient = StackedGradient(
            [step.gradient for step in steps], [step.parameter for step in steps]
        )
        recorded = all(step.gradient.can_be_recorded for step in steps)
        self._step = make_step(self._compute, self._load, self._gradient.generators, recorded=recorded)

    def run_epoch(self, batches: Sequence[Sequence[Tensor]]) -> list[_Terms]:
        """Run as many steps as every network has mini-batches, and return the mean terms of each.

        Folds may differ by a row, so mini-batches are cut to the smallest of a step.
        """
        values: dict[str, list[Tensor]] = {}
        for rows in zip(*batches, strict=True):
            self._n_rows = min(map(len, rows))
            for name, value in self._step(torch.stack([each[: self._n_rows] for each in rows])).items():
                values.setdefault(name, []).append(value)
        means = {name: torch.stack(each).mean(0).tolist() for name, each in values.items()}
        return [{name: each[number] for name, each in means.items()} for number in range(len(self.steps))]

    def _load(self) -> Hashable:
        for step in self.steps:
            step.load()
        self._gradient.load()
        return self._n_rows

    def _compute(self, rows: Tensor) -> Mapping[str, Tensor]:
        terms = self._gradient(rows)
        in_parallel([step.update for step in self.steps])
        return terms
