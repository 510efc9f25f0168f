"""The shell as a separate process: pipes, terminals and Ctrl-C."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time

import pytest

from example_tables import QUICK_FLAGS, ROLE_FLAGS, make_raw_loans

pytestmark = pytest.mark.skipif(os.name != "posix", reason="pipes, terminals and signals of Unix")
GCIG = [sys.executable, "-c", "import sys; from gcig.cli import main; sys.exit(main())"]


def on_a_terminal(arguments, seconds=60):
    """Return the exit code of a command and everything that it writes to a terminal."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(ours, (24, 80))
    process = subprocess.Popen([*GCIG, *map(str, arguments)], stdout=theirs, stderr=theirs, stdin=theirs)
    os.close(theirs)
    shown, end = b"", time.monotonic() + seconds
    while time.monotonic() < end and select.select([ours], [], [], seconds)[0]:
        try:
            shown += os.read(ours, 65_536)
        except OSError:  # the other side is closed
            break
    os.close(ours)
    return process.wait(seconds), shown.decode()


@pytest.mark.slow
def test_a_pipe_gets_the_result_alone(model, loans_csv):
    run = subprocess.run(
        [*GCIG, "predict", str(model), "-", "--id", "id"],
        input=loans_csv.read_bytes(),
        capture_output=True,
        check=True,
    )
    lines = run.stdout.decode().splitlines()
    assert lines[0] == "id,probability,decision"
    assert len(lines) == 241
    assert run.stderr == b""


@pytest.mark.slow
def test_a_reader_that_stops_early_is_not_an_error(model, loans_csv):
    head = "import sys; print(sys.stdin.readline())"
    predicting = subprocess.Popen(
        [*GCIG, "predict", str(model), str(loans_csv), "--rows-at-once", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    done = subprocess.run(
        [sys.executable, "-c", head], stdin=predicting.stdout, capture_output=True, check=True
    )
    predicting.stdout.close()
    assert done.stdout.startswith(b"probability,decision")
    errors = predicting.stderr.read()
    predicting.stderr.close()
    assert predicting.wait(60) in (0, 141)
    assert b"Traceback" not in errors
    assert b"error" not in errors


def test_a_terminal_shows_a_bar(model, loans_csv, tmp_path):
    pytest.importorskip("tqdm")
    code, shown = on_a_terminal(
        ["predict", model, loans_csv, "--rows-at-once", "60", "--out", tmp_path / "d.csv"]
    )
    assert code == 0
    assert "Predicting: " in shown
    assert "/240 " in shown
    assert "240 rows written" in shown


@pytest.mark.slow
def test_ctrl_c_leaves_no_partial_model(loans_csv, tmp_path):
    out = tmp_path / "model"
    arguments = [*ROLE_FLAGS, "--drop", "id", "--out", str(out), "--epochs", "100000", "--device", "cpu"]
    process = subprocess.Popen(
        [*GCIG, "train", str(loans_csv), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in process.stderr:
        if line.startswith("Training"):
            break
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    printed, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert printed == ""
    assert errors.splitlines()[-1] == "gcig: stopped"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_path_of_a_new_user(tmp_path):
    """Run all commands of a first session, starting with one file in an empty folder."""
    make_raw_loans(800).to_csv(tmp_path / "loans.csv", index=False)

    def gcig(*arguments, code=0):
        run = subprocess.run(
            [*GCIG, *map(str, arguments)], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert run.returncode == code, run.stderr
        return run.stdout

    drop = ["--drop", "id", "--out", "model", "--save-test", "test.csv", *QUICK_FLAGS]
    assert "Effective columns" in gcig("train", "loans.csv", *ROLE_FLAGS, *drop)
    assert (tmp_path / "model" / "report.html").stat().st_size > 10_000
    assert len(gcig("predict", "model", "test.csv", "--id", "id").splitlines()) == 201
    report = json.loads((tmp_path / "model" / "report.json").read_text())
    assert report["data"]["file"] == "loans.csv"
    roles = ["--target", "approved", "--sensitive", "sex"]
    assert "GCIG" in gcig("audit", "model", "test.csv", *roles, "--html", "audit.html")
    assert "above" in gcig("audit", "model", "test.csv", *roles, "--max-gcig", "0.000001", code=1)
    gcig("audit", "model", "test.csv", "--target", "nothing", "--sensitive", "sex", code=2)
