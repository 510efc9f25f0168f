"""Training steps recorded as CUDA graphs: one launch per mini-batch instead of hundreds of kernel launches.

For a small network, launching the kernels from the CPU takes longer than running them on the GPU. A recorded
step is launched as a whole, and nothing waits for the device until the values of an epoch are read.
"""

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gcig._warnings import warn_caller
from gcig.core.layered import LayeredNetwork

Step = Callable[[Tensor], Mapping[str, Tensor]]


class _Fork(threading.local):
    """Per-thread state while a step is recorded or warmed up: the next free stream; otherwise None.

    `most` is one more than the last stream that the current task used: its siblings need others.
    """

    def __init__(self) -> None:
        super().__init__()
        self.depth: int | None = None
        self.most = 0


_fork = _Fork()
# PyTorch records one graph at a time per process. All threads share the streams of recordings, because
# PyTorch reuses a pool of 32 streams per priority, and a stream that another thread uses cannot be recorded.
_one_at_a_time = threading.Lock()
_streams: dict[int, list[torch.cuda.Stream]] = {}  # by device


def _stream(number: int) -> torch.cuda.Stream:
    streams = _streams.setdefault(torch.cuda.current_device(), [])
    while len(streams) <= number:
        streams.append(torch.cuda.Stream(priority=-1))  # from a pool that other code rarely uses
    return streams[number]


def in_parallel(tasks: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run independent tasks and return their results; in a recording, each task is a branch of the graph.

    A chain of small kernels leaves most of a GPU idle, and the branches of a graph run at the same time. The
    last task runs on the current stream; the others must include the backward pass of their own operations.
    The caller must keep the tensors that the tasks use until all of them are done, because memory that one
    branch frees may be reused while another branch runs.
    """
    first = _fork.depth
    if first is None or len(tasks) < 2:
        return [task() for task in tasks]
    current, results = torch.cuda.current_stream(), list[Any]()
    branches = [_stream(first + number) for number in range(len(tasks) - 1)]
    before, _fork.depth, _fork.most = _fork.most, first + len(branches), first + len(branches)
    try:
        for branch in branches:
            branch.wait_stream(current)
        for task, branch in zip(tasks, branches, strict=False):
            with torch.cuda.stream(branch):
                results.append(task())
            _fork.depth = _fork.most
        results.append(tasks[-1]())
        for branch in branches:
            current.wait_stream(branch)
    finally:
        _fork.depth, _fork.most = first, max(before, _fork.most)
    return results


def forks() -> bool:
    """Return whether this thread is recording a step or warming up for it, so that tasks are branches."""
    return _fork.depth is not None


@contextmanager
def _forking() -> Iterator[None]:
    """Let tasks be branches, and backward passes run in this thread, with its own handle of cuBLAS."""
    _fork.depth = 1  # the first stream is that of the step itself
    try:
        with torch.autograd.set_multithreading_enabled(False):
            yield
    finally:
        _fork.depth = None


@contextmanager
def _own_workspaces() -> Iterator[None]:
    """Let matrix products of a recording use memory that belongs to the recording alone.

    PyTorch keeps a workspace of cuBLAS per handle and stream, outside recordings. All recordings are made on
    the same streams, so they would share it: two that run at the same time would overwrite each other's
    partial sums. A workspace that is created during a recording is part of its memory pool.
    """
    torch._C._cuda_clearCublasWorkspaces()
    try:
        yield
    finally:
        torch._C._cuda_clearCublasWorkspaces()


class _Recording(NamedTuple):
    graph: torch.cuda.CUDAGraph
    rows: Tensor
    names: tuple[str, ...]
    values: Tensor


class RecordedStep:
    """A step function whose operations are recorded once per kind of mini-batch, and then replayed.

    Parameters
    ----------
    step : callable
        Maps the row numbers of a mini-batch to the values of its terms, detached scalars. Whatever changes
        between calls must be a tensor at a fixed address; a Python number is recorded as a constant.
    load : callable
        Runs before every step, outside the recording. It writes changed values (learning rate, weights) to
        their tensors, and returns a key that determines the operations of the step. Each key and each size of
        a mini-batch has its own recording.
    generators : sequence of torch.Generator
        The CUDA generators that the step draws from, besides the default one.
    """

    def __init__(
        self, step: Step, load: Callable[[], Hashable], generators: Sequence[torch.Generator] = ()
    ) -> None:
        self._step, self._load, self._generators = step, load, generators
        self._recordings: dict[Hashable, _Recording | None] = {}
        self._pool: Any = None  # the memory pool that the recordings share
        self.fails = False

    def __call__(self, rows: Tensor) -> Mapping[str, Tensor]:
        """Run the step on some rows."""
        with torch.cuda.device(rows.device):
            return self._run(rows, (len(rows), self._load()))

    def _run(self, rows: Tensor, kind: Hashable) -> Mapping[str, Tensor]:
        if self.fails:
            return self._step(rows)
        if kind not in self._recordings:
            # The first step of a kind allocates kept arrays and loads kernels, which cannot be recorded.
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
        stream, current = _stream(0), torch.cuda.current_stream()
        with _one_at_a_time:
            stream.wait_stream(current)
            with torch.cuda.stream(stream), _forking():
                terms = self._step(rows)
            current.wait_stream(stream)
        for value in terms.values():  # its memory may be used again on its own stream, also by other threads
            value.record_stream(current)
        return terms

    def _record(self, rows: Tensor) -> _Recording | None:
        graph, own = torch.cuda.CUDAGraph(), rows.clone()
        for generator in self._generators:
            graph.register_generator_state(generator)
        try:
            # Other threads may use the device during the recording.
            record = torch.cuda.graph(
                graph, pool=self._pool, stream=_stream(0), capture_error_mode="thread_local"
            )
            with _one_at_a_time, record, _own_workspaces(), _forking():
                terms = self._step(own)
                values = torch.stack([value.float() for value in terms.values()])
            # The state of random numbers was prepared on the stream of the recording.
            torch.cuda.current_stream().wait_stream(_stream(0))
        except RuntimeError as error:
            self.fails = True
            torch.cuda.synchronize()
            for generator in self._generators:  # they are still registered with the failed recording
                generator.graphsafe_set_state(generator.clone_state())
            warn_caller(
                f"the training step could not be recorded as a CUDA graph ({error}), so it runs operation by "
                "operation, which takes several times as long for a small network. A term or a module that "
                "reads a value of the device (float(), .item(), boolean indexing) is the usual reason."
            )
            return None
        self._pool = self._pool or graph.pool()
        return _Recording(graph, own, tuple(terms), values)


def can_be_recorded(network: nn.Module) -> bool:
    """Return whether the passes of a network consist of the same operations every time.

    This is certain for a layered network on a GPU without dropout; other modules may branch on values.
    """
    random = any(isinstance(part, nn.Dropout) for part in network.modules())
    on_device = all(parameter.is_cuda for parameter in network.parameters())
    return on_device and not random and LayeredNetwork.recognise(network) is not None


def make_step(
    compute: Step, load: Callable[[], Hashable], generators: Sequence[torch.Generator] = (), *, recorded: bool
) -> Step:
    """Return a step that calls `load`, then `compute`, as CUDA graphs if `recorded`; see `RecordedStep`."""
    if recorded:
        return RecordedStep(compute, load, generators)

    def step(rows: Tensor) -> Mapping[str, Tensor]:
        load()
        return compute(rows)

    return step
