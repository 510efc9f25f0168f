"""Training steps recorded as CUDA graphs: one launch per mini-batch in place of hundreds of kernels.

A step of a small network takes less time on a GPU than the launches of its kernels take on the CPU. A
recorded step is launched as a whole, and nothing waits for the device until the values of an epoch are read.
"""

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from gcig._warnings import warn_caller

Step = Callable[[Tensor], Mapping[str, Tensor]]
Result = TypeVar("Result")


class _Fork(threading.local):
    """The state of this thread: `active` while it records a step or prepares for it, streams of branches."""

    def __init__(self) -> None:
        super().__init__()
        self.active, self.branches = False, dict[int, list[torch.cuda.Stream]]()  # by device


_fork = _Fork()


def in_parallel(tasks: Sequence[Callable[[], Result]]) -> list[Result]:
    """Return the results of tasks that do not depend on each other; in a recording they are branches.

    A chain of small kernels leaves nearly all of a GPU idle, and a GPU runs the branches of a graph at the
    same time. A task must contain the backward pass of its own operations, and the caller must keep what the
    tasks use until they are done: memory that is freed is used again in the order of one branch.
    """
    if not forks() or len(tasks) < 2:
        return [task() for task in tasks]
    branches = _fork.branches.setdefault(torch.cuda.current_device(), [])
    while len(branches) < len(tasks):
        branches.append(torch.cuda.Stream())
    current, results = torch.cuda.current_stream(), []
    for task, branch in zip(tasks, branches, strict=False):
        branch.wait_stream(current)
        with torch.cuda.stream(branch):
            results.append(task())
    for branch in branches[: len(tasks)]:
        current.wait_stream(branch)
    return results


def forks() -> bool:
    """Return whether this thread records a step, or prepares for it: tasks are then run in parallel."""
    return _fork.active


@contextmanager
def _forking() -> Iterator[None]:
    _fork.active = True
    try:
        yield
    finally:
        _fork.active = False


class _Recording(NamedTuple):
    graph: torch.cuda.CUDAGraph
    rows: Tensor
    names: tuple[str, ...]
    values: Tensor


class RecordedStep:
    """A step function whose operations are recorded once per kind of mini-batch, and then repeated.

    Parameters
    ----------
    step : callable
        Maps the row numbers of a mini-batch to the values of its terms, detached scalars. Whatever changes
        from call to call must be a tensor that keeps its place in memory: a number is recorded as it is.
    load : callable
        Runs before every step, outside the recording: it writes values that have changed (learning rate,
        weights) into their tensors, and returns what decides which operations the step consists of. Each
        such kind, and each size of a mini-batch, is recorded on its own.
    generators : sequence of torch.Generator
        The CUDA generators that the step draws from, besides torch's own.
    """

    def __init__(
        self, step: Step, load: Callable[[], Hashable], generators: Sequence[torch.Generator] = ()
    ) -> None:
        self._step, self._load, self._generators = step, load, generators
        self._recordings: dict[Hashable, _Recording | None] = {}
        self._pool: Any = None  # of memory, shared by the recordings
        self._stream: Any = None  # of the device of the rows
        self.fails = False

    def __call__(self, rows: Tensor) -> Mapping[str, Tensor]:
        """Run the step on some rows."""
        with torch.cuda.device(rows.device):
            self._stream = self._stream or torch.cuda.Stream()
            return self._run(rows, (len(rows), self._load()))

    def _run(self, rows: Tensor, kind: Hashable) -> Mapping[str, Tensor]:
        if self.fails:
            return self._step(rows)
        if kind not in self._recordings:
            # The first step of a kind allocates what is kept, and loads kernels, which cannot be recorded.
            self._recordings[kind] = None
            return self._run_aside(rows)
        recording = self._recordings[kind]
        if recording is None:
            recording = self._record(rows)
            if recording is None:
                return self._step(rows)
            self._recordings[kind] = recording
        recording.rows.copy_(rows)
        recording.graph.replay()
        return dict(zip(recording.names, recording.values.clone().unbind(), strict=True))

    def _run_aside(self, rows: Tensor) -> Mapping[str, Tensor]:
        """Run the step on the stream that it is recorded on."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream), _forking():
            terms = self._step(rows)
        torch.cuda.current_stream().wait_stream(self._stream)
        return terms

    def _record(self, rows: Tensor) -> _Recording | None:
        graph, own = torch.cuda.CUDAGraph(), rows.clone()
        for generator in self._generators:
            graph.register_generator_state(generator)
        try:
            # Other threads may use the device meanwhile.
            record = torch.cuda.graph(
                graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
            )
            with record, _forking():
                terms = self._step(own)
                values = torch.stack([value.float() for value in terms.values()])
        except RuntimeError as error:
            self.fails = True
            torch.cuda.synchronize()
            for generator in self._generators:  # they still wait for the end of the recording
                generator.graphsafe_set_state(generator.clone_state())
            warn_caller(
                f"the training step could not be recorded as a CUDA graph ({error}), so it runs operation by "
                "operation, which takes several times as long for a small network. A term or a module that "
                "reads a value of the device (float(), .item(), boolean indexing) is the usual reason."
            )
            return None
        self._pool = self._pool or graph.pool()
        return _Recording(graph, own, tuple(terms), values)


def make_step(
    compute: Step, load: Callable[[], Hashable], generators: Sequence[torch.Generator], *, recorded: bool
) -> Step:
    """Return a step that loads what has changed and computes; recorded as CUDA graphs if it can be.

    See `RecordedStep` for the parameters.
    """
    if recorded:
        return RecordedStep(compute, load, generators)

    def step(rows: Tensor) -> Mapping[str, Tensor]:
        load()
        return compute(rows)

    return step
