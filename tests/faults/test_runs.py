"""Faults 25, 27, 28 and 36: kills, several processes on one folder, and killed workers."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

import gcig
from example_tables import ROLE_FLAGS, make_raw_loans
from gcig.benchmark.runner import run_trials
from gcig.benchmark.trials import fold_trials
from gcig.methods.registry import METHODS
from support.small_runs import (
    QUICK,
    BrokenClassifier,
    KilledTwiceClassifier,
    registered,
    small_store,
    small_table,
)

TESTS = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")


@pytest.fixture
def command(tmp_path):
    """Return a run of six short trials, as words of a shell."""
    make_raw_loans(300).to_csv(tmp_path / "t.csv", index=False)
    roles = [*ROLE_FLAGS, "--drop", "id,race", "--methods", "unconstrained,hardt", "--folds", "3"]
    return ["compare", str(tmp_path / "t.csv"), *roles, "--jobs", "1", "--out", str(tmp_path / "run")]


def start(command, **environment):
    """Start a command in a process of its own."""
    code = "import sys; from gcig.cli import main; sys.exit(main(sys.argv[1:]))"
    more = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": {**os.environ, **environment}}
    return subprocess.Popen([sys.executable, "-c", code, *command], text=True, **more)


def finished(folder):
    return {path.name: path.read_bytes() for path in Path(folder, "trials").glob("*.json")}


def wait_for_trials(folder, count):
    deadline = time.monotonic() + 300
    while len(finished(folder)) < count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def without_times(folder):
    return pd.read_csv(Path(folder, "results.csv")).drop(columns="fit_seconds")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_fault_25_a_run_that_is_stopped_resumes(command, tmp_path, number):
    """SIGTERM ends as cleanly as Ctrl-C; kill -9 loses nothing that was finished."""
    process = start(command)
    wait_for_trials(tmp_path / "run", 2)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    if number != signal.SIGKILL:
        assert process.returncode == 130
        assert err.rstrip().endswith("gcig: stopped")
        assert "Traceback" not in err
    kept = finished(tmp_path / "run")
    assert len(kept) >= 2
    again = start([*command, "--quiet"])
    _, err = again.communicate(timeout=300)
    assert again.returncode == 0, err
    assert all(finished(tmp_path / "run")[name] == content for name, content in kept.items())
    undisturbed = start([*command[:-1], str(tmp_path / "other"), "--quiet"])
    undisturbed.communicate(timeout=300)
    pd.testing.assert_frame_equal(without_times(tmp_path / "run"), without_times(tmp_path / "other"))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_fault_25_training_that_is_stopped_leaves_nothing(tmp_path, number):
    make_raw_loans(2000).to_csv(tmp_path / "t.csv", index=False)
    roles = [*ROLE_FLAGS, "--drop", "id,race", "--out", str(tmp_path / "m"), "--epochs", "1000"]
    process = start(["train", str(tmp_path / "t.csv"), *roles])
    for line in process.stderr:
        if line.startswith("Training FairX"):
            break
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "gcig: stopped" in err
    assert sorted(os.listdir(tmp_path)) == ["t.csv"]


@pytest.mark.slow
def test_fault_25_fifty_kills_with_two_drivers(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "support.two_drivers", str(tmp_path / "run"), "50", "0"],
        cwd=TESTS,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == 50
    assert len(set(done.stdout.split())) > 5  # trials were finished between the kills


@pytest.mark.slow
def test_fault_27_two_processes_on_one_folder(command, tmp_path):
    processes = [start([*command, "--quiet"]) for _ in range(2)]
    errors = [process.communicate(timeout=400)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], errors
    assert len(finished(tmp_path / "run")) == 6


@pytest.mark.slow
def test_a_whole_run_has_the_same_bits_with_one_and_two_workers(tmp_path):
    """All methods, and other hash seeds: every number of every trial is the same."""
    make_raw_loans(300).to_csv(tmp_path / "t.csv", index=False)
    roles = [*ROLE_FLAGS, "--drop", "id,race", "--folds", "2", "--quiet"]
    for jobs in ("1", "2"):
        out = ["--jobs", jobs, "--out", str(tmp_path / jobs)]
        process = start(["compare", str(tmp_path / "t.csv"), *roles, *out], PYTHONHASHSEED=jobs)
        _, err = process.communicate(timeout=900)
        assert process.returncode in (0, 1), err
    one, two = (
        {name: timeless(json.loads(content)) for name, content in finished(tmp_path / jobs).items()}
        for jobs in ("1", "2")
    )
    assert one == two
    assert len(one) >= 2 * len(METHODS)
    pd.testing.assert_frame_equal(
        without_times(tmp_path / "1"), without_times(tmp_path / "2"), check_exact=True
    )


def timeless(found):
    """Return a stored trial without its times and its hash; equal numbers are equal to the last bit."""
    if isinstance(found, dict):
        kept = {name: each for name, each in found.items() if "seconds" not in name and name != "sha256"}
        return {name: timeless(each) for name, each in kept.items()}
    return [timeless(each) for each in found] if isinstance(found, list) else repr(found)


def test_fault_28_a_resume_with_other_settings_or_data_is_refused(shell, tmp_path):
    loans = make_raw_loans(80)
    path, roles = tmp_path / "t.csv", [*ROLE_FLAGS, "--drop", "id,race", "--jobs", "1", "--quiet"]
    loans.to_csv(path, index=False)
    run = ["compare", path, *roles, "--methods", "unconstrained", "--out", tmp_path / "run", "--folds"]
    assert shell(*run, "2")[0] == 0
    code, _, err = shell(*run, "3")
    assert code == 2
    assert "folds" in err
    loans.assign(income=loans["income"] + 1).to_csv(path, index=False)
    code, _, err = shell(*run, "2")
    assert code == 2
    assert "other rows" in err or "other data" in err or "changed" in err


@pytest.mark.slow
def test_fault_28_a_resume_with_other_code_is_refused(command, tmp_path):
    """The command runs with a copy of the package, of which one formula is changed in between."""
    source = tmp_path / "source"
    shutil.copytree(Path(gcig.__file__).parent, source / "gcig", ignore=shutil.ignore_patterns("__pycache__"))
    process = start([*command, "--quiet"], PYTHONPATH=str(source))
    wait_for_trials(tmp_path / "run", 1)
    process.kill()
    process.communicate(timeout=60)
    changed = source / "gcig" / "core" / "numerics.py"
    changed.write_text(changed.read_text("utf-8").replace("value=sharpness", "value=2 * sharpness"))
    kept = finished(tmp_path / "run")
    again = start([*command, "--quiet"], PYTHONPATH=str(source))
    _, err = again.communicate(timeout=300)
    assert again.returncode == 2, err
    assert "code (core)" in err
    assert finished(tmp_path / "run") == kept


def test_fault_23_a_trial_that_diverges_is_marked_and_the_others_go_on(tmp_path):
    table = small_table()
    usual = fold_trials(table, "unconstrained", QUICK, n_folds=2)
    wild = fold_trials(table, "unconstrained", {**QUICK, "learning_rate": 1e30}, n_folds=2)
    results = run_trials([*wild, *usual], [table], store := small_store(tmp_path, table))
    assert [each.error is None for each in results] == [False, False, True, True]
    assert all("diverged" in each.error for each in results[:2])
    assert len(list(store.entries())) == 4


@pytest.mark.slow
def test_fault_36_a_worker_that_is_killed(shell, tmp_path, monkeypatch):
    """The kernel kills a worker for want of memory by SIGKILL; here the trial does so, twice."""
    make_raw_loans(80).to_csv(tmp_path / "t.csv", index=False)
    monkeypatch.setenv("GCIG_KILLED", str(tmp_path / "killed"))
    roles = [*ROLE_FLAGS, "--drop", "id,race", "--folds", "2", "--jobs", "2", "--quiet"]
    run = [
        "compare",
        tmp_path / "t.csv",
        *roles,
        "--out",
        tmp_path / "run",
        "--methods",
        "killed-twice,unconstrained",
    ]
    with registered("killed-twice", KilledTwiceClassifier):
        code, _, err = shell(*run)
        assert code == 3
        assert "SIGKILL" in err
        assert "1 of 4 folds failed" in err
        assert "The same command repeats those whose worker was killed" in err
        assert "--retry-failed" in err
        stored = [json.loads(content)["result"] for content in finished(tmp_path / "run").values()]
        assert sum(each["worker_died"] for each in stored) == 1
        code, _, err = shell(*run)
        assert code == 0, err
    assert without_times(tmp_path / "run")["error"].isna().all()


def test_fault_36_a_run_with_failed_trials_does_not_exit_with_zero(shell, tmp_path):
    make_raw_loans(80).to_csv(tmp_path / "t.csv", index=False)
    roles = [*ROLE_FLAGS, "--drop", "id,race", "--folds", "2", "--jobs", "1", "--quiet"]
    run = [
        "compare",
        tmp_path / "t.csv",
        *roles,
        "--out",
        tmp_path / "run",
        "--methods",
        "broken,unconstrained",
    ]
    with registered("broken", BrokenClassifier):
        for more in ([], [], ["--retry-failed"]):
            code, _, err = shell(*run, *more)
            assert code == 3
            assert "2 of 4 folds failed" in err
