import io
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gcig._validation import InputError
from gcig.benchmark import runner
from gcig.benchmark.execution import failure
from gcig.benchmark.progress import LineProgress, Silence, progress_for
from gcig.benchmark.results import results_frame
from gcig.benchmark.run_files import RunError
from gcig.benchmark.runner import run_cells
from gcig.benchmark.store import RunStore
from support.small_runs import (
    BrokenClassifier,
    KilledClassifier,
    registered,
    small_cells,
    small_store,
    small_table,
)

TABLE = small_table()
CELLS = small_cells(TABLE)


def run_here(monkeypatch, cell_runner):
    monkeypatch.setattr(runner, "run_cell", cell_runner)


def counted(monkeypatch):
    done = []

    def run(cell, table):
        done.append(cell)
        return failure(cell, "counted")

    run_here(monkeypatch, run)
    return done


def timeless(results):
    return [replace(result, fit_seconds=0.0) for result in results]


def test_resuming_is_a_set_difference(tmp_path, monkeypatch):
    done = counted(monkeypatch)
    store = small_store(tmp_path, TABLE)
    run_cells(CELLS[:4], [TABLE], store)
    run_cells(CELLS, [TABLE], RunStore(tmp_path))
    assert sorted(c.key for c in done) == sorted(c.key for c in CELLS)


def test_results_come_in_the_order_of_the_cells_and_each_is_run_once(monkeypatch):
    done = counted(monkeypatch)
    twice = [*CELLS[::-1], CELLS[0]]
    results = run_cells(twice, [TABLE])
    assert [(r.method, r.fold) for r in results] == [(c.method, c.fold) for c in twice]
    assert len(done) == len(CELLS)


def test_the_longest_cells_are_run_first(monkeypatch):
    done = counted(monkeypatch)
    large = small_table(n=400, name="large")
    run_cells([*small_cells(TABLE), *small_cells(large)], [TABLE, large])
    assert [c.dataset for c in done[:3]] == ["large"] * 3
    assert done[0].method == "fairx"


def test_a_torn_file_is_done_again(tmp_path, monkeypatch):
    store = small_store(tmp_path, TABLE)
    done = counted(monkeypatch)
    run_cells(CELLS, [TABLE], store)
    file = tmp_path / "cells" / CELLS[2].file_name
    file.write_bytes(file.read_bytes()[:100])
    run_cells(CELLS, [TABLE], store)
    assert done[len(CELLS) :] == [CELLS[2]]


def test_failed_cells_are_recorded_and_the_others_go_on(tmp_path):
    store = small_store(tmp_path, TABLE)
    with registered("broken", BrokenClassifier):
        cells = small_cells(TABLE, ("broken", "unconstrained"), n_folds=2)
        results = run_cells(cells, [TABLE], store)
    assert [r.error is None for r in results] == [False, False, True, True]
    assert store.failed() == {cell.key for cell in cells[:2]}
    assert results_frame(results)["error"].notna().sum() == 2


def test_failed_cells_are_done_again_on_request_only(tmp_path, monkeypatch):
    store = small_store(tmp_path, TABLE)
    done = counted(monkeypatch)
    run_cells(CELLS[:2], [TABLE], store)
    run_cells(CELLS[:2], [TABLE], store)
    assert len(done) == 2
    run_cells(CELLS[:2], [TABLE], store, retry_failed=True)
    assert len(done) == 4


def test_a_failure_ends_the_run_on_request(monkeypatch):
    done = counted(monkeypatch)
    with pytest.raises(RunError, match="small fairx seed 0 fold 1/3 failed: counted"):
        run_cells(CELLS, [TABLE], on_failure="raise")
    assert len(done) == 1


def test_shards_together_are_the_run(tmp_path, monkeypatch):
    done = counted(monkeypatch)
    store = small_store(tmp_path, TABLE)
    parts = [run_cells(CELLS, [TABLE], store, shard=(i, 2)) for i in (1, 2)]
    assert sum(map(len, parts)) == len(CELLS) == len(done)
    assert len(run_cells(CELLS, [TABLE], store)) == len(CELLS)
    assert len(done) == len(CELLS)


def test_ctrl_c_leaves_what_was_finished(tmp_path, monkeypatch):
    store, done = small_store(tmp_path, TABLE), []

    def run(cell, table):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(cell)
        return failure(cell, "done")

    run_here(monkeypatch, run)
    with pytest.raises(KeyboardInterrupt):
        run_cells(CELLS, [TABLE], store)
    assert RunStore(tmp_path).finished() == {cell.key for cell in done}
    assert len(done) == 2


def test_a_cell_that_another_is_at_is_waited_for(tmp_path, monkeypatch):
    store = small_store(tmp_path, TABLE)
    done = counted(monkeypatch)
    monkeypatch.setattr(runner, "_LOOK_AGAIN_AFTER", 0.02)
    claimed, theirs = threading.Event(), failure(CELLS[0], "theirs")

    def other():
        with store.claim(CELLS[0]) as ours:
            assert ours
            claimed.set()
            time.sleep(0.3)
            store.put(CELLS[0], theirs)

    thread = threading.Thread(target=other)
    thread.start()
    claimed.wait()
    results = run_cells(CELLS[:3], [TABLE], store)
    thread.join()
    assert results[0] == theirs
    assert CELLS[0] not in done
    assert len(done) == 2


def test_a_cell_whose_process_died_is_taken_over(tmp_path, monkeypatch):
    store = small_store(tmp_path, TABLE)
    done = counted(monkeypatch)
    monkeypatch.setattr(runner, "_LOOK_AGAIN_AFTER", 0.02)
    claimed = threading.Event()

    def other():
        with store.claim(CELLS[0]):
            claimed.set()
            time.sleep(0.2)  # and ends without a result

    thread = threading.Thread(target=other)
    thread.start()
    claimed.wait()
    run_cells(CELLS[:1], [TABLE], store)
    thread.join()
    assert done == [CELLS[0]]


def test_the_number_of_jobs_changes_no_bit_and_a_killed_worker_only_its_cell(tmp_path):
    with registered("killed", KilledClassifier):
        cells = [*small_cells(TABLE, ("killed",), n_folds=2)[:1], *CELLS]
        store = small_store(tmp_path, TABLE)
        parallel = run_cells(cells, [TABLE], store, jobs=2)
    assert "SIGKILL" in parallel[0].error
    assert [r.error for r in parallel[1:]] == [None] * len(CELLS)
    assert timeless(parallel[1:]) == timeless(run_cells(CELLS, [TABLE]))
    assert store.finished() == {cell.key for cell in cells}


PROCESS = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from support.small_runs import small_cells, small_store, small_table
from gcig.benchmark import runner
from gcig.benchmark.execution import run_cell

def run(cell, table):
    with open(Path(sys.argv[1]) / "done.txt", "a") as file:
        file.write(cell.key + "\\n")
    return run_cell(cell, table)

runner.run_cell = run
table = small_table()
cells = small_cells(table, n_folds=5)
results = runner.run_cells(cells, [table], small_store(sys.argv[1], table))
assert len(results) == 15
"""


def test_two_processes_on_one_folder_do_each_cell_once(tmp_path):
    command = [sys.executable, "-c", PROCESS, str(tmp_path), str(Path(__file__).parents[1])]
    both = [subprocess.Popen(command) for _ in range(2)]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    done = (tmp_path / "done.txt").read_text().split()
    assert len(done) == len(set(done)) == 15
    assert not list((tmp_path / "claims").iterdir())


def test_an_error_of_the_disk_in_a_worker_ends_the_run(tmp_path):
    store = small_store(tmp_path, TABLE)
    (tmp_path / "cells").write_text("in the way")
    with pytest.raises(RunError, match="could not write"):
        run_cells(CELLS[:2], [TABLE], store, jobs=2)


@pytest.mark.parametrize("wrong", [{"jobs": 0}, {"on_failure": "ignore"}, {"shard": (3, 2)}])
def test_arguments_are_checked(wrong):
    with pytest.raises(InputError):
        run_cells(CELLS, [TABLE], **wrong)


def test_cells_need_their_tables():
    with pytest.raises(RunError, match="no table 'small'"):
        run_cells(CELLS, [])
    with pytest.raises(RunError, match="other rows"):
        run_cells(CELLS, [small_table(seed=1)])


def test_progress_in_a_pipe_is_lines_with_the_time_left(monkeypatch):
    counted(monkeypatch)
    stream = io.StringIO()
    run_cells(CELLS, [TABLE], progress=LineProgress(stream))
    lines = stream.getvalue().splitlines()
    assert lines[0] == "9 cells"
    assert "failed: small fairx seed 0 fold 1/3: counted" in lines
    assert lines[-1].startswith("9/9 small")
    assert "left, 9 failed" in lines[-1]


def test_a_run_is_silent_unless_asked(monkeypatch, capfd):
    counted(monkeypatch)
    run_cells(CELLS, [TABLE])
    assert capfd.readouterr() == ("", "")


def test_progress_is_a_bar_on_a_terminal(monkeypatch, capsys):
    counted(monkeypatch)
    assert isinstance(progress_for(False), Silence)
    assert isinstance(progress_for(True), LineProgress)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    run_cells(CELLS, [TABLE], progress=True)
    shown = capsys.readouterr().err
    assert "9/9" in shown
    assert "9 failed" in shown


def test_names_cannot_write_to_the_terminal(monkeypatch):
    counted(monkeypatch)
    hostile = small_table(name="a\x1b[2Jb\n")
    stream = io.StringIO()
    run_cells(small_cells(hostile), [hostile], progress=LineProgress(stream))
    assert "\x1b" not in stream.getvalue()
    assert "a?[2Jb?" in stream.getvalue()
