from __future__ import annotations

import json
from pathlib import Path

import pytest

from diptych.data.address import Address
from diptych.data.formats.lone_json import read, recognises
from diptych.errors import DataError

KARPATHY = {"images": [{"filename": "a.jpg", "split": "train", "sentences": [{"raw": "a dog"}]}]}


def written(folder: Path, **files: object) -> Address:
    (folder / "a.jpg").touch()
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return Address(folder)


def test_the_content_tells_the_format(tmp_path: Path) -> None:
    address = written(tmp_path, anything=KARPATHY)
    assert recognises(address)
    assert list(read(address).texts) == ["a dog"]
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "a.jpg").rename(tmp_path / "elsewhere/a.jpg")
    assert list(read(Address(tmp_path, str(tmp_path / "elsewhere"))).texts) == ["a dog"]


def test_other_folders_are_not_recognised(tmp_path: Path) -> None:
    assert not recognises(Address(tmp_path))
    assert not recognises(written(tmp_path, settings={"a": 1}))
    assert not recognises(written(tmp_path, settings={"a": 1}, data=KARPATHY))
    assert not recognises(Address(tmp_path / "data.json"))
    with pytest.raises(DataError, match="not a folder with a JSON file in a known format"):
        read(Address(tmp_path))


def test_a_broken_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text('{"a": ', encoding="utf-8")
    with pytest.raises(DataError, match=r"data\.json:1: not valid JSON"):
        recognises(Address(tmp_path))
