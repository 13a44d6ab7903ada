import errno
import hashlib
import os
import stat
import subprocess
import sys

import pytest

from diptych.errors import DataError
from diptych.files import (
    atomic_write,
    file_hash,
    locked_file,
    locked_folder,
    read_json,
    remove_leftovers,
    write_json,
    write_text,
)


def test_a_file_is_complete_or_absent(tmp_path):
    path = tmp_path / "folder" / "file.txt"
    with pytest.raises(RuntimeError), atomic_write(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError("killed in the middle")
    assert list(path.parent.iterdir()) == []
    write_text(path, "whole")
    assert path.read_text() == "whole"


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file.txt"
    write_text(path, "before")

    def full(_descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_text(path, "after")
    assert path.read_text() == "before"
    assert [file.name for file in tmp_path.iterdir()] == ["file.txt"]


def test_a_full_disk_is_reported_with_the_file(tmp_path):
    with pytest.raises(OSError, match="No space left on device") as raised, atomic_write(tmp_path / "a"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert raised.value.filename == str(tmp_path / "a")


def test_json_round_trip(tmp_path):
    write_json(tmp_path / "a.json", {"ä": [1, None]})
    assert read_json(tmp_path / "a.json", DataError) == {"ä": [1, None]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        (b'{"a":\n 1', ":2: not valid JSON"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"", ":1: not valid"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_broken_json_is_one_line(tmp_path, content, message):
    path = tmp_path / "a.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError) as raised:
        read_json(path, DataError)
    assert message in str(raised.value)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_hash_depends_only_on_the_content(tmp_path):
    contents = {"photo.jpg": b"first content", "copy.png": b"first content", "other.jpg": b"other content"}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    assert file_hash(tmp_path / "photo.jpg") == hashlib.sha256(b"first content").hexdigest()
    assert file_hash(tmp_path / "photo.jpg") == file_hash(tmp_path / "copy.png")
    assert file_hash(tmp_path / "photo.jpg") != file_hash(tmp_path / "other.jpg")


def test_hashing_a_pipe_is_refused_instead_of_waiting_for_it(tmp_path):
    os.mkfifo(tmp_path / "pipe.jpg")
    with pytest.raises(OSError, match="not an ordinary file"):
        file_hash(tmp_path / "pipe.jpg")


def test_a_folder_is_not_overwritten_by_a_file(tmp_path):
    with pytest.raises(IsADirectoryError, match="is a folder; name a file"):
        write_text(tmp_path, "text")


def test_new_files_have_the_usual_permissions(tmp_path):
    (tmp_path / "usual").touch()
    write_text(tmp_path / "atomic", "text")
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("usual", "atomic")}
    assert len(modes) == 1


def test_leftovers_are_removed_and_nothing_else(tmp_path):
    (tmp_path / "below").mkdir()
    for name in (".a.json.x1.tmp", "below/.tmpY2", "below/a.tmp", ".hidden"):
        (tmp_path / name).touch()
    remove_leftovers(tmp_path)
    assert sorted(file.name for file in tmp_path.rglob("*")) == [".hidden", "a.tmp", "below"]


LOCK = """
import sys
from pathlib import Path
from diptych import files
from diptych.errors import RunError

with getattr(files, sys.argv[1])(Path(sys.argv[2]), RunError):
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(params=[locked_folder, locked_file])
def locked_elsewhere(request, tmp_path):
    """A lock, its path, and another process that holds it until its input is closed."""
    path = tmp_path / "thing"
    arguments = [sys.executable, "-c", LOCK, request.param.__name__, str(path)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "locked\n"
        yield request.param, path, process
        process.stdin.close()


def test_a_second_process_is_refused_with_the_first_ones_id(locked_elsewhere):
    lock, path, process = locked_elsewhere
    with pytest.raises(DataError) as raised, lock(path, DataError):
        pass
    assert str(raised.value) == f"{path}: process {process.pid} is writing to it; wait for it or end it"


def test_a_lock_ends_with_its_process(locked_elsewhere):
    lock, path, process = locked_elsewhere
    process.kill()
    process.wait()
    with lock(path, DataError):
        pass


def test_waiting_for_a_lock(tmp_path, monkeypatch):
    """The lock is released while the second one waits."""
    path = tmp_path / "thing"
    first = locked_file(path, DataError)
    first.__enter__()
    monkeypatch.setattr("time.sleep", lambda _seconds: first.__exit__(None, None, None))
    with locked_file(path, DataError, timeout=60):
        assert [file.name for file in tmp_path.iterdir()] == [".thing.lock"]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path, monkeypatch):
    def denied(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", denied)
    with pytest.raises(DataError, match="its folder cannot be written to"), locked_file(tmp_path / "a", DataError):
        pass
