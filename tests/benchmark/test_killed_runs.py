import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="os.fork")
TESTS = Path(__file__).parents[1]


def killed_and_undisturbed(tmp_path, kills, jobs=1, seed=0):
    out = tmp_path / "run"
    command = [sys.executable, "-m", "support.kill_and_resume", *map(str, (out, kills, seed, jobs))]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    finished = [int(line) for line in done.stdout.split()]
    assert len(finished) == kills
    assert finished == sorted(finished)  # nothing that was finished is lost

    def without_times(path):
        frame = pd.read_csv(path / "results.csv", dtype=str, keep_default_na=False)
        return frame.drop(columns="fit_seconds").to_csv(index=False)

    assert not list((out / "trials").glob(".*.tmp"))
    return without_times(out), without_times(tmp_path / "run-undisturbed")


@pytest.mark.slow
def test_a_run_that_was_killed_three_times_gives_the_same_results(tmp_path):
    killed, undisturbed = killed_and_undisturbed(tmp_path, kills=3)
    assert killed == undisturbed
    assert killed.count("\n") == 1 + 9


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_run_that_was_killed_twenty_times_gives_the_same_results(tmp_path, seed):
    killed, undisturbed = killed_and_undisturbed(tmp_path, kills=20, seed=seed)
    assert killed == undisturbed


@pytest.mark.slow
def test_workers_of_a_killed_run_leave_complete_results(tmp_path):
    killed, undisturbed = killed_and_undisturbed(tmp_path, kills=4, jobs=2)
    assert killed == undisturbed
