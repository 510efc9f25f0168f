import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

import gcig
from gcig._arguments import InputError
from gcig.benchmark import backends
from gcig.benchmark.backends import Backend
from gcig.benchmark.results import csv_text, results_frame
from gcig.benchmark.runner import run_trials
from gcig.benchmark.store import RunError, RunStore
from support.small_runs import (
    QUICK,
    KilledOnceClassifier,
    registered,
    small_store,
    small_table,
    small_trials,
)

TABLE = small_table()
TESTS = Path(__file__).parents[1]
SHELL = [sys.executable, "-c", "import sys; from gcig.cli import main; sys.exit(main(sys.argv[1:]))"]
CLUSTERS = ["dask", "ray"]
IMPORTS = os.pathsep.join([str(Path(gcig.__file__).parents[1]), str(TESTS)])


@pytest.fixture(scope="module", params=CLUSTERS)
def cluster(request, tmp_path_factory):
    """Start two workers on this machine; return kind, address, and the path of `KilledOnceClassifier`."""
    pytest.importorskip({"dask": "distributed"}.get(request.param, request.param))
    killed = tmp_path_factory.mktemp("cluster") / "killed"
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("GCIG_KILLED", str(killed))
        environment.setenv("PYTHONPATH", IMPORTS)
        if request.param == "dask":
            from distributed import LocalCluster

            with LocalCluster(
                n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
            ) as started:
                yield "dask", started.scheduler_address, killed
            return
        import ray

        ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)
        try:
            yield "ray", ray.get_runtime_context().gcs_address, killed
        finally:
            ray.shutdown()


def stored(folder):
    """Return the content of every stored trial without its time and the checksum that depends on it."""
    found = {}
    for file in sorted((folder / "trials").iterdir()):
        content = json.loads(file.read_bytes())
        del content["sha256"], content["result"]["fit_seconds"]
        found[file.name] = json.dumps(content).encode()
    return found


def as_csv(results):
    return csv_text(results_frame([replace(result, fit_seconds=0.0) for result in results])).encode()


@pytest.mark.slow
def test_a_cluster_gives_the_bytes_of_the_local_run(tmp_path, cluster):
    kind, address, _ = cluster
    trials = small_trials(TABLE)
    backend = Backend(kind, address=address)
    on_cluster = run_trials(trials, [TABLE], small_store(tmp_path / "cluster", TABLE), backend=backend)
    local = run_trials(trials, [TABLE], small_store(tmp_path / "local", TABLE))
    assert as_csv(on_cluster) == as_csv(local)
    assert stored(tmp_path / "cluster") == stored(tmp_path / "local")


@pytest.mark.slow
def test_python_and_the_shell_use_a_running_cluster(tmp_path, cluster):
    kind, address, _ = cluster
    data = {"sensitive_features": TABLE.sensitive_features, "methods": ["unconstrained"], "folds": 2}
    quick = {"parameters": {"unconstrained": QUICK}}
    found = gcig.compare(TABLE.X, TABLE.y, **data, **quick, backend=kind, address=address)
    assert as_csv(found.results) == as_csv(gcig.compare(TABLE.X, TABLE.y, **data, **quick).results)

    file = tmp_path / "people.csv"
    TABLE.X.assign(sex=TABLE.sensitive_features, y=TABLE.y).to_csv(file, index=False)
    command = ["compare", str(file), "--target", "y", "--sensitive", "sex", "--methods", "unconstrained"]
    command += ["--folds", "2", "--backend", kind, "--address", address, "--json"]
    done = subprocess.run(
        [*SHELL, *command, "--out", str(tmp_path / "run")], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["failures"] == []
    assert len(stored(tmp_path / "run")) == 2


@pytest.mark.slow
def test_a_worker_of_a_cluster_that_is_killed_costs_no_finished_trial(tmp_path, cluster):
    """Dask starts another worker and repeats the trial; Ray does not, so the run ends and is resumed."""
    kind, address, killed = cluster
    backend = Backend(kind, address=address)
    store = small_store(tmp_path, TABLE)
    with registered("killed-once", KilledOnceClassifier):
        trials = small_trials(TABLE, ("fairx", "killed-once"))
        dies = pytest.raises(RunError, match="Run the same command again to resume")
        with dies if kind == "ray" else contextlib.nullcontext():
            run_trials(trials, [TABLE], store, backend=backend)
        assert Path(f"{killed}0").exists()
        kept = stored(tmp_path)
        assert len(kept) >= 2
        resumed = run_trials(trials, [TABLE], store, backend=backend)
        assert as_csv(resumed) == as_csv(run_trials(trials, [TABLE]))
    assert kept.items() <= stored(tmp_path).items()


@pytest.mark.slow
def test_threads_of_one_worker_do_not_disturb_each_other():
    distributed = pytest.importorskip("distributed")
    trials = small_trials(TABLE)
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=2, host="127.0.0.1", dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        results = run_trials(trials, [TABLE], backend=Backend("dask"))  # finds the caller's client
        assert client.status == "running"
    assert as_csv(results) == as_csv(run_trials(trials, [TABLE]))


INTERRUPTED = """
import sys
from gcig.benchmark.backends import Backend
from gcig.benchmark.runner import run_trials
from support.small_runs import HangingClassifier, registered, small_store, small_table, small_trials

table = small_table()
with registered("hanging", HangingClassifier):
    trials = small_trials(table, ("unconstrained", "hanging"), n_folds=2)
    run_trials(trials, [table], small_store(sys.argv[1], table), backend=Backend(jobs=2))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_an_interrupted_run_ends_its_workers_and_keeps_finished_trials(tmp_path):
    marker = tmp_path / "hanging"
    environment = {**os.environ, "GCIG_HANGING": str(marker), "PYTHONPATH": IMPORTS}
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path / "run")],
        env=environment,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    trials = small_trials(TABLE, ("unconstrained",), n_folds=2)
    deadline = time.monotonic() + 120
    while not marker.exists() or not marker.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(1.0)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    assert process.wait(timeout=60) != 0
    worker = Path("/proc", marker.read_text())
    while worker.exists() and "State:\tZ" not in worker.joinpath("status").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    store = RunStore(tmp_path / "run")
    assert {trial for trial, _ in store.entries()} <= set(trials)
    assert all(store.claim(trial) is not None for trial in trials)


def test_workers_with_other_code_are_refused():
    with pytest.raises(RunError, match="another version of gcig"):
        backends._run(small_trials(TABLE)[0], None, TABLE, "other code")


@pytest.mark.parametrize(
    ("wrong", "argument"),
    [
        ({"name": "slurm"}, "backend"),
        ({"address": "tcp://10.0.0.5:8786"}, "address"),
        ({"name": "dask", "jobs": 0}, "jobs"),
    ],
)
def test_arguments_are_checked(wrong, argument):
    with pytest.raises(InputError) as caught:
        Backend(**wrong)
    assert caught.value.argument == argument


@pytest.mark.parametrize("kind", CLUSTERS)
def test_a_missing_package_is_named(monkeypatch, kind):
    monkeypatch.setitem(sys.modules, {"dask": "distributed", "ray": "ray"}[kind], None)
    with pytest.raises(RunError, match=rf"pip install 'gcig\[{kind}\]'"):
        run_trials(small_trials(TABLE), [TABLE], backend=Backend(kind))


@pytest.mark.parametrize("kind", CLUSTERS)
def test_a_cluster_must_be_running(monkeypatch, kind):
    package = pytest.importorskip({"dask": "distributed"}.get(kind, kind))
    if kind == "ray":
        monkeypatch.setattr(package, "is_initialized", lambda: False)  # whatever other tests left
    with pytest.raises(RunError, match=f"no connection to a {kind} cluster: .* Start one with `{kind} s"):
        run_trials(small_trials(TABLE), [TABLE], backend=Backend(kind))


def test_an_address_without_a_cluster_is_named(monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(backends, "_CONNECT_SECONDS", 1)
    with pytest.raises(RunError, match=r"no connection to a dask cluster at tcp://127\.0\.0\.1:9:"):
        run_trials(small_trials(TABLE), [TABLE], backend=Backend("dask", address="tcp://127.0.0.1:9"))
