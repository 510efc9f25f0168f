import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gcig
from gcig.training.distributed import all_processes
from tables import QUICK_FLAGS, ROLE_FLAGS, make_raw_loans

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_gradients_of_several_processes_are_those_of_one(tmp_path, size):
    command = [sys.executable, "-m", "support.joined_gradients"]
    processes = [
        subprocess.Popen([*command, str(rank), str(size), str(tmp_path)], cwd=TESTS) for rank in range(size)
    ]
    assert [process.wait(timeout=180) for process in processes] == [0] * size
    differences = json.loads((tmp_path / "differences.json").read_text())
    assert len(differences) == 11
    assert max(differences.values()) < 1e-12, differences


def torchrun(folder, *arguments, size=2):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, *map(str, arguments)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.slow
def test_the_shell_trains_one_model_with_several_processes(tmp_path):
    loans = make_raw_loans(600)
    loans.to_csv(tmp_path / "loans.csv", index=False)
    arguments = ["train", "loans.csv", *ROLE_FLAGS, "--drop", "id", *QUICK_FLAGS, "--json"]
    joined = torchrun(tmp_path, "-m", "gcig", *arguments, "--out", "joined")
    report = json.loads(joined.stdout)  # one process prints
    subprocess.run([sys.executable, "-m", "gcig", *arguments, "--out", "alone"], cwd=tmp_path, check=True)
    assert report["split"] == json.loads((tmp_path / "alone" / "report.json").read_text())["split"]
    X = loans[["income", "job", "owner", "race"]]
    found, expected = (gcig.load(tmp_path / name).decision_function(X) for name in ("joined", "alone"))
    np.testing.assert_allclose(found, expected, atol=2e-3)


SCRIPT = """
import gcig, numpy as np, torch
from gcig.training.distributed import all_processes
data = gcig.load_dataset("german", include_sensitive=False)
with all_processes() as processes:
    model = gcig.FairXClassifier(max_epochs=3)  # without a seed: that of the first process is used
    model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
np.save(f"scores-{processes.rank}.npy", model.decision_function(data.X))
"""


@pytest.mark.slow
def test_all_processes_get_the_same_model(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    torchrun(tmp_path, "script.py")
    one, other = (np.load(tmp_path / f"scores-{rank}.npy") for rank in (0, 1))
    np.testing.assert_array_equal(one, other)


def test_a_process_that_torchrun_did_not_start_is_told_so():
    with pytest.raises(gcig.InputError, match="torchrun --nproc-per-node"), all_processes():
        pass
