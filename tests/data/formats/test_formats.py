"""The package of formats finds its modules by itself."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import pytest

from diptych.data import formats
from diptych.data.address import Address
from diptych.data.formats import all_formats
from diptych.data.open import open_corpus
from diptych.errors import DataError


def test_every_module_is_a_format() -> None:
    modules = {file.stem for file in Path(formats.__file__).parent.glob("*.py")} - {"__init__"}
    assert {data_format.__name__.rpartition(".")[2] for data_format in all_formats()} == modules
    for data_format in all_formats():
        for name in ("recognises", "read"):
            assert list(inspect.signature(getattr(data_format, name)).parameters) == ["address"]


def test_the_order_is_defined() -> None:
    orders = [data_format.ORDER for data_format in all_formats()]
    assert orders == sorted(set(orders))
    assert [data_format.__name__.rpartition(".")[2] for data_format in all_formats()] == [
        *("scenes", "precomputed", "shards", "karpathy", "coco", "entities"),
        *("pedes", "table", "captions", "lone_json", "folder"),
    ]


def test_a_path_that_does_not_exist_is_in_no_format(tmp_path: Path) -> None:
    for name in ("x", "x.json", "x.csv", "x.txt", "annotations.zip", "reid_raw.json"):
        assert not any(data_format.recognises(Address(tmp_path / name)) for data_format in all_formats())


def test_the_example_in_the_docs_is_a_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[3] / "docs/extend/format.md"
    (example,) = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    (tmp_path / "bars.py").write_text(example, encoding="utf-8")
    (tmp_path / "a.jpg").touch()
    file = tmp_path / "data.bars"
    file.write_text("a.jpg|a dog\ngone.jpg|a cat\na.jpg|\na.jpg| two  dogs\n", encoding="utf-8")
    with pytest.raises(DataError, match="not recognised; known formats"):
        open_corpus(file)
    monkeypatch.setattr(formats, "__path__", [*formats.__path__, str(tmp_path)])
    all_formats.cache_clear()
    try:
        corpus = open_corpus(file)
        (tmp_path / "of.nothing").touch()
        with pytest.raises(DataError, match=r"lines of image\|text \(\.bars\)"):
            open_corpus(tmp_path / "of.nothing")
    finally:
        all_formats.cache_clear()
        sys.modules.pop("diptych.data.formats.bars", None)
    assert (corpus.image_ids, corpus.texts) == (("a.jpg",), ("a dog", "two dogs"))
    assert [problem.row for problem in corpus.problems] == [2, 3]
