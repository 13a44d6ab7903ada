"""ZIP files that are streamed: their contents, names, and files that cannot be read."""

import io
import os
import random
import subprocess
import sys
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.serve.archive import BLOCK, UniqueNames, valid_name, zip_stream


def unpacked(stream):
    archive = zipfile.ZipFile(io.BytesIO(b"".join(stream)))
    assert archive.testzip() is None
    assert all(info.compress_type == zipfile.ZIP_STORED for info in archive.infolist())
    return {name: archive.read(name) for name in archive.namelist()}


def write(folder, name, content):
    (folder / name).write_bytes(content)
    return name, folder / name


def test_files_come_out_as_they_went_in(tmp_path):
    large = random.Random(0).randbytes(3 * BLOCK + 17)
    files = [write(tmp_path, "a.jpg", b"one"), write(tmp_path, "é 🏖.jpg", large), write(tmp_path, "empty", b"")]
    os.utime(tmp_path / "a.jpg", (1, 1))  # earlier than a ZIP can say
    assert unpacked(zip_stream(files)) == {"a.jpg": b"one", "é 🏖.jpg": large, "empty": b""}


def test_no_more_than_a_block_is_held(tmp_path):
    files = [write(tmp_path, f"{number}.jpg", bytes(5 * BLOCK)) for number in range(3)]
    assert max(map(len, zip_stream(files))) < BLOCK + 1000


def test_other_programs_can_read_it(tmp_path):
    archive = tmp_path / "a.zip"
    archive.write_bytes(b"".join(zip_stream([write(tmp_path, "a.jpg", b"one")], ["b.jpg: gone"])))
    subprocess.run([sys.executable, "-m", "zipfile", "-e", archive, tmp_path / "out"], check=True)
    assert (tmp_path / "out" / "a.jpg").read_bytes() == b"one"
    assert "b.jpg: gone" in (tmp_path / "out" / "missing.txt").read_text()


def test_equal_names_get_numbers_and_missing_files_are_listed(tmp_path):
    _, a = write(tmp_path, "a.jpg", b"one")
    _, b = write(tmp_path, "b.jpg", b"two")
    files = [("x/a.jpg", a), ("y/A.jpg", b), ("z/a.jpg", tmp_path / "gone.jpg"), ("missing.txt", a), ("a.jpg", b)]
    found = unpacked(zip_stream(files, ["line\nbreak: gone"]))
    missing = found.pop("missing.txt").decode()
    assert found == {"a.jpg": b"one", "A (2).jpg": b"two", "missing (2).txt": b"one", "a (3).jpg": b"two"}
    assert "z/a.jpg: cannot be read (No such file or directory)" in missing
    assert "line break: gone" in missing


def test_a_file_that_breaks_off_is_named_and_the_others_are_complete(tmp_path, monkeypatch):
    _, a = write(tmp_path, "a.jpg", bytes(2 * BLOCK))
    _, b = write(tmp_path, "b.jpg", b"two")
    opened = type(a).open

    class Breaking:
        def __init__(self, file):
            self._file, self.fileno = file, file.fileno

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self._file.close()

        def read(self, size):
            if self._file.tell():
                raise OSError(5, "Input/output error")
            return self._file.read(size)

    def open_breaking(path, mode):
        return Breaking(opened(path, mode)) if path == a else opened(path, mode)

    monkeypatch.setattr(type(a), "open", open_breaking)
    found = unpacked(zip_stream([("a.jpg", a), ("b.jpg", b)]))
    assert (len(found["a.jpg"]), found["b.jpg"]) == (BLOCK, b"two")
    assert "a.jpg: cannot be read (Input/output error)" in found["missing.txt"].decode()


def test_a_stream_that_nobody_reads_on_ends_quietly(tmp_path):
    stream = zip_stream([write(tmp_path, "a.jpg", bytes(9 * BLOCK))])
    next(stream)
    stream.close()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("holiday/a.jpg", "a.jpg"),
        ("a\nb\x07.jpg", "a_b_.jpg"),
        ('what? "x" <y>|*:.jpg', "what_ _x_ _y____.jpg"),
        ("..", "unnamed"),
        ("x" * 300 + ".jpg", "x" * 196 + ".jpg"),
        (" . ", "unnamed"),
        ("..\\..\\a.jpg", "_.._a.jpg"),
        ("\udcff.jpg", "?.jpg".replace("?", "_")),
    ],
)
def test_names_are_valid_on_every_system(name, expected):
    assert valid_name(name) == expected


@given(st.lists(st.text(alphabet="aAé/.\n(2) ", max_size=6), max_size=30))
def test_names_never_repeat(names):
    unique = UniqueNames(["missing.txt"])
    found = [unique.unique(name).casefold() for name in names]
    assert len(set(found)) == len(found)
    assert not any("/" in name or "\n" in name or name in ("", ".", "..") for name in found)
