import sys
from pathlib import Path

import pytest

from diptych.cli.places import data_folder, default_index, index_of


@pytest.mark.parametrize(
    ("platform", "variables", "folder"),
    [
        ("linux", {}, "/home/ada/.local/share/diptych"),
        ("linux", {"XDG_DATA_HOME": "/data"}, "/data/diptych"),
        ("darwin", {}, "/home/ada/Library/Application Support/diptych"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/diptych"),
    ],
)
def test_the_data_folder_of_a_platform(monkeypatch, platform, variables, folder):
    for name in ("XDG_DATA_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/home/ada", **variables}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert data_folder() == Path(folder)


def test_folders_of_one_name_have_indexes_of_their_own(tmp_path, monkeypatch):
    for name in ("a", "b"):
        (tmp_path / name / "Pictures").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a")
    first, second = default_index(["Pictures", "elsewhere"]), default_index([str(tmp_path / "b" / "Pictures")])
    assert first == default_index([str(tmp_path / "a" / "Pictures")])
    assert first.name.startswith("Pictures-")
    assert first != second


def test_a_folder_has_one_index_however_it_is_written(tmp_path, monkeypatch):
    (tmp_path / "Pictures" / "2025").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "Pictures")
    index = default_index([str(tmp_path / "Pictures")])
    for name in (".", "./", "2025/..", "../Pictures", str(tmp_path / "Pictures" / ".." / "Pictures")):
        assert default_index([name]) == index
    monkeypatch.chdir("2025")
    assert default_index([".."]) == index


def test_an_index_may_be_named_by_the_folder_that_was_opened(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(sys, "platform", "linux")
    folder = tmp_path / "Pictures"
    folder.mkdir()
    assert index_of(str(folder)) == str(folder)  # not indexed yet, which opening it says
    index = default_index([str(folder)])
    index.parent.mkdir(parents=True)
    index.touch()
    assert index_of(str(folder)) == str(index)
    for other in ("Pictures.diptych", "milvus://localhost/photos"):
        assert index_of(other) == other
