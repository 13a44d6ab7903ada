from __future__ import annotations

from pathlib import Path

import pytest

from diptych.data.address import Address
from diptych.errors import DataError


def test_the_option_follows_the_last_hash_of_a_path_that_does_not_exist(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data#1").mkdir()
    data = str(tmp_path / "data")
    assert Address.parse(data) == Address(tmp_path / "data", None, data)
    assert Address.parse(f"{data}#testall") == Address(tmp_path / "data", "testall", f"{data}#testall")
    assert Address.parse(f"{data}#1") == Address(tmp_path / "data#1", None, f"{data}#1")
    assert Address.parse(f"{data}#1#2") == Address(tmp_path / "data#1", "2", f"{data}#1#2")
    for text in (f"{data}#", f"{data}2#x"):
        assert Address.parse(text) == Address(Path(text), None, text)


def test_a_path_object_is_never_a_name(tmp_path: Path) -> None:
    assert Address.parse("scenes").text == "scenes"
    assert Address.parse(Path("scenes")).text == "./scenes"
    assert Address.parse(tmp_path).text == str(tmp_path)


def test_the_home_folder_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "data").mkdir()
    (tmp_path / "photos").mkdir()
    address = Address.parse("~/data#~/photos")
    assert (address.path, address.images()) == (tmp_path / "data", tmp_path / "photos")
    nobody = Address.parse("~nobody-of-this-name/data")
    assert nobody.path == Path("~nobody-of-this-name/data")


def test_an_absolute_address_means_the_same_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "photos").mkdir()
    monkeypatch.chdir(tmp_path)
    assert Address(Path("t.csv")).absolute() == f"{tmp_path}/t.csv"
    assert Address(Path("t.csv"), "photos").absolute() == f"{tmp_path}/t.csv#{tmp_path}/photos"
    with pytest.raises(DataError, match="gone: no such folder of images"):
        Address(Path("t.csv"), "gone").images()
