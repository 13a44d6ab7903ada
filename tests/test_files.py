import errno
import hashlib
import os

import pytest

from diptych.errors import DataError
from diptych.files import atomic_write, file_hash, read_json, write_json, write_text


def test_a_file_is_whole_or_not_there(tmp_path):
    path = tmp_path / "folder" / "file.txt"
    with pytest.raises(RuntimeError), atomic_write(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError("killed in the middle")
    assert list(path.parent.iterdir()) == []
    write_text(path, "whole")
    assert path.read_text() == "whole"


def test_a_full_disk_leaves_the_file_before(tmp_path, monkeypatch):
    path = tmp_path / "file.txt"
    write_text(path, "before")

    def full(_descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_text(path, "after")
    assert path.read_text() == "before"
    assert [file.name for file in tmp_path.iterdir()] == ["file.txt"]


def test_json_comes_back(tmp_path):
    write_json(tmp_path / "a.json", {"ä": [1, None]})
    assert read_json(tmp_path / "a.json", DataError) == {"ä": [1, None]}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "no such file"),
        (b'{"a":\n 1', ":2: not valid JSON"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"", ":1: not valid"),
    ],
)
def test_broken_json_is_one_line(tmp_path, content, words):
    path = tmp_path / "a.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError) as raised:
        read_json(path, DataError)
    assert words in str(raised.value)
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
