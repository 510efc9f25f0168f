"""Backends: where trials run. joblib runs them in this process, in worker processes, on Dask or on Ray."""

import threading
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeAlias

from joblib import Parallel, delayed, parallel_config, register_parallel_backend

from gcig._arguments import InputError
from gcig.benchmark.execution import failed_result, run_trial
from gcig.benchmark.fingerprints import code_fingerprints
from gcig.benchmark.store import RunError
from gcig.benchmark.tables import Table
from gcig.benchmark.trials import Trial, canonical_json
from gcig.methods.registry import METHODS, Method
from gcig.records import FoldResult
from gcig.training.runtime import resolve_device

BACKENDS = ("loky", "dask", "ray")
_CONNECT_SECONDS = 30
_IDLE_SECONDS = 15  # then a worker ends, also one whose driver was killed
_ONE_AT_A_TIME = threading.Lock()  # a trial sets the threads and warning filters of its whole process

Outcome: TypeAlias = tuple[Trial, FoldResult]
Stream: TypeAlias = Callable[[Iterable[Any]], Generator[Outcome]]


@dataclass(frozen=True)
class Backend:
    """A backend of joblib: "loky", processes of this machine, or a running "dask" or "ray" cluster.

    ``jobs`` is the number of loky's processes; with one, trials run in this process. A cluster uses all of
    its workers. Without its ``address``, it is the one that the caller's ``distributed.Client`` or
    ``ray.init`` is connected to.
    """

    name: str = "loky"
    jobs: int = 1
    address: str | None = None

    def __post_init__(self) -> None:
        if self.name not in BACKENDS:
            raise InputError(
                f"is {self.name!r}, which does not exist. Choose from {', '.join(BACKENDS)}.",
                argument="backend",
            )
        if self.jobs < 1:
            raise InputError(f"must be at least 1, got {self.jobs}.", argument="jobs")
        if self.address is not None and self.name == "loky":
            raise InputError(
                "names a cluster, but the backend is 'loky'. Choose the backend dask or ray as well.",
                argument="address",
            )

    def run(self, trials: Iterable[Trial], tables: Mapping[str, Table]) -> Generator[Outcome]:
        """Run the trials, each with the table that it names, and yield their results as they arrive.

        ``trials`` may be an iterator, which is advanced when a worker is free, in any thread. If a worker of
        this machine dies, the trials that were running are repeated one at a time: a trial that then kills
        its worker again has failed. On a cluster, a death that the cluster does not make good ends the run
        with a `RunError`. Closing the generator stops the trials that are running.
        """
        with self._connect() as stream:
            if self.name == "loky":
                yield from _run_on_this_machine(trials, tables, stream)
                return
            try:
                yield from stream(_calls(trials, tables))
            except RunError:
                raise
            except Exception as error:  # each cluster has errors of its own; those of trials are results
                raise RunError(
                    f"the {self.name} cluster could not finish the run: {_describe(error)}. Finished trials "
                    "are kept if the run has a folder. Run the same command again to resume."
                ) from error

    @contextmanager
    def _connect(self) -> Iterator[Stream]:
        """Yield the function that makes calls and yields their results."""
        if self.name == "dask":
            with _dask_client(self.address) as client:
                yield partial(_stream, name="dask", client=client, wait_for_workers_timeout=_CONNECT_SECONDS)
        elif self.name == "ray":
            with _ray_connection(self.address):
                yield partial(_stream, name="ray")
        else:
            yield partial(_stream, name="loky", jobs=self.jobs, idle_worker_timeout=_IDLE_SECONDS)


IN_PROCESS = Backend()


def device_parameters(device: str, backend: Backend) -> dict[str, str]:
    """Return the parameter that moves trials to a device; none for the CPU, which they use by default.

    The device must exist if the backend runs on this machine.

    >>> device_parameters("cpu", IN_PROCESS)
    {}
    """
    if backend.name == "loky":
        device = str(resolve_device(device))
    return {} if device == "cpu" else {"device": device}


def _stream(calls: Iterable[Any], name: str, jobs: int = -1, **options: Any) -> Generator[Outcome]:
    """Make the calls, one whenever a worker is free, and yield their results as they arrive."""
    with parallel_config(name, n_jobs=jobs, **options):
        parallel = Parallel(
            batch_size=1, pre_dispatch="n_jobs", return_as="generator_unordered", max_nbytes=None
        )
    outcomes = parallel(calls)
    try:
        for outcome in outcomes:  # noqa: UP028 - `yield from` would close them outside of the filter
            yield outcome
    finally:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "(?s).*You could benefit")  # the calls that this cancels
            outcomes.close()


def _run_on_this_machine(
    trials: Iterable[Trial], tables: Mapping[str, Table], stream: Stream
) -> Generator[Outcome]:
    """Run the trials. A pool whose worker died is broken, so each round has a pool of its own."""
    waiting = iter(trials)
    running: deque[Trial] = deque()

    def take() -> Iterator[Trial]:
        for trial in waiting:
            running.append(trial)
            yield trial

    while True:
        try:
            with closing(stream(_calls(take(), tables))) as outcomes:
                for trial, result in outcomes:
                    running.remove(trial)
                    yield trial, result
            return
        except BrokenProcessPool:
            while running:
                trial = running.popleft()
                try:
                    yield from stream(_calls([trial], tables))
                except BrokenProcessPool as error:
                    cause = f"the process that ran it died twice: {error}"
                    yield trial, failed_result(trial, cause, worker_died=True)


def _calls(trials: Iterable[Trial], tables: Mapping[str, Table]) -> Iterator[Any]:
    for trial in trials:
        yield delayed(_run)(trial, METHODS.get(trial.method), tables[trial.dataset], _fingerprint())


def _run(trial: Trial, method: Method | None, table: Table, fingerprint: str) -> Outcome:
    """Run a trial in a process that may not have the driver's method among its own."""
    if fingerprint != _fingerprint():
        raise RunError(
            "the workers of the cluster have another version of gcig than this process, so their results "
            "could differ. Install the same version on all machines."
        )
    if method is not None and method.key not in METHODS:
        METHODS.add(method.key, method, overwrite=True)
    with _ONE_AT_A_TIME:
        return trial, run_trial(trial, table)


@cache
def _fingerprint() -> str:
    """Return a text that is equal in two processes if their code gives the same results."""
    return canonical_json(code_fingerprints())


@contextmanager
def _dask_client(address: str | None) -> Iterator[Any]:
    """Connect to the scheduler at an address, or yield the client that the caller has."""
    try:
        from distributed import Client, get_client
    except ImportError as error:
        raise _missing("dask") from error
    try:
        client = get_client() if address is None else Client(address, timeout=_CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        raise _unreachable("dask", address, "`dask scheduler` and `dask worker`", error) from error
    try:
        yield client
    finally:
        if address is not None:
            client.close()


@contextmanager
def _ray_connection(address: str | None) -> Iterator[None]:
    """Connect to the cluster at an address, or use the caller's connection."""
    try:
        import ray
        from ray.util.joblib.ray_backend import RayBackend
    except ImportError as error:
        raise _missing("ray") from error

    class Streaming(RayBackend):
        # joblib's pool of processes cannot yield results as they arrive, and Ray's inherits its flag; it can.
        supports_return_generator = True

    register_parallel_backend("ray", Streaming)
    ours = address is not None and not ray.is_initialized()
    try:
        if ours:
            ray.init(address, log_to_driver=False)
        elif not ray.is_initialized():
            raise ConnectionError("ray.init was not called")
    except (OSError, ValueError, RuntimeError) as error:
        raise _unreachable("ray", address, "`ray start --head`", error) from error
    try:
        yield
    finally:
        if ours:
            ray.shutdown()


def _missing(name: str) -> RunError:
    return RunError(
        f"the backend {name!r} needs packages that this environment does not have. Run: pip install "
        f"'gcig[{name}]', or choose the backend loky."
    )


def _unreachable(name: str, address: str | None, start: str, error: Exception) -> RunError:
    where = "" if address is None else f" at {address}"
    return RunError(
        f"there is no connection to a {name} cluster{where}: {_describe(error)}. Start one with {start}, and "
        "pass its address."
    )


def _describe(error: Exception) -> str:
    """Return the type of an error and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__
