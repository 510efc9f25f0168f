import errno
import math
import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from gcig.benchmark import fingerprints
from gcig.benchmark.execution import failed_result
from gcig.benchmark.store import (
    RunError,
    RunStore,
    RunWarning,
    claim,
    exclusive_claim,
    write_file,
)
from support.small_runs import one_trial, small_store, small_table

TRIAL = one_trial()
RESULT = failed_result(TRIAL, "no luck")
HOLD = """
import sys, time
from pathlib import Path
from gcig.benchmark.store import claim
held = claim(Path(sys.argv[1]))
print(held is not None, flush=True)
time.sleep(60)
"""


def file_of(store, trial=TRIAL):
    return store.path / "trials" / trial.file_name


def test_stored_results_are_read_back(tmp_path):
    store = small_store(tmp_path)
    store.put(TRIAL, RESULT)
    again = RunStore(tmp_path)
    assert again.get(TRIAL) == RESULT
    assert again.entries() == [(TRIAL, RESULT)]
    assert again.get(one_trial(fold=1)) is None


def test_predictions_are_stored_exactly(tmp_path):
    store = small_store(tmp_path)
    columns = {"score": (0.1, 1 / 3, 5e-324, -1.7e308), "label": (0.0, 1.0, 1.0, 0.0)}
    store.put(TRIAL, replace(RESULT, predictions=columns))
    assert store.get(TRIAL).predictions == columns


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda _: b"",
        lambda data: b"\0" * len(data),
        lambda data: data.replace(b"no luck", b"my luck"),
        lambda _: b"[" * 100_000,
        lambda _: b"[1]",
        lambda _: b'{"sha256": 1}',
    ],
)
def test_a_damaged_file_counts_as_missing(tmp_path, damage):
    store = small_store(tmp_path)
    store.put(TRIAL, RESULT)
    file = file_of(store)
    file.write_bytes(damage(file.read_bytes()))
    assert store.get(TRIAL) is None
    with pytest.warns(RunWarning, match="1 files .* damaged"):
        assert store.entries() == []
    store.put(TRIAL, RESULT)
    assert store.get(TRIAL) == RESULT


def test_a_result_under_the_wrong_file_name_counts_as_missing(tmp_path):
    store, other = small_store(tmp_path), one_trial(fold=1)
    store.put(other, RESULT)
    os.rename(file_of(store, other), file_of(store))
    assert store.get(TRIAL) is None


def test_other_data_is_refused_by_name(tmp_path):
    small_store(tmp_path, small_table())
    with pytest.raises(RunError, match=re.escape("data (small)")):
        small_store(tmp_path, small_table(seed=1))
    assert small_store(tmp_path, small_table()).path == tmp_path


def test_other_tables_are_added(tmp_path):
    small_store(tmp_path, small_table())
    store = small_store(tmp_path, small_table(seed=1, name="new"))
    assert set(store.manifest.data) == {"small", "new"}


def test_another_configuration_is_refused_with_what_changed(tmp_path):
    small_store(tmp_path, folds=5, seeds=[0])
    with pytest.raises(RunError, match=re.escape("configuration (folds, 5 before and 3 now)")):
        small_store(tmp_path, folds=3, seeds=[0])
    with pytest.raises(RunError, match=re.escape("configuration (more, null before and true now)")):
        small_store(tmp_path, folds=5, seeds=[0], more=True)


def test_other_code_is_refused_with_the_part_that_changed(tmp_path, monkeypatch):
    small_store(tmp_path)
    hashed = fingerprints._hash_sources
    changed = {"core": "other"}
    monkeypatch.setattr(
        fingerprints, "_hash_sources", lambda root, name: changed.get(name) or hashed(root, name)
    )
    with pytest.raises(RunError, match=re.escape("code (core)")):
        small_store(tmp_path)


def test_other_versions_are_a_warning(tmp_path, monkeypatch):
    small_store(tmp_path)
    monkeypatch.setattr(fingerprints, "version", lambda name: "99" if name == "torch" else "1")
    with pytest.warns(RunWarning, match=r'version \(torch, ".*" before and "99" now\)'):
        small_store(tmp_path)


def test_the_fingerprint_follows_the_sources(tmp_path):
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "a.py").write_text("x = 1\n")
    before = fingerprints._hash_sources(tmp_path, "core")
    (tmp_path / "core" / "a.py").write_bytes(b"x = 1\r\n")
    assert fingerprints._hash_sources(tmp_path, "core") == before  # line ends are no change
    (tmp_path / "core" / "a.py").write_text("x = 2\n")
    assert fingerprints._hash_sources(tmp_path, "core") != before


def test_fingerprints_cover_every_part_without_locations():
    parts = fingerprints.code_fingerprints(["fairx"])
    assert {"core", "methods", "training", "benchmark/execution"} <= set(parts)
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in parts.values())


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"format": 2}', '{"format": 1, "data": 3}', "[" * 100_000, "null"]
)
def test_an_edited_manifest_is_refused(tmp_path, content):
    small_store(tmp_path)
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(RunError, match="not the manifest of a run"):
        RunStore(tmp_path)


def test_a_huge_file_is_not_read(tmp_path):
    huge = tmp_path / "manifest.json"
    with open(huge, "wb") as file:
        file.truncate(2**34)
    with pytest.raises(RunError, match="not the manifest"):
        RunStore(tmp_path)


def test_a_folder_without_a_run_and_a_file_are_refused(tmp_path):
    with pytest.raises(RunError, match="no run in"):
        RunStore(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="is a file"):
        small_store(tmp_path / "file")


@pytest.mark.parametrize(("number", "words"), [(errno.ENOSPC, "No space left"), (errno.EROFS, "Read-only")])
def test_a_disk_that_cannot_be_written_is_one_clear_error(tmp_path, monkeypatch, number, words):
    store = small_store(tmp_path)
    store.put(TRIAL, RESULT)

    def fail(descriptor):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(RunError, match=f"{words}.*Finished trials are kept"):
        store.put(TRIAL, failed_result(TRIAL, "later"))
    monkeypatch.undo()
    assert store.get(TRIAL) == RESULT
    assert [file.name for file in (tmp_path / "trials").iterdir()] == [TRIAL.file_name]


def test_leftovers_of_a_killed_process_are_removed(tmp_path):
    store = small_store(tmp_path)
    store.put(TRIAL, RESULT)
    leftover = file_of(store).with_name(f".{TRIAL.file_name}.0a0a0a0a.tmp")
    leftover.write_text("half")
    store.put(TRIAL, RESULT)
    assert not leftover.exists()
    assert store.get(TRIAL) == RESULT


def test_missing_folders_are_created(tmp_path):
    write_file(tmp_path / "new" / "newer" / "a", b"one")
    write_file(tmp_path / "new" / "newer" / "a", "two")
    assert (tmp_path / "new" / "newer" / "a").read_bytes() == b"two"


def test_a_claim_is_held_by_one_at_a_time(tmp_path):
    path = tmp_path / "claims" / "a"
    first = claim(path)
    assert first is not None
    assert claim(path) is None
    first.release()
    assert claim(path) is not None


def test_the_claim_of_a_killed_process_is_free(tmp_path):
    path = tmp_path / "a"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "True\n"
    assert claim(path) is None
    holder.kill()
    holder.wait()
    holder.stdout.close()
    assert claim(path) is not None


def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path):
    (tmp_path / "claims").write_text("a file")
    with pytest.raises(RunError, match="could not write"):
        claim(tmp_path / "claims" / "a")


def test_exclusive_claim_waits_for_the_holder(tmp_path):
    path = tmp_path / "a"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "True\n"
    with pytest.raises(RunError, match="another process holds"), exclusive_claim(path, patience=0):
        pass  # pragma: no cover
    holder.kill()
    with exclusive_claim(path):
        assert claim(path) is None
    with exclusive_claim(path, patience=math.inf):
        assert claim(path) is None
    holder.wait()
    holder.stdout.close()
