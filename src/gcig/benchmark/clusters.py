"""Clusters: backends that run trials, or train a trade-off, on Dask or Ray.

A cluster that the library starts has one process per job and listens on the loopback interface only. On a
running cluster, every worker needs the same version of gcig. If a worker sees the folder of the run, it
stores its results there itself; otherwise the driver stores them as they arrive.
"""

import logging
import os
import pickle
import sys
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeAlias, cast

import torch

from gcig._validation import InputError
from gcig._warnings import warn_caller
from gcig.benchmark.backends import (
    RETRIES,
    Backend,
    LocalBackend,
    Outcome,
    Work,
    WorkerDeath,
    check_jobs,
    work_in_worker,
)
from gcig.benchmark.store import RunError, code_fingerprints
from gcig.benchmark.trials import Table, Trial, canonical_json
from gcig.methods.fairx.estimator import FairXClassifier
from gcig.methods.fairx.tradeoff import TradeOff
from gcig.methods.registry import METHODS, Method
from gcig.records import FoldResult

BACKENDS = ("local", "dask", "ray")
_LOOPBACK = "127.0.0.1"
_CONNECT_SECONDS = 30
_ONE_AT_A_TIME = threading.Lock()  # a trial sets the threads and warning filters of its whole process

Submit: TypeAlias = Callable[[Sequence[Trial], Work], Iterator[tuple[Trial, Outcome]]]
"""The function that hands trials to a connected cluster and yields their outcomes as they arrive."""


def make_backend(backend: str | Backend = "local", *, jobs: int = 1, address: str | None = None) -> Backend:
    """Return the backend with a name: "local", "dask" or "ray"; a `Backend` is returned as it is.

    Without the ``address`` of a running cluster, Dask and Ray start one with ``jobs`` processes.

    >>> make_backend("dask", jobs=2)
    DaskBackend(jobs=2, address=None)
    """
    if not isinstance(backend, str):
        return backend
    if backend not in BACKENDS:
        raise InputError(f"there is no backend {backend!r}. Choose from {', '.join(BACKENDS)}.")
    if backend == "dask":
        return DaskBackend(jobs, address)
    if backend == "ray":
        return RayBackend(jobs, address)
    if address is not None:
        raise InputError(
            "names a cluster, but the backend is 'local'. Choose the backend dask or ray as well.",
            argument="address",
        )
    return LocalBackend(jobs)


@dataclass(frozen=True)
class ClusterBackend(ABC):
    """A backend that submits all trials to a cluster, which repeats the trials of workers that died.

    After several deaths a cluster cannot tell the trial that kills its worker from trials that were queued on
    the same worker. Such trials are therefore repeated one at a time after all others, and only a trial that
    fails alone is recorded as the death of its worker.
    """

    jobs: int = 1
    address: str | None = None

    def __post_init__(self) -> None:
        check_jobs(self.jobs)

    def run(
        self, trials: Sequence[Trial], tables: Mapping[str, Table], work: Work
    ) -> Generator[tuple[Trial, Outcome]]:
        """Run the trials on the cluster, and yield the outcomes as they arrive."""
        if not trials:
            return
        names = dict.fromkeys(trial.dataset for trial in trials)
        suspects = []
        with self._connect({name: pickle.dumps(tables[name]) for name in names}) as submit:
            for trial, outcome in submit(trials, work):
                if isinstance(outcome, WorkerDeath):
                    suspects.append(trial)
                else:
                    yield trial, outcome
            for trial in suspects:
                yield from submit([trial], work)

    @abstractmethod
    def _connect(self, tables: Mapping[str, bytes]) -> AbstractContextManager[Submit]:
        """Connect to the cluster, or start one, and send it the pickled tables."""


@dataclass(frozen=True)
class DaskBackend(ClusterBackend):
    """Runs trials on a Dask cluster (the extra ``gcig[dask]``)."""

    @contextmanager
    def _connect(self, tables: Mapping[str, bytes]) -> Iterator[Submit]:
        try:
            import dask
            from distributed import Client
        except ImportError as error:
            raise _missing("dask", "dask and distributed") from error
        settings = {
            "distributed.scheduler.allowed-failures": RETRIES,
            "distributed.admin.large-graph-warning-threshold": "1GB",  # tables are arguments of tasks
        }
        with dask.config.set(settings), self._cluster() as cluster:
            try:
                client = Client(cluster, timeout=_CONNECT_SECONDS)
            except (OSError, ValueError) as error:
                raise _unreachable("Dask", cluster, error) from error
            with client:
                # A task's result is computed again if its worker dies; scattered data would be lost.
                held = {name: client.submit(bytes, data, pure=False) for name, data in tables.items()}
                yield partial(_submit_to_dask, client, held)

    @contextmanager
    def _cluster(self) -> Iterator[Any]:
        """Yield the address of the running cluster, or a cluster that lasts for the block."""
        if self.address is not None:
            yield self.address
            return
        from distributed import LocalCluster

        with LocalCluster(
            n_workers=self.jobs,
            threads_per_worker=1,
            host=_LOOPBACK,
            dashboard_address=f"{_LOOPBACK}:0",
            memory_limit=0,  # Dask would pause or restart a worker in the middle of a trial
            silence_logs=logging.CRITICAL,
        ) as cluster:
            yield cluster


def _submit_to_dask(
    client: Any, tables: Mapping[str, Any], trials: Sequence[Trial], work: Work
) -> Iterator[tuple[Trial, Outcome]]:
    from distributed import CancelledError, KilledWorker, as_completed

    futures = {
        client.submit(_run_remotely, work, *_task(trial, tables), pure=False): trial for trial in trials
    }
    try:
        for future in as_completed(list(futures)):
            trial = futures.pop(future)
            try:
                yield trial, future.result()
            except KilledWorker:
                yield trial, WorkerDeath("the Dask workers that ran it died, probably for lack of memory")
            except (CancelledError, OSError) as error:
                raise _lost("Dask", error) from error
    finally:
        client.cancel(list(futures))


@dataclass(frozen=True)
class RayBackend(ClusterBackend):
    """Runs trials on a Ray cluster (the extra ``gcig[ray]``), or through the caller's connection to one."""

    @contextmanager
    def _connect(self, tables: Mapping[str, bytes]) -> Iterator[Submit]:
        try:
            import ray
        except ImportError as error:
            raise _missing("ray", "ray") from error
        ours = not ray.is_initialized()
        quiet = {"log_to_driver": False, "logging_level": logging.CRITICAL}
        try:
            if ours and self.address is None:
                _start_ray(ray, num_cpus=self.jobs, **quiet)
            elif ours:
                ray.init(self.address, **quiet)
        except (OSError, ValueError, RuntimeError) as error:
            raise _unreachable("Ray", self.address or "this machine", error) from error
        try:
            held = {name: ray.put(data) for name, data in tables.items()}
            yield partial(_submit_to_ray, ray, held)
        finally:
            if ours:
                ray.shutdown()


def _submit_to_ray(
    ray: Any, tables: Mapping[str, Any], trials: Sequence[Trial], work: Work
) -> Iterator[tuple[Trial, Outcome]]:
    errors = ray.exceptions
    task = ray.remote(num_cpus=1, max_retries=RETRIES)(_run_remotely)
    held = ray.put(work)
    pending = {task.remote(held, *_task(trial, tables)): trial for trial in trials}
    try:
        while pending:
            (reference,), _ = ray.wait(list(pending), num_returns=1)
            trial = pending.pop(reference)
            try:
                yield trial, ray.get(reference)
            except (errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError):
                yield trial, WorkerDeath("the Ray workers that ran it died, probably for lack of memory")
            except errors.RayTaskError as error:  # an error of the run: the one that the worker raised
                raise error.cause from None
            except errors.RayError as error:
                raise _lost("Ray", error) from error
    finally:
        for reference in pending:
            ray.cancel(reference, force=True)


def _start_ray(ray: Any, **options: Any) -> None:
    """Start Ray on this machine, on the loopback interface only.

    Ray binds to all interfaces unless clusters are disabled: by a constant in this process, and by an
    environment variable in the processes that it starts.
    """
    constants = ray._private.ray_constants
    before, environment = constants.ENABLE_RAY_CLUSTER, dict(os.environ)
    constants.ENABLE_RAY_CLUSTER = False
    os.environ[constants.ENABLE_RAY_CLUSTERS_ENV_VAR] = "0"
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))  # methods may be in any module
    try:
        ray.init("local", include_dashboard=False, **options)
    finally:
        constants.ENABLE_RAY_CLUSTER = before
        os.environ.clear()
        os.environ.update(environment)
    if not (address := ray.util.get_node_ip_address()).startswith("127."):
        ray.shutdown()
        raise RunError(
            f"Ray would listen on {address}, where other machines can reach it. Start a cluster yourself and "
            "name its address, or choose the backend dask."
        )


def _task(trial: Trial, tables: Mapping[str, Any]) -> tuple[Trial, Method | None, Any, str]:
    return trial, METHODS.get(trial.method), tables[trial.dataset], _fingerprint()


def _run_remotely(
    work: Work, trial: Trial, method: Method | None, table: bytes, fingerprint: str
) -> FoldResult | None:
    """Run a trial on a worker of a cluster."""
    if fingerprint != _fingerprint():
        raise RunError(
            "the workers of the cluster have another version of gcig than this process, so their results "
            "could differ. Install the same version on all machines."
        )
    with _ONE_AT_A_TIME:
        return work_in_worker(work, trial, method, pickle.loads(table))


@cache
def _fingerprint() -> str:
    """Return a text that is equal in two processes if their code gives the same results."""
    return canonical_json(code_fingerprints())


def _missing(extra: str, packages: str) -> RunError:
    return RunError(
        f"the backend {extra!r} needs {packages}, which this environment does not have. Run: pip install "
        f"'gcig[{extra}]', or choose the backend local."
    )


def _unreachable(kind: str, address: Any, error: Exception) -> RunError:
    return RunError(
        f"there is no connection to a {kind} cluster at {address}: {_first_line(error)}. Check the address "
        "and that the cluster runs, or leave the address out to start one on this machine."
    )


def _lost(kind: str, error: Exception) -> RunError:
    return RunError(
        f"the connection to the {kind} cluster was lost: {_first_line(error)}. Finished trials are kept if "
        "the run has a folder. Run the same command again to resume."
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def train_family(
    estimator: FairXClassifier,
    X: Any,
    y: Any,
    *,
    sensitive_features: Any,
    sample_weight: Any = None,
    measured_on: Mapping[str, Any] | None = None,
    backend: str | Backend = "local",
    address: str | None = None,
) -> TradeOff:
    """Train the family of `FairXClassifier.path` in this process or on a worker of a cluster.

    Every model of a family starts at its neighbour, so a family is one trial.

    Parameters
    ----------
    estimator : FairXClassifier
    X, y, sensitive_features, sample_weight
        As in `FairXClassifier.path`.
    measured_on : mapping, optional
        Arguments of `TradeOff.measure`, if the models are to be measured on other rows.
    backend, address
        As in `gcig.compare`. Every backend gives the same family, to the last bit, on the same kind of
        processor with the same versions.

    Examples
    --------
    >>> import gcig
    >>> data = gcig.load_dataset("german", include_sensitive=False)
    >>> model = gcig.FairXClassifier(max_epochs=1, random_state=0)
    >>> family = train_family(model, data.X, data.y, sensitive_features=data.sensitive_features)
    >>> family.models[0].predict(data.X).shape
    (1000,)
    """
    fitted_on = {"X": X, "y": y, "sensitive_features": sensitive_features, "sample_weight": sample_weight}
    place = make_backend(backend, address=address)
    if isinstance(place, LocalBackend):
        return _train(estimator, fitted_on, measured_on)
    trial = Trial(dataset="family", data_hash="", method="fairx")
    rows = {trial.dataset: cast("Table", (fitted_on, measured_on))}
    work = cast("Work", partial(_train_in_worker, estimator, torch.get_num_threads()))
    with closing(place.run([trial], rows, work)) as outcomes:
        (_, outcome), *_ = outcomes
    if isinstance(outcome, WorkerDeath):
        raise RunError(f"the family was not trained: {outcome.cause}. Run it again, or use fewer rows.")
    family, caught = cast("tuple[TradeOff, list[Warning]]", outcome)
    for each in caught:
        warn_caller(each)
    return family


def _train(
    estimator: FairXClassifier, fitted_on: Mapping[str, Any], measured_on: Mapping[str, Any] | None
) -> TradeOff:
    family = estimator.path(**fitted_on)
    return family if measured_on is None else family.measure(**measured_on)


def _train_in_worker(
    estimator: FairXClassifier, n_threads: int, _: Trial, rows: Any
) -> tuple[TradeOff, list[Warning]]:
    """Return the family and the warnings of its training, for the caller to issue.

    `n_threads` is that of the caller, because the number may change the last bits of measurements.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            family = _train(estimator, *rows)
    finally:
        torch.set_num_threads(before)
    return family, [each.message for each in caught if isinstance(each.message, Warning)]
