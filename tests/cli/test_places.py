import sys
from pathlib import Path

import pytest

from diptych.cli.places import data_folder, default_index


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
