"""Folders of JSON and tensors: exact round trips, whole writes, and refusal of everything odd."""

import errno
import hashlib
import json
import math
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gcig.persistence as folders
from gcig.persistence import (
    MAX_MANIFEST_BYTES,
    MAX_TENSORS_BYTES,
    REPORT_FILES,
    PersistenceError,
    check_replaceable,
    load_folder,
    save_folder,
)
from support.model_mutations import Bomb, replace_tensors, reseal, tensors_file

DOCUMENT = {"threshold": 0.1, "columns": ["age", "sex"], "nested": {"on": True, "none": None}}
TENSORS = {
    "layers.0.weight": torch.arange(6.0).reshape(2, 3),
    "mean": torch.tensor([0.1, math.nan], dtype=torch.float64),
}


@pytest.fixture
def saved(tmp_path):
    save_folder(tmp_path / "model", DOCUMENT, TENSORS, kind="fairx")
    return tmp_path / "model"


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# --- round trips --------------------------------------------------------------------------------------


def test_round_trip(saved):
    document, tensors = load_folder(saved, kind="fairx")
    assert document == DOCUMENT
    assert torch.equal(tensors["layers.0.weight"], TENSORS["layers.0.weight"])
    assert tensors["mean"].dtype == torch.float64
    assert tensors["mean"].numpy().tobytes() == TENSORS["mean"].numpy().tobytes()
    assert contents(saved).keys() == {"model.json", tensors_file(saved).name}


def test_the_manifest_names_the_kind_the_versions_and_the_tensors(saved):
    manifest = json.loads((saved / "model.json").read_text())
    assert manifest["kind"] == "fairx"
    assert manifest["format_version"] == 2
    assert manifest["versions"].keys() == {"gcig", "python", "torch"}
    data = tensors_file(saved).read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    name = f"tensors-{digest[:16]}.safetensors"
    assert manifest["tensors"] == {"file": name, "sha256": digest, "size": len(data)}


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=40)
@given(document=st.dictionaries(st.text(), plain, max_size=4))
def test_any_plain_document_comes_back_exactly(tmp_path_factory, document):
    path = tmp_path_factory.mktemp("any") / "model"
    save_folder(path, document, {}, kind="x")
    loaded, tensors = load_folder(path)
    assert repr(sort(loaded)) == repr(sort(document))  # repr tells -0.0 from 0.0, and 1 from 1.0
    assert tensors == {}


def sort(value):
    if isinstance(value, dict):
        return {key: sort(value[key]) for key in sorted(value)}
    return [sort(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.float64, torch.int64, torch.uint8, torch.bool], ids=str
)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 2), (2, 3)])
def test_tensors_of_any_shape_and_dtype_come_back(tmp_path, dtype, shape):
    tensor = torch.arange(math.prod(shape)).reshape(shape).to(dtype)
    save_folder(tmp_path / "m", {}, {"a": tensor}, kind="x")
    loaded = load_folder(tmp_path / "m")[1]["a"]
    assert (loaded.shape, loaded.dtype) == (tensor.shape, dtype)
    assert torch.equal(loaded, tensor)


def test_views_shared_memory_and_graphs_are_stored_as_values(tmp_path):
    base = torch.randn(4, 3, requires_grad=True)
    save_folder(tmp_path / "m", {}, {"base": base, "turned": base.T, "half": base[::2].bfloat16()}, kind="x")
    tensors = load_folder(tmp_path / "m")[1]
    assert torch.equal(tensors["turned"], base.T)
    assert torch.equal(tensors["half"], base[::2].bfloat16())
    assert not tensors["base"].requires_grad
    tensors["base"].zero_()  # writable, and nobody else's memory
    assert tensors["turned"].any()


def test_equal_content_gives_equal_bytes(saved, tmp_path):
    reordered = dict(reversed(DOCUMENT.items())), dict(reversed(TENSORS.items()))
    save_folder(tmp_path / "twin", *reordered, kind="fairx")
    assert contents(tmp_path / "twin") == contents(saved)


# --- what cannot be stored ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"a": [1, {"b": math.nan}]}, "Out of range float values"),
        ({"a": -math.inf}, "Out of range float values"),
        ({"a": {1, 2}}, "type set is not JSON"),
        ({"a": np.zeros(2)}, "type ndarray is not JSON"),
        ({"a": print}, "type builtin_function_or_method is not JSON"),
    ],
)
def test_documents_that_json_cannot_hold(tmp_path, document, message):
    with pytest.raises(PersistenceError, match=message):
        save_folder(tmp_path / "m", document, {}, kind="x")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("tensor", [torch.eye(2).to_sparse(), torch.zeros(2, device="meta")])
def test_tensors_without_dense_values(tmp_path, tensor):
    with pytest.raises(PersistenceError, match="only dense tensors"):
        save_folder(tmp_path / "m", {}, {"a": tensor}, kind="x")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "name", ["", "..", "../a", "a/b", "a\\b", "a..b", "a\nb", ".a", "a\0b", "__metadata__"]
)
def test_tensor_names_are_no_paths(tmp_path, name):
    with pytest.raises(PersistenceError, match="a tensor may not be called"):
        save_folder(tmp_path / "m", {}, {name: torch.zeros(1)}, kind="x")


@pytest.mark.parametrize("kind", ["", "../x", "a b", "<script>", "x" * 65])
def test_kinds_are_short_words(tmp_path, kind):
    with pytest.raises(PersistenceError, match="kind must be"):
        save_folder(tmp_path / "m", {}, {}, kind=kind)


def test_files_too_large_to_load_are_not_saved(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "MAX_MANIFEST_BYTES", 100)
    with pytest.raises(PersistenceError, match=r"model.json would have \d+ bytes; at most 100"):
        save_folder(tmp_path / "m", {"a": "x" * 100}, {}, kind="x")
    monkeypatch.undo()
    monkeypatch.setattr(folders, "MAX_TENSORS_BYTES", 100)
    with pytest.raises(PersistenceError, match=r"tensors-.* would have \d+ bytes; at most 100"):
        save_folder(tmp_path / "m", {}, {"a": torch.zeros(100)}, kind="x")
    assert not any(tmp_path.iterdir())


# --- replacing ----------------------------------------------------------------------------------------


def test_a_saved_model_is_replaced(saved):
    save_folder(saved, {"new": 1}, {}, kind="other")
    assert load_folder(saved, kind="other") == ({"new": 1}, {})
    assert contents(saved).keys() == {"model.json", tensors_file(saved).name}
    assert [path.name for path in saved.parent.iterdir()] == ["model"]


def test_a_model_with_the_same_tensors_is_replaced(saved):
    save_folder(saved, {"new": 1}, TENSORS, kind="fairx")
    assert load_folder(saved)[0] == {"new": 1}
    assert contents(saved).keys() == {"model.json", tensors_file(saved).name}


def test_an_empty_folder_is_filled_and_parents_are_made(tmp_path):
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "a" / "b" / "model"):
        save_folder(path, DOCUMENT, {}, kind="x")
        assert load_folder(path)[0] == DOCUMENT
    assert {path.name for path in tmp_path.iterdir()} == {"empty", "a"}


def test_a_relative_path_with_a_slash(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_folder("model/", DOCUMENT, {}, kind="x")
    assert load_folder("model/")[0] == DOCUMENT


def test_other_folders_and_files_are_never_replaced(tmp_path):
    photos, file, link = tmp_path / "photos", tmp_path / "file", tmp_path / "link"
    photos.mkdir()
    (photos / "cat.jpg").write_bytes(b"cat")
    file.write_bytes(b"data")
    link.symlink_to(photos)
    for path, message in [(photos, "holds no saved model"), (file, "is a file"), (link, "is a link")]:
        with pytest.raises(PersistenceError, match=message):
            save_folder(path, DOCUMENT, {}, kind="x")
    assert contents(photos) == {"cat.jpg": b"cat"}
    assert file.read_bytes() == b"data"


def test_a_foreign_manifest_does_not_make_a_model_folder(tmp_path):
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "model.json").write_text('{"name": "app"}')
    with pytest.raises(PersistenceError, match="does not describe a saved gcig model"):
        save_folder(tmp_path / "web", DOCUMENT, {}, kind="x")


def test_files_that_users_put_into_a_model_folder_are_not_lost(saved):
    (saved / "notes.txt").write_text("report")
    with pytest.raises(PersistenceError, match=r"holds more than a saved model \('notes.txt'\)"):
        save_folder(saved, {"new": 1}, {}, kind="x")
    assert load_folder(saved)[0] == DOCUMENT


def test_a_report_on_a_model_goes_with_the_model(saved):
    for name in REPORT_FILES:
        (saved / name).write_text("on the old model")
    check_replaceable(saved)
    save_folder(saved, {"new": 1}, {}, kind="x")
    assert contents(saved).keys() == {"model.json", tensors_file(saved).name}


def test_what_a_killed_process_left_is_no_obstacle(saved, tmp_path):
    left = {"tensors-0123456789abcdef.safetensors", ".model.json.0123abcd.tmp"}
    (tmp_path / "new").mkdir()
    for folder in (saved, tmp_path / "new"):
        for name in left:
            (folder / name).write_bytes(b"half")
        save_folder(folder, {"new": 1}, {}, kind="x")
        assert load_folder(folder)[0] == {"new": 1}


# --- crashes and disks --------------------------------------------------------------------------------


def fail_at(patch, step, error):
    """Let the call with this number, counted over four functions of the system, raise an error."""
    calls = []

    def counted(function):
        def call(*args, **kwargs):
            calls.append(function.__name__)
            if len(calls) == step:
                raise error
            return function(*args, **kwargs)

        return call

    for function in (os.mkdir, os.fsync, os.replace, os.unlink):
        patch.setattr(os, function.__name__, counted(function))


# The first two calls make the parent and the folder, which exist; the last ones are not reached.
@pytest.mark.parametrize("step", range(3, 13))
@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()],
    ids=["full", "interrupt"],
)
def test_a_failure_at_any_step_leaves_a_whole_model_and_no_rubbish(saved, monkeypatch, step, error):
    before = contents(saved)
    with monkeypatch.context() as patch:
        fail_at(patch, step, error)
        try:
            save_folder(saved, {"new": 1}, {}, kind="x")
        except (PersistenceError, KeyboardInterrupt) as raised:
            failed = str(raised)
        else:
            failed = None
    if failed is not None and isinstance(error, OSError):
        assert "No space left on device; a model that was there before is unchanged" in failed
    document, _ = load_folder(saved)
    assert document == {"new": 1} or (failed is not None and contents(saved) == before)
    assert not list(saved.glob(".*"))
    assert [path.name for path in saved.parent.iterdir()] == ["model"]


def test_a_full_disk_leaves_no_folder_behind(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        fail_at(patch, 3, OSError(errno.ENOSPC, "No space left on device"))
        with pytest.raises(PersistenceError, match="No space left on device"):
            save_folder(tmp_path / "model", DOCUMENT, TENSORS, kind="x")
    assert not any(tmp_path.iterdir())


SAVE_FOR_EVER = """
import sys, torch
from gcig.persistence import save_folder
turn = 0
while True:
    save_folder(sys.argv[1], {"turn": turn}, {"turn": torch.full((50_000,), turn)}, kind="x")
    if turn == 0:
        print("saved", flush=True)
    turn += 1
"""


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.01, 0.037, 0.1])
def test_a_killed_process_leaves_a_whole_model(tmp_path, delay):
    path = tmp_path / "model"
    command = [sys.executable, "-c", SAVE_FOR_EVER, str(path)]
    environment = os.environ | {"PYTHONPATH": str(Path(folders.__file__).parents[1])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout.readline() == b"saved\n"
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
    document, tensors = load_folder(path)
    assert (tensors["turn"] == document["turn"]).all()


# --- what is refused on loading -----------------------------------------------------------------------


def test_missing_things(saved, tmp_path):
    with pytest.raises(PersistenceError, match="the path does not exist"):
        load_folder(tmp_path / "nowhere")
    with pytest.raises(PersistenceError, match="is a file, not a folder"):
        load_folder(saved / "model.json")
    for name in contents(saved):
        data = (saved / name).read_bytes()
        (saved / name).unlink()
        with pytest.raises(PersistenceError, match=f"{name} is missing"):
            load_folder(saved)
        (saved / name).write_bytes(data)


def test_another_kind(saved):
    with pytest.raises(PersistenceError, match="holds a 'fairx' where a 'hardt' is expected"):
        load_folder(saved, kind="hardt")


@pytest.mark.parametrize(
    "change", [lambda d: d[:-1], lambda d: d + b" ", lambda d: d[:-2] + bytes([d[-2] ^ 1]) + d[-1:]]
)
def test_changed_or_torn_tensors_are_named(saved, change):
    path = tensors_file(saved)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(PersistenceError, match=f"{path.name} is not the file that was saved"):
        load_folder(saved)


def test_every_byte_of_the_manifest_counts(saved):
    data = (saved / "model.json").read_bytes()
    for position in range(len(data)):
        for changed in (
            data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :],
            data[:position],
            data[:position] + b" " + data[position:],
        ):
            (saved / "model.json").write_bytes(changed)
            with pytest.raises(PersistenceError, match=r"model\.json"):
                load_folder(saved)


def test_an_edited_manifest(saved):
    text = (saved / "model.json").read_text()
    (saved / "model.json").write_text(text.replace('"fairx"', '"hardt"'))
    with pytest.raises(PersistenceError, match=r"model\.json was changed after it was written"):
        load_folder(saved)


@pytest.mark.parametrize("version", [1, 3, None, "2"])
def test_an_unknown_format_version(saved, version):
    reseal(saved, format_version=version)
    with pytest.raises(PersistenceError, match=f"has format version {version!r}; gcig .* reads 2"):
        load_folder(saved)


def test_a_model_in_format_version_1_is_refused_and_not_replaced():
    folder = Path(__file__).parent / "saved" / "version-1"
    before = contents(folder)
    with pytest.raises(PersistenceError, match=r"version-1' was saved in format version 1.*fit and save"):
        load_folder(folder)
    with pytest.raises(PersistenceError, match=r"is not replaced.* was saved in format version 1"):
        save_folder(folder, DOCUMENT, TENSORS, kind="x")
    assert contents(folder) == before


@pytest.mark.parametrize(
    "tensors",
    [
        {"file": "../outside.safetensors", "sha256": "", "size": 0},
        {"file": "/etc/passwd", "sha256": "", "size": 0},
        {"file": "tensors.safetensors"},
        {"file": 3},
        {},
        [],
        None,
    ],
)
def test_a_manifest_that_names_other_files(saved, tensors):
    reseal(saved, tensors=tensors)
    with pytest.raises(PersistenceError, match=r"model\.json must have a kind, a document and one file"):
        load_folder(saved)


@pytest.mark.parametrize("listed", [{}, {"sha256": 1, "size": "x"}, {"sha256": "0" * 64, "size": 10}])
def test_a_manifest_without_checksums_of_the_tensors(saved, listed):
    name = tensors_file(saved).name
    reseal(saved, tensors={"file": name, **listed})
    with pytest.raises(PersistenceError, match=f"{name} is not the file that was saved"):
        load_folder(saved)


@pytest.mark.parametrize(
    "changes", [{"kind": None}, {"kind": 3}, {"document": None}, {"document": []}], ids=str
)
def test_a_manifest_without_a_kind_or_a_document(saved, changes):
    reseal(saved, **changes)
    with pytest.raises(PersistenceError, match=r"model\.json must have a kind"):
        load_folder(saved)


@pytest.mark.parametrize("of_tensors", [False, True])
def test_huge_files_are_refused_before_they_are_read(saved, monkeypatch, of_tensors):
    path = tensors_file(saved) if of_tensors else saved / "model.json"
    limit = MAX_TENSORS_BYTES if of_tensors else MAX_MANIFEST_BYTES
    os.truncate(path, 10 * 2**30)  # sparse: takes no disk
    reads = []
    real = os.fstat
    monkeypatch.setattr(
        os, "fstat", lambda descriptor: reads.append(os.lseek(descriptor, 0, os.SEEK_CUR)) or real(descriptor)
    )
    with pytest.raises(
        PersistenceError, match=f"{path.name} has {10 * 2**30} bytes; at most {limit} are read"
    ):
        load_folder(saved)
    assert set(reads) == {0}


@pytest.mark.parametrize("of_tensors", [False, True])
def test_links_pipes_and_folders_are_not_followed(saved, of_tensors):
    path = tensors_file(saved) if of_tensors else saved / "model.json"
    moved = saved.parent / "elsewhere"
    path.rename(moved)
    path.symlink_to(moved)
    with pytest.raises(PersistenceError, match=f"{path.name} is a link"):
        load_folder(saved)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(PersistenceError, match=f"{path.name} is not a plain file"):
        load_folder(saved)
    path.unlink()
    path.mkdir()
    with pytest.raises(PersistenceError, match=path.name):
        load_folder(saved)


def test_a_link_to_a_whole_folder_is_the_users_own_choice(saved):
    link = saved.parent / "current"
    link.symlink_to(saved)
    assert load_folder(link)[0] == DOCUMENT


def test_a_pickle_is_refused_and_never_run(saved):
    crater = saved.parent / "crater"
    bomb = pickle.dumps(Bomb(crater))
    replace_tensors(saved, bomb)
    with pytest.raises(PersistenceError, match=r"tensors-.* is not a safetensors file .* no other format"):
        load_folder(saved)
    torch.save({"a": torch.zeros(1)}, saved.parent / "pickled")
    replace_tensors(saved, (saved.parent / "pickled").read_bytes())
    with pytest.raises(PersistenceError, match="is not a safetensors file"):
        load_folder(saved)
    assert not crater.exists()
    pickle.loads(bomb)
    assert crater.exists()  # the bomb was live


def test_hostile_tensor_names_and_headers(saved):
    replace_tensors(saved, safetensors.torch.save({"../a": torch.zeros(1)}))
    with pytest.raises(PersistenceError, match=r"tensors-.*\.safetensors has a tensor called '\.\./a'"):
        load_folder(saved)
    for header in (b"{}" * 9, b'{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,36]}}', b"[" * 10_000, b""):
        replace_tensors(saved, len(header).to_bytes(8, "little") + header)
        with pytest.raises(PersistenceError, match="is not a safetensors file"):
            load_folder(saved)


SEALED = b'{"format": "gcig", "format_version": 2, '


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SEALED + b'"a": NaN}', "was changed after it was written"),
        (SEALED + b'"a": 1e999}', "was changed after it was written"),
        (SEALED + b'"a": 1, "a": 2}', "was changed after it was written"),
        (SEALED + b'"a": ' + b"[" * 300 + b"]" * 300 + b"}", "was changed after it was written"),
        (b"[1, 2]", "does not describe a saved gcig model"),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "not the JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not the JSON"),
        (b'{"a": "\xff"}', "not the JSON"),
        (b'{"a": 1', "not the JSON"),
        (b"", "not the JSON"),
        (b'\xef\xbb\xbf{"a": 1}', "not the JSON"),
    ],
)
def test_json_that_gcig_does_not_write(saved, text, message):
    (saved / "model.json").write_bytes(text)
    with pytest.raises(PersistenceError, match=f"model.json.*{message}"):
        load_folder(saved)


def test_errors_are_value_errors():
    assert issubclass(PersistenceError, ValueError)
