from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from diptych.data.entities.archive import has_annotations, open_archive
from diptych.errors import DataError

FILES = {"Annotations/1.xml": b"<a/>", "Sentences/1.txt": b"a dog"}


def packed(folder: Path, prefix: str = "") -> Path:
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "annotations.zip", "w") as archive:
        for name, content in FILES.items():
            archive.writestr(prefix + name, content)
    return folder


def unpacked(folder: Path) -> Path:
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(content)
    return folder


def test_packed_and_unpacked_annotations_are_the_same(tmp_path: Path) -> None:
    for folder in (packed(tmp_path / "zip"), packed(tmp_path / "below", "entities/"), unpacked(tmp_path / "folders")):
        assert has_annotations(folder)
        archive = open_archive(folder)
        assert all(name in archive and archive.read(name) == content for name, content in FILES.items())
        assert "Annotations/2.xml" not in archive
        assert "Annotations/../Sentences/1.txt" not in archive


def test_the_unpacked_files_come_first(tmp_path: Path) -> None:
    folder = unpacked(packed(tmp_path / "both"))
    (folder / "Sentences/1.txt").write_bytes(b"edited")
    assert open_archive(folder).path == folder
    assert open_archive(folder).read("Sentences/1.txt") == b"edited"


def test_a_folder_without_annotations(tmp_path: Path) -> None:
    assert not has_annotations(tmp_path)
    with pytest.raises(DataError, match=r"no annotations; put annotations\.zip in it"):
        open_archive(tmp_path)


@pytest.mark.parametrize("kind", ["zip", "folders"])
def test_a_file_that_is_far_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr("diptych.data.entities.archive._MAX_BYTES", 4)
    archive = open_archive(packed(tmp_path / kind) if kind == "zip" else unpacked(tmp_path / kind))
    assert archive.read("Annotations/1.xml") == b"<a/>"
    with pytest.raises(DataError, match="more than 4 bytes"):
        archive.read("Sentences/1.txt")
