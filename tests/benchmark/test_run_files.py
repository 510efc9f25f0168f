import os
import subprocess
import sys

import pytest

from gcig.benchmark.run_files import RunError, claim, exclusive_claim

HOLD = """
import sys, time
from pathlib import Path
from gcig.benchmark.run_files import claim
with claim(Path(sys.argv[1])) as ours:
    print(ours, flush=True)
    time.sleep(60)
"""


def test_a_claim_is_held_by_one_at_a_time(tmp_path):
    path = tmp_path / "claims" / "a"
    with claim(path) as first, claim(path) as second:
        assert first
        assert not second
    with claim(path) as again:
        assert again
    assert not path.exists()


def test_the_claim_of_a_killed_process_is_free(tmp_path):
    path = tmp_path / "a"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "True\n"
    with claim(path) as ours:
        assert not ours
    holder.kill()
    holder.wait()
    holder.stdout.close()
    with claim(path) as ours:
        assert ours


def test_a_claim_on_a_removed_file_fails(tmp_path, monkeypatch):
    path = tmp_path / "a"
    open_file = os.open

    def open_and_lose(name, *arguments):
        descriptor = open_file(name, *arguments)
        os.unlink(name)
        return descriptor

    monkeypatch.setattr(os, "open", open_and_lose)
    with claim(path) as ours:
        assert not ours


def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path):
    (tmp_path / "claims").write_text("a file")
    with pytest.raises(RunError, match="could not write"), claim(tmp_path / "claims" / "a"):
        pass


def test_exclusive_claim_waits_for_the_holder(tmp_path):
    path = tmp_path / "a"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "True\n"
    with pytest.raises(RunError, match="another process holds"), exclusive_claim(path, patience=0):
        pass  # pragma: no cover
    holder.kill()
    with exclusive_claim(path), claim(path) as second:
        assert not second
    holder.wait()
    holder.stdout.close()
