from __future__ import annotations

import sys

import pytest

from diptych.errors import DiptychError
from diptych.evaluation.tabular import TabularResult, TextTable, bootstrap_caption, with_interval


class Result(TabularResult):
    def table(self):
        return TextTable("a < b", ["", "x"], [["row", "1"]])

    def columns(self):
        return {"name": ["row"], "x": [1]}


def test_columns_are_aligned_and_cells_may_have_two_lines():
    rows = [["one", "1.0\n0.5–1.5", "7"], ["three", "100.0\n99.0–100.0", "12345"], ["sum", "9"]]
    assert str(TextTable("title", ["", "value", "rank"], rows, "caption")).splitlines() == [
        "title",
        "",
        "            value   rank",
        "one           1.0      7",
        "          0.5–1.5",
        "three       100.0  12345",
        "       99.0–100.0",
        "sum             9",
        "",
        "caption",
    ]


def test_a_result_prints_its_table_and_has_a_short_repr():
    assert str(Result()) == "a < b\n\n     x\nrow  1"
    assert repr(Result()) == "Result(a < b)"
    assert Result()._repr_html_() == "<pre>a &lt; b\n\n     x\nrow  1</pre>"


def test_a_frame_has_the_columns():
    frame = Result().to_frame()
    assert frame.to_dict("list") == {"name": ["row"], "x": [1]}


def test_without_pandas_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(DiptychError, match=r"^pandas is not installed; run: pip install pandas$"):
        Result().to_frame()


def test_intervals_stand_below_their_values():
    assert with_interval(12.34, (9.96, 100)) == "12.3\n10.0–100.0"
    assert bootstrap_caption(0.9, 2000, "images") == "90% intervals from 2,000 draws of images"
