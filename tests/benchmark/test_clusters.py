import json
import pickle
import sys
from dataclasses import replace

import pytest

import gcig
from gcig._validation import InputError
from gcig.benchmark import clusters
from gcig.benchmark.backends import LocalBackend, WorkerDeath
from gcig.benchmark.clusters import DaskBackend, RayBackend, make_backend, train_family
from gcig.benchmark.results import csv_text, results_frame
from gcig.benchmark.runner import run_trials
from gcig.benchmark.store import RunError
from gcig.cli import main
from support.small_runs import (
    QUICK,
    KilledClassifier,
    KilledOnceClassifier,
    registered,
    small_store,
    small_table,
    small_trials,
)
from tables import QUICK_FLAGS, ROLE_FLAGS, make_raw_loans

psutil = pytest.importorskip("psutil")  # clusters need it as well

TABLE = small_table()
BACKENDS = {"dask": DaskBackend(2), "ray": RayBackend(2)}
BOTH = pytest.mark.parametrize("kind", list(BACKENDS))


class Watched:
    """A backend that notes on which addresses this process and its descendants accept connections."""

    def __init__(self, backend):
        self.backend = backend
        self.addresses = set()

    def run(self, trials, tables, work):
        for outcome in self.backend.run(trials, tables, work):
            self.look()
            yield outcome

    def look(self):
        me = psutil.Process()
        for process in [me, *me.children(recursive=True)]:
            try:
                found = process.net_connections(kind="tcp")
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
            self.addresses |= {each.laddr.ip for each in found if each.status == psutil.CONN_LISTEN}


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
def test_a_dask_cluster_gives_the_bytes_of_the_local_run(tmp_path):
    trials = small_trials(TABLE, ("unconstrained",), n_folds=2)
    run_trials(trials, [TABLE], small_store(tmp_path / "cluster", TABLE), backend=DaskBackend())
    run_trials(trials, [TABLE], small_store(tmp_path / "local", TABLE))
    assert stored(tmp_path / "cluster") == stored(tmp_path / "local")


@pytest.mark.slow
@BOTH
def test_a_cluster_with_a_killed_worker_gives_the_bytes_of_the_local_run(tmp_path, monkeypatch, kind):
    marker = tmp_path / "killed"
    monkeypatch.setenv("GCIG_KILLED_ONCE", str(marker))
    watched = Watched(BACKENDS[kind])
    with registered("killed-once", KilledOnceClassifier):
        trials = small_trials(TABLE, ("killed-once", "unconstrained", "hardt", "fairx"), n_folds=3)
        store = small_store(tmp_path / "cluster", TABLE)
        on_cluster = run_trials(trials, [TABLE], store, backend=watched)
        assert marker.exists()  # SIGKILL hit a worker in the middle of a trial
        local = run_trials(trials, [TABLE], small_store(tmp_path / "local", TABLE))
    assert [result.error for result in on_cluster] == [None] * len(trials)
    assert as_csv(on_cluster) == as_csv(local)
    assert stored(tmp_path / "cluster") == stored(tmp_path / "local")
    assert watched.addresses
    assert all(each.removeprefix("::ffff:").startswith("127.") for each in watched.addresses)


@pytest.mark.slow
@BOTH
def test_a_trial_that_kills_every_worker_is_recorded_and_the_others_finish(tmp_path, kind):
    store = small_store(tmp_path, TABLE)
    with registered("killed", KilledClassifier):
        trials = [*small_trials(TABLE, ("killed",), n_folds=2)[:1], *small_trials(TABLE)]
        results = run_trials(trials, [TABLE], store, backend=BACKENDS[kind])
    assert f"the {kind.title()} workers that ran it died" in results[0].error
    assert [result.error for result in results[1:]] == [None] * (len(trials) - 1)
    assert as_csv(results[1:]) == as_csv(run_trials(trials[1:], [TABLE]))


@pytest.mark.slow
@BOTH
def test_a_failed_write_on_a_worker_ends_the_run(tmp_path, kind):
    store = small_store(tmp_path, TABLE)
    (tmp_path / "trials").write_text("in the way")
    with pytest.raises(RunError, match="could not write"):
        run_trials(small_trials(TABLE), [TABLE], store, backend=BACKENDS[kind])


@pytest.mark.slow
def test_a_running_dask_cluster_is_used_and_kept():
    from distributed import LocalCluster

    # Two threads per worker: trials of one process must not disturb each other.
    with LocalCluster(
        n_workers=1, threads_per_worker=2, host="127.0.0.1", dashboard_address="127.0.0.1:0"
    ) as cluster:
        backend = make_backend("dask", address=cluster.scheduler_address)
        trials = small_trials(TABLE)
        results = run_trials(trials, [TABLE], backend=backend)
        assert len(cluster.workers) == 1
        assert len(cluster.scheduler.tasks) == 0
    assert as_csv(results) == as_csv(run_trials(trials, [TABLE]))


@pytest.mark.slow
def test_the_ray_connection_of_the_caller_is_used_and_kept():
    import ray

    ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        trials = small_trials(TABLE, ("unconstrained",))
        results = run_trials(trials, [TABLE], backend=RayBackend())
        assert ray.is_initialized()
    finally:
        ray.shutdown()
    assert as_csv(results) == as_csv(run_trials(trials, [TABLE]))


@pytest.mark.slow
@BOTH
def test_python_and_the_shell_take_a_backend(tmp_path, capsys, kind):
    data = {"sensitive_features": TABLE.sensitive_features, "methods": ["unconstrained"], "folds": 2}
    quick = {"parameters": {"unconstrained": QUICK}}
    found = gcig.compare(TABLE.X, TABLE.y, **data, **quick, backend=kind, n_jobs=2)
    local = gcig.compare(TABLE.X, TABLE.y, **data, **quick)
    assert as_csv(found.results) == as_csv(local.results)

    file = tmp_path / "people.csv"
    TABLE.X.assign(sex=TABLE.sensitive_features, y=TABLE.y).to_csv(file, index=False)
    command = ["compare", str(file), "--target", "y", "--sensitive", "sex", "--methods", "unconstrained"]
    command += ["--folds", "2", "--jobs", "2", "--backend", kind, "--out", str(tmp_path / "run"), "--json"]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["failures"] == []


def test_the_driver_stores_results_of_workers_that_do_not_see_the_folder(tmp_path):
    store, trials = small_store(tmp_path / "run", TABLE), small_trials(TABLE, ("unconstrained",))[:1]

    class Elsewhere:
        def run(self, trials, tables, work):
            unseen = small_store(tmp_path / "unseen", TABLE)
            (unseen.path / "manifest.json").unlink()
            remote = replace(work, store=unseen)
            yield from ((trial, remote(trial, tables[trial.dataset])) for trial in trials)

    results = run_trials(trials, [TABLE], store, backend=Elsewhere())
    assert [store.get(trial) for trial in trials] == results
    assert not (tmp_path / "unseen" / "trials").exists()


def test_workers_with_other_code_are_refused():
    with pytest.raises(RunError, match="another version of gcig"):
        clusters._run_remotely(print, small_trials(TABLE)[0], None, b"", "other code")


def test_backends_are_made_from_names():
    assert make_backend("local", jobs=3) == LocalBackend(3)
    assert make_backend("ray", address="auto") == RayBackend(address="auto")
    own = LocalBackend(2)
    assert make_backend(own) is own


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"backend": "slurm"}, "Choose from local, dask, ray"),
        ({"address": "tcp://10.0.0.5:8786"}, "Choose the backend dask or ray"),
        ({"backend": "dask", "jobs": 0}, "jobs must be at least 1"),
    ],
)
def test_arguments_are_checked(wrong, message):
    with pytest.raises(InputError, match=message):
        make_backend(**wrong)


@BOTH
def test_a_missing_package_is_named(monkeypatch, kind):
    monkeypatch.setitem(sys.modules, {"dask": "distributed", "ray": "ray"}[kind], None)
    with pytest.raises(RunError, match=rf"pip install 'gcig\[{kind}\]'"):
        run_trials(small_trials(TABLE), [TABLE], backend=BACKENDS[kind])


def test_an_address_without_a_cluster_is_named(monkeypatch):
    monkeypatch.setattr(clusters, "_CONNECT_SECONDS", 1)
    with pytest.raises(RunError, match=r"no connection to a Dask cluster at tcp://127\.0\.0\.1:9:"):
        run_trials(small_trials(TABLE), [TABLE], backend=DaskBackend(address="tcp://127.0.0.1:9"))


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_dask_cluster_trains_the_family_of_the_local_run(tmp_path):
    make_raw_loans(300).to_csv(tmp_path / "loans.csv", index=False)
    flags = ["tradeoff", tmp_path / "loans.csv", *ROLE_FLAGS, "--drop", "id", *QUICK_FLAGS]
    saved = []
    for backend in ("local", "dask"):
        out = tmp_path / "family"  # the same name, because the page mentions it
        assert main([*map(str, flags), "--backend", backend, "--out", str(out), "--overwrite"]) == 0
        files = sorted(path for path in out.rglob("*") if path.is_file())
        saved.append({path.relative_to(out).as_posix(): path.read_bytes() for path in files})
    assert len(saved[0]) > 4
    assert saved[0] == saved[1]


def test_errors_warnings_and_deaths_of_a_family_reach_the_caller():
    class Elsewhere:
        def __init__(self, outcome=None):
            self.outcome = outcome

        def run(self, trials, tables, work):
            (trial,) = trials
            yield trial, self.outcome or pickle.loads(pickle.dumps(work(trial, tables[trial.dataset])))

    model = gcig.FairXClassifier(max_epochs=1, random_state=0, device="cpu")
    data = gcig.load_dataset("german", include_sensitive=False)
    rows = {"X": data.X, "y": data.y, "sensitive_features": data.sensitive_features}
    here = train_family(model, **rows, measured_on=rows)
    there = train_family(model, **rows, measured_on=rows, backend=Elsewhere())
    assert there.record.to_json() == here.record.to_json()
    inputs = data.X.assign(sex=data.sensitive_features)
    with pytest.warns(gcig.InputWarning, match="sex"):
        train_family(model, **{**rows, "X": inputs}, backend=Elsewhere())
    with pytest.raises(RunError, match=r"the family was not trained: the worker died\. Run it again"):
        train_family(model, **rows, backend=Elsewhere(WorkerDeath("the worker died")))
    with pytest.raises(InputError, match="early_stopping=True"):
        train_family(gcig.FairXClassifier(early_stopping=False), **rows, backend=Elsewhere())
