from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from diptych.data.parsing import (
    clean_text,
    hashed_split,
    identifier,
    json_mentions,
    json_object,
    non_empty,
    read_lines,
    split_name,
)
from diptych.errors import DataError


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "no name"),
        (3, "the name is of type int, not a string"),
        (" \n", "the name is empty"),
        ("\ud800", "the name is not valid UTF-8; write it in UTF-8"),
    ],
)
def test_values_that_are_no_usable_string(value: object, message: str) -> None:
    with pytest.raises(DataError) as caught:
        non_empty(value, "name")
    assert str(caught.value) == message


def test_usable_values() -> None:
    assert non_empty(" a  b ", "name") == "a  b"
    assert clean_text(" a \n\t b ") == "a b"
    assert (identifier(0, "id"), identifier(" 0 ", "id")) == (0, "0")
    assert json_object({"a": 1}) == {"a": 1}


def test_values_of_another_type() -> None:
    with pytest.raises(DataError, match="a list, not a JSON object"):
        json_object([])
    with pytest.raises(DataError, match="the id is of type bool, not a string"):
        identifier(True, "id")


def test_splits_have_synonyms() -> None:
    assert [split_name(name) for name in ("Train", "dev", "VALID", "validation", "test", "restval")] == [
        *("train", "val", "val", "val", "test", "restval")
    ]
    with pytest.raises(DataError, match="unknown split 'tets'; did you mean 'test'"):
        split_name("tets")


def test_a_hashed_split_depends_on_the_name_alone() -> None:
    counts = Counter(hashed_split(f"image {i}.jpg") for i in range(4000))
    assert 3500 < counts["train"] < 3700
    assert 150 < counts["val"] < 250
    assert [hashed_split(name) for name in ("a.jpg", "b.jpg", "dog 12")] == ["test", "train", "train"]  # on any machine


def test_lines_end_at_newlines_only_and_keep_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_bytes(b"\xef\xbb\xbfone\r\ntwo\x0c\xe2\x80\xa8still two\rthree \xff\n")
    lines = read_lines(file)
    assert [line.strip("\r\n") for line in lines] == ["one", "two\x0c\u2028still two", "three \udcff"]
    with pytest.raises(DataError, match="not valid UTF-8"):
        non_empty(lines[2], "line")
    with pytest.raises(DataError, match="cannot be read"):
        read_lines(tmp_path / "gone.txt")


def test_a_json_file_is_known_by_its_beginning_and_its_keys(tmp_path: Path) -> None:
    file = tmp_path / "a.JSON"
    file.write_bytes(b'\xef\xbb\xbf \n{"images": [], "say": "\\"captions\\""}')
    assert json_mentions(file, "{", "images", "say")
    assert not json_mentions(file, "[", "images")
    assert not json_mentions(file, "{", "images", "captions")
    assert not json_mentions(tmp_path / "gone.json", "{")
    assert not json_mentions(file.rename(tmp_path / "a.txt"), "{", "images")
