"""Atomic writing: errors, crashes, permissions, links and pipes."""

import errno
import hashlib
import os
import signal
import subprocess
import sys
import threading

import pytest

from gcig._files import atomic_path, hash_file, read_json, sync_folder, write_atomically

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
posix = pytest.mark.skipif(os.name != "posix", reason="permissions, links and pipes of POSIX")


def raising(error):
    def fail(*_):
        raise error

    return fail


@pytest.mark.parametrize("content", [b"\xff{}", b"{", b"[" * 100_000, b"9" * 5000, b""])
def test_a_file_that_is_not_json_is_an_error_with_its_name(tmp_path, content):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.json is not JSON: it is damaged, or a different kind of file"):
        read_json(tmp_path / "a.json")


def test_a_large_json_file_is_not_read(tmp_path):
    with open(tmp_path / "a.json", "wb") as file:
        file.truncate(2**34)  # sparse: it takes no room
    with pytest.raises(ValueError, match=r"a\.json has more than 67108864 bytes"):
        read_json(tmp_path / "a.json")
    (tmp_path / "a.json").write_text('{"a": 1}')
    assert read_json(tmp_path / "a.json", 8) == {"a": 1}
    with pytest.raises(ValueError, match="more than 7 bytes"):
        read_json(tmp_path / "a.json", 7)


@pytest.mark.parametrize("content", ["Größe\n", b"\x00\xff", "", "a\r\nb\n"])
def test_a_file_holds_exactly_what_was_written(tmp_path, content):
    path = tmp_path / "file"
    for _ in range(2):  # a new file, and one that is replaced
        write_atomically(str(path), content)
        assert path.read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_the_old_file_stays_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with atomic_path(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
        assert temporary.parent == path.parent  # a rename between two disks would be a copy
        assert temporary.match(".file.*.tmp")
    assert path.read_text() == "new"


def test_two_writers_do_not_share_a_temporary_file(tmp_path):
    with atomic_path(tmp_path / "file") as one, atomic_path(tmp_path / "file") as other:
        one.write_text("one")
        other.write_text("other")
    assert (tmp_path / "file").read_text() == "one"


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("error", [FULL, KeyboardInterrupt()], ids=["full", "interrupt"])
@pytest.mark.parametrize("before", [None, "old"])
def test_a_failure_leaves_only_the_old_file(tmp_path, monkeypatch, step, error, before):
    path = tmp_path / "file"
    if before is not None:
        path.write_text(before)
    monkeypatch.setattr(os, step, raising(error))
    with pytest.raises(type(error)):
        write_atomically(path, "new")
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == ({"file": "old"} if before else {})


def test_an_error_of_the_writer_leaves_the_old_file(tmp_path):
    def write_half(path):
        with atomic_path(path) as temporary:
            temporary.write_text("half")
            raise ZeroDivisionError

    (tmp_path / "file").write_text("old")
    with pytest.raises(ZeroDivisionError):
        write_half(tmp_path / "file")
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"file": "old"}


@pytest.mark.parametrize("place", ["missing/file", "folder"])
def test_impossible_paths_are_errors(tmp_path, place):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match=r"No such file|directory"):
        write_atomically(tmp_path / place, "new")
    assert [each.name for each in tmp_path.iterdir()] == ["folder"]


def test_content_reaches_the_disk_before_the_rename(tmp_path, monkeypatch):
    """And the name is, before the call returns."""
    calls = []

    def recorded(name, function):
        def call(*args):
            calls.append(name)
            return function(*args)

        return call

    for name in ("fsync", "replace"):
        monkeypatch.setattr(os, name, recorded(name, getattr(os, name)))
    write_atomically(tmp_path / "file", "new")
    folder = ["fsync"] if hasattr(os, "O_DIRECTORY") else []
    assert calls == ["fsync", "replace", *folder]


@posix
def test_a_file_keeps_its_permissions_and_a_new_one_follows_the_umask(tmp_path):
    private, new = tmp_path / "private", tmp_path / "new"
    private.touch(0o600)
    before = os.umask(0o027)
    try:
        with atomic_path(private) as temporary:
            temporary.write_text("secret")
            assert temporary.stat().st_mode & 0o777 == 0o600
        write_atomically(new, "x")
    finally:
        os.umask(before)
    assert private.stat().st_mode & 0o777 == 0o600
    assert new.stat().st_mode & 0o777 == 0o640
    new.chmod(0o444)
    write_atomically(new, "y")
    assert (new.read_text(), new.stat().st_mode & 0o777) == ("y", 0o444)


@posix
def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    target, link = tmp_path / "elsewhere" / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    write_atomically(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    target.unlink()
    write_atomically(link, "newer")  # one that points to nothing yet
    assert link.is_symlink()
    assert target.read_text() == "newer"


@posix
def test_a_pipe_is_written_to_and_stays(tmp_path):
    pipe, received = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: received.append(pipe.read_text()))
    reader.start()
    write_atomically(pipe, "through")
    reader.join(10)
    assert received == ["through"]
    assert pipe.is_fifo()


@posix
def test_a_killed_process_leaves_the_old_file(tmp_path):
    (tmp_path / "file").write_text("old")
    code = (
        "import os, signal, sys; from gcig._files import atomic_path\n"
        "with atomic_path(sys.argv[1]) as temporary:\n"
        "    temporary.write_text('half'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path / "file")], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert (tmp_path / "file").read_text() == "old"
    write_atomically(tmp_path / "file", "new")  # what was left behind is in nobody's way
    assert (tmp_path / "file").read_text() == "new"


def test_a_folder_is_synchronised_if_the_system_supports_it(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: seen.append(os.fstat(descriptor).st_ino))
    sync_folder(tmp_path)
    if hasattr(os, "O_DIRECTORY"):
        assert seen == [tmp_path.stat().st_ino]
    monkeypatch.delattr(os, "O_DIRECTORY", raising=False)
    sync_folder(tmp_path)
    assert len(seen) <= 1


@pytest.mark.parametrize("size", [0, 1, 2**18, 2**21 + 1])
def test_a_hash_is_of_all_bytes(tmp_path, size):
    content = os.urandom(size)
    (tmp_path / "file").write_bytes(content)
    assert hash_file(tmp_path / "file") == hashlib.sha256(content).hexdigest()
