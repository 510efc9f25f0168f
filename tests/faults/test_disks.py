"""Faults 26 and 37: full and read-only disks, tried on a real file system of one megabyte."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import gcig
from example_tables import QUICK, ROLE_FLAGS, make_loans, make_raw_loans
from gcig.methods.registry import METHODS
from gcig.persistence import PersistenceError
from support.small_disks import needs_mounts, small_disk

pytestmark = needs_mounts
TESTS = Path(__file__).parents[1]
LOANS = make_loans(200)


@pytest.fixture
def disk(tmp_path):
    with small_disk(tmp_path / "disk") as mounted:
        yield mounted


@pytest.fixture
def big_csv(loans, tmp_path):
    """Return a file whose predictions do not fit on the disk."""
    path = tmp_path / "big.csv"
    pd.concat([loans] * 250).to_csv(path, index=False)
    return path


def test_fault_37_a_full_disk_while_predictions_are_written(shell, model, big_csv, disk):
    (disk.path / "old.csv").write_text("of yesterday\n")
    out = ["--keep", "--quiet", "--overwrite"]
    code, _, err = shell("predict", model, big_csv, *out, "--out", disk.path / "old.csv")
    assert code == 2
    assert "old.csv: No space left on device. Free some space" in err
    assert disk.names() == ["old.csv"]
    assert (disk.path / "old.csv").read_text() == "of yesterday\n"
    disk.fill()
    code, _, err = shell("predict", model, big_csv, *out, "--out", disk.path / "new.parquet")
    assert (code, disk.names()) == (2, ["old.csv"])
    assert "internal error" not in err


@pytest.mark.parametrize("option", ["--html", "--markdown"])
def test_fault_37_a_full_disk_while_a_page_is_written(shell, model, loans_csv, disk, option):
    disk.fill()
    code, _, err = shell("audit", model, loans_csv, *ROLE_FLAGS, option, disk.path / "page", "--quiet")
    assert code == 2
    assert "page: No space left on device" in err
    assert disk.names() == []


def test_fault_26_a_full_disk_while_a_model_is_saved(disk):
    model = METHODS["unconstrained"].estimator(**QUICK).fit(LOANS.X, LOANS.y, **LOANS.groups)
    model.save(disk.path / "m")
    expected = model.predict_proba(LOANS.X)
    disk.fill()
    wide = METHODS["unconstrained"].estimator(**{**QUICK, "hidden_sizes": (64, 64)})
    wide.fit(LOANS.X, LOANS.y, **LOANS.groups)
    with pytest.raises(PersistenceError, match="No space left on device; a model that was there before is"):
        wide.save(disk.path / "m")
    np.testing.assert_array_equal(gcig.load(disk.path / "m").predict_proba(LOANS.X), expected)
    assert disk.names() == ["m"]


def test_fault_26_a_full_disk_in_the_middle_of_a_run(shell, loans_csv, disk):
    command = ["compare", loans_csv, *ROLE_FLAGS, "--drop", "id,race", "--methods", "unconstrained"]
    command += ["--folds", "2", "--jobs", "1", "--quiet", "--out", disk.path / "run"]
    disk.fill()
    code, _, err = shell(*command)
    assert code == 2
    assert "No space left on device" in err
    assert "run the same command again" in err
    (disk.path / "filler").unlink()
    assert shell(*command)[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("trouble", ["full", "read-only"])
def test_fault_26_kills_of_two_drivers_on_a_disk_in_trouble(disk, trouble):
    """Acknowledged results stay, and the run can be finished once there is space again."""
    done = subprocess.run(
        [sys.executable, "-m", "support.two_drivers", str(disk.path / "run"), "50", "1", trouble],
        cwd=TESTS,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(done.stdout.split()) == 50
    assert len(set(done.stdout.split())) > 5  # trials were finished between the kills
    reason = {"full": "No space left on device", "read-only": "Read-only file system"}[trouble]
    assert reason in done.stderr  # drivers met the trouble, and said so


@pytest.mark.parametrize(
    "command",
    [
        ["train", "TABLE", "--drop", "id,race", *ROLE_FLAGS, "--out", "DISK/m"],
        ["train", "TABLE", "--drop", "id,race", *ROLE_FLAGS, "--out", "OTHER", "--save-test", "DISK/t.csv"],
        ["predict", "MODEL", "TABLE", "--out", "DISK/p.csv"],
        ["audit", "MODEL", "TABLE", *ROLE_FLAGS, "--html", "DISK/a.html"],
        ["demo", "--methods", "unconstrained", "--out", "DISK/demo"],
        ["compare", "TABLE", "--drop", "id,race", *ROLE_FLAGS, "--out", "DISK/run"],
    ],
    ids=lambda command: f"{command[0]}-{command[-1].rpartition('/')[2]}",
)
def test_fault_26_a_read_only_place_is_noticed_before_the_work(
    shell, model, loans_csv, disk, tmp_path, command, monkeypatch
):
    disk.make_read_only()
    places = {"TABLE": loans_csv, "MODEL": model, "OTHER": tmp_path / "other"}
    arguments = [str(places.get(word, word)).replace("DISK", str(disk.path)) for word in command]

    def work(*_, **__):
        raise AssertionError("the work has begun")

    monkeypatch.setattr("gcig.methods.base.NetworkClassifier.fit", work)
    monkeypatch.setattr("gcig.auditing.audits.measure_once", work)
    code, out, err = shell(*arguments, "--quiet")
    assert (code, out) == (2, "")
    assert "Read-only file system" in err


def test_fault_26_a_torn_file_is_refused(loans_csv, model, shell, tmp_path):
    torn = tmp_path / "torn"
    torn.mkdir()
    for file in model.iterdir():
        content = file.read_bytes()
        (torn / file.name).write_bytes(content[: len(content) // 2] if "tensors" in file.name else content)
    code, _, err = shell("predict", torn, loans_csv)
    assert code == 2
    assert "is not the file that was saved" in err
    parquet = tmp_path / "torn.parquet"
    make_raw_loans(50).to_parquet(parquet)
    parquet.write_bytes(parquet.read_bytes()[:-200])
    code, _, err = shell("predict", model, parquet)
    assert code == 2
    assert "damaged Parquet file" in err
