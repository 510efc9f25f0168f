import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gcig._arguments import InputError
from gcig.benchmark import backends, runner
from gcig.benchmark.backends import Backend
from gcig.benchmark.execution import failed_result
from gcig.benchmark.results import results_frame
from gcig.benchmark.runner import run_trials
from gcig.benchmark.store import RunError, RunStore
from support.small_runs import (
    BrokenClassifier,
    KilledClassifier,
    registered,
    small_store,
    small_table,
    small_trials,
)

TABLE = small_table()
TRIALS = small_trials(TABLE)


def replace_run_trial(monkeypatch, trial_runner):
    monkeypatch.setattr(backends, "run_trial", trial_runner)


def count_runs(monkeypatch):
    done = []

    def run(trial, table):
        done.append(trial)
        return failed_result(trial, "counted")

    replace_run_trial(monkeypatch, run)
    return done


def timeless(results):
    return [replace(result, fit_seconds=0.0) for result in results]


def test_resuming_runs_only_unfinished_trials(tmp_path, monkeypatch):
    done = count_runs(monkeypatch)
    store = small_store(tmp_path, TABLE)
    run_trials(TRIALS[:4], [TABLE], store)
    run_trials(TRIALS, [TABLE], RunStore(tmp_path))
    assert sorted(c.key for c in done) == sorted(c.key for c in TRIALS)


def test_results_come_in_the_order_of_the_trials_and_each_is_run_once(monkeypatch):
    done = count_runs(monkeypatch)
    twice = [*TRIALS[::-1], TRIALS[0]]
    results = run_trials(twice, [TABLE])
    assert [(r.method, r.fold) for r in results] == [(c.method, c.fold) for c in twice]
    assert len(done) == len(TRIALS)


def test_the_longest_trials_are_run_first(monkeypatch):
    done = count_runs(monkeypatch)
    large = small_table(n=400, name="large")
    run_trials([*small_trials(TABLE), *small_trials(large)], [TABLE, large])
    assert [c.dataset for c in done[:3]] == ["large"] * 3
    assert done[0].method == "fairx"


def test_a_trial_with_a_damaged_file_is_repeated(tmp_path, monkeypatch):
    store = small_store(tmp_path, TABLE)
    done = count_runs(monkeypatch)
    run_trials(TRIALS, [TABLE], store)
    file = tmp_path / "trials" / TRIALS[2].file_name
    file.write_bytes(file.read_bytes()[:100])
    run_trials(TRIALS, [TABLE], store)
    assert done[len(TRIALS) :] == [TRIALS[2]]


def test_failed_trials_are_recorded_and_the_others_continue(tmp_path):
    store = small_store(tmp_path, TABLE)
    with registered("broken", BrokenClassifier):
        trials = small_trials(TABLE, ("broken", "unconstrained"), n_folds=2)
        results = run_trials(trials, [TABLE], store)
    assert [r.error is None for r in results] == [False, False, True, True]
    assert {trial for trial, result in store.entries() if result.error} == set(trials[:2])
    assert results_frame(results)["error"].notna().sum() == 2


def test_failed_trials_are_repeated_only_on_request(tmp_path, monkeypatch):
    store = small_store(tmp_path, TABLE)
    done = count_runs(monkeypatch)
    run_trials(TRIALS[:2], [TABLE], store)
    run_trials(TRIALS[:2], [TABLE], store)
    assert len(done) == 2
    run_trials(TRIALS[:2], [TABLE], store, retry_failed=True)
    assert len(done) == 4


def test_a_failure_does_not_end_the_run(monkeypatch):
    done = count_runs(monkeypatch)
    results = run_trials(TRIALS, [TABLE])
    assert len(done) == len(set(TRIALS))
    assert all("counted" in result.error for result in results)


def test_shards_together_are_the_run(tmp_path, monkeypatch):
    done = count_runs(monkeypatch)
    store = small_store(tmp_path, TABLE)
    parts = [run_trials(TRIALS, [TABLE], store, shard=(i, 2)) for i in (1, 2)]
    assert sum(map(len, parts)) == len(TRIALS) == len(done)
    assert len(run_trials(TRIALS, [TABLE], store)) == len(TRIALS)
    assert len(done) == len(TRIALS)


def test_an_interrupted_run_keeps_finished_trials(tmp_path, monkeypatch):
    store, done = small_store(tmp_path, TABLE), []

    def run(trial, table):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(trial)
        return failed_result(trial, "done")

    replace_run_trial(monkeypatch, run)
    with pytest.raises(KeyboardInterrupt):
        run_trials(TRIALS, [TABLE], store)
    assert {trial for trial, _ in RunStore(tmp_path).entries()} == set(done)
    assert len(done) == 2


def test_a_trial_claimed_by_another_process_is_awaited(tmp_path, monkeypatch):
    store = small_store(tmp_path, TABLE)
    done = count_runs(monkeypatch)
    monkeypatch.setattr(runner, "_POLL_SECONDS", 0.02)
    claimed, theirs = threading.Event(), failed_result(TRIALS[0], "theirs")

    def other():
        with store.claim(TRIALS[0]):
            claimed.set()
            time.sleep(0.3)
            store.put(TRIALS[0], theirs)

    thread = threading.Thread(target=other)
    thread.start()
    claimed.wait()
    results = run_trials(TRIALS[:3], [TABLE], store)
    thread.join()
    assert results[0] == theirs
    assert TRIALS[0] not in done
    assert len(done) == 2


def test_a_trial_whose_process_died_is_taken_over(tmp_path, monkeypatch):
    store = small_store(tmp_path, TABLE)
    done = count_runs(monkeypatch)
    monkeypatch.setattr(runner, "_POLL_SECONDS", 0.02)
    claimed = threading.Event()

    def other():
        with store.claim(TRIALS[0]):
            claimed.set()
            time.sleep(0.2)  # and ends without a result

    thread = threading.Thread(target=other)
    thread.start()
    claimed.wait()
    run_trials(TRIALS[:1], [TABLE], store)
    thread.join()
    assert done == [TRIALS[0]]


@pytest.mark.slow
def test_results_do_not_depend_on_jobs_and_a_trial_that_kills_its_workers_is_lost_alone(tmp_path):
    with registered("killed", KilledClassifier):
        trials = [*small_trials(TABLE, ("killed",), n_folds=2)[:1], *TRIALS]
        store = small_store(tmp_path, TABLE)
        parallel = run_trials(trials, [TABLE], store, backend=Backend(jobs=2))
    assert "SIGKILL" in parallel[0].error
    assert [r.error for r in parallel[1:]] == [None] * len(TRIALS)
    assert timeless(parallel[1:]) == timeless(run_trials(TRIALS, [TABLE]))
    assert {trial for trial, _ in store.entries()} == set(trials)


PROCESS = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from support.small_runs import small_trials, small_store, small_table
from gcig.benchmark import backends, runner
from gcig.benchmark.execution import run_trial

def run(trial, table):
    with open(Path(sys.argv[1]) / "done.txt", "a") as file:
        file.write(trial.key + "\\n")
    return run_trial(trial, table)

backends.run_trial = run
table = small_table()
trials = small_trials(table, n_folds=5)
results = runner.run_trials(trials, [table], small_store(sys.argv[1], table))
assert len(results) == 15
"""


@pytest.mark.slow
def test_two_processes_on_one_folder_run_each_trial_once(tmp_path):
    command = [sys.executable, "-c", PROCESS, str(tmp_path), str(Path(__file__).parents[1])]
    both = [subprocess.Popen(command) for _ in range(2)]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    done = (tmp_path / "done.txt").read_text().split()
    assert len(done) == len(set(done)) == 15


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_failed_write_ends_the_run(tmp_path, jobs):
    store = small_store(tmp_path, TABLE)
    (tmp_path / "trials").write_text("in the way")
    with pytest.raises(RunError, match="could not write"):
        run_trials(TRIALS[:2], [TABLE], store, backend=Backend(jobs=jobs))


def test_the_shard_is_checked():
    with pytest.raises(InputError, match="shard must be one of"):
        run_trials(TRIALS, [TABLE], shard=(3, 2))


def test_trials_need_their_tables():
    with pytest.raises(RunError, match="no table 'small'"):
        run_trials(TRIALS, [])
    with pytest.raises(RunError, match="other rows"):
        run_trials(TRIALS, [small_table(seed=1)])


def test_progress_in_a_pipe_shows_the_latest_trial_the_time_left_and_failures(monkeypatch, capsys):
    count_runs(monkeypatch)
    run_trials(TRIALS, [TABLE], progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("Running trials: 1 of 9 trials, latest small fairx seed 0 fold 1/3, left ")
    assert lines[-1].endswith("failed 9")


def test_a_run_is_silent_unless_asked(monkeypatch, capfd):
    count_runs(monkeypatch)
    run_trials(TRIALS, [TABLE])
    assert capfd.readouterr() == ("", "")


def test_names_cannot_control_the_terminal(monkeypatch, capsys):
    count_runs(monkeypatch)
    hostile = small_table(name="a\x1b[2Jb")
    run_trials(small_trials(hostile), [hostile], progress=True)
    shown = capsys.readouterr().err
    assert "\x1b" not in shown
    assert "a?[2Jb" in shown
