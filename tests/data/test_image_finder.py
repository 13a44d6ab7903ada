from __future__ import annotations

import os
from pathlib import Path

import pytest

from diptych.data import image_finder
from diptych.data.image_finder import ImageFinder
from diptych.errors import DataError


def test_the_first_name_in_the_first_folder_is_found(tmp_path: Path) -> None:
    for name in ("one/a.jpg", "two/a.jpg", "two/b.jpg", "two/sub/c.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "one" / "b.jpg").mkdir()  # a folder is not an image
    finder = ImageFinder([tmp_path / "none", tmp_path / "one", tmp_path / "two"])
    assert finder.find("a.jpg") == tmp_path / "one/a.jpg"
    assert finder.find("b.jpg") == tmp_path / "two/b.jpg"
    assert finder.find("sub/a.jpg", "sub/c.jpg") == tmp_path / "two/sub/c.jpg"
    assert finder.find(str(tmp_path / "two/b.jpg")) == tmp_path / "two/b.jpg"
    for name in ("c.jpg", "sub", "sub/", "", "..", "x\0/y", "\udcff"):
        with pytest.raises(DataError, match=r"no image .* in .*one or .*two"):
            finder.find(name)


def test_a_folder_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.jpg").touch()
    scans = []
    scandir = os.scandir
    monkeypatch.setattr(image_finder.os, "scandir", lambda folder: scans.append(folder) or scandir(folder))
    finder = ImageFinder([tmp_path])
    for _ in range(100):
        assert finder.find("a.jpg") == tmp_path / "a.jpg"
    assert len(scans) == 1
