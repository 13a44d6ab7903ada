import numpy as np
import pytest

from diptych.data.header import Header
from diptych.errors import DataError
from diptych.index.backend import Content
from diptych.index.milvus.rows import (
    StoredContent,
    checked,
    entry_of,
    image_row,
    moment_of,
    moved,
    stamp_of,
    text_row,
    vectors_of,
)
from diptych.index.sources.listing import ImageInfo
from diptych.index.spec import IndexSpec
from diptych.index.vectors import encode

SPEC = IndexSpec("run", "i", 3, False, "int8", "/photos", "/photos", "0")
VECTOR = np.array([[0.6, 0.8, 0.0]], np.float32)
STAMP = (7, 3 * 86400 * 10**9, "d")


def stored():
    content = Content("image", b"\x01\xff", encode(VECTOR, "int8")[0], None, 2**64 - 1, Header(30, 20, None))
    return StoredContent.of(content, SPEC)


def test_a_row_becomes_the_entry_that_it_was_made_of():
    about = ImageInfo("trip/a.jpg", ("one", "two"), "test", {"price": "5"})
    row = image_row("trip/a.jpg", stored(), STAMP, about)
    entry = entry_of(row, SPEC)
    assert (entry.kind, entry.key, entry.image, entry.path) == ("image", "trip/a.jpg", entry.id, "/photos/trip/a.jpg")
    assert (entry.folder, entry.split, entry.width, entry.columns) == ("trip", "test", 30, {"price": "5"})
    assert entry.taken in ("1970-01-03", "1970-01-04")  # the local day of the file
    assert (stamp_of(row), moment_of(row), row["look"]) == (STAMP, None, -1)
    text = entry_of(text_row(row, "two", 1, stored()), SPEC)
    assert (text.kind, text.key, text.text, text.image, text.folder) == (
        "text",
        "trip/a.jpg#1",
        "two",
        entry.id,
        "trip",
    )
    assert np.abs(vectors_of([row], 3) - VECTOR).max() < 0.01
    assert vectors_of([], 3).shape == (0, 3)


def test_what_a_row_keeps_of_a_content():
    row = image_row("a.jpg", stored(), (7, 0, None), ImageInfo("a.jpg", ()))
    again = StoredContent.of_row(row)
    assert (again.hash, again.look, again.header["width"]) == ("01ff", -1, 30)
    assert np.array_equal(again.vector, stored().vector)
    assert entry_of(row, SPEC).taken is None


def test_a_row_moves_into_a_folder():
    row = image_row("a.jpg", stored(), STAMP, ImageInfo("a.jpg", (), moment=2.5))
    there = moved(row, "Photos/")
    new = image_row("Photos/a.jpg", stored(), STAMP, ImageInfo("Photos/a.jpg", (), moment=2.5))
    assert {**there, "vector": there["vector"].tolist()} == {**new, "vector": new["vector"].tolist()}
    assert moment_of(there) == 2.5


def test_what_is_too_long_is_named():
    row = image_row("a.jpg", stored(), STAMP, ImageInfo("a.jpg", (), columns={"x": "é" * 40_000}))
    with pytest.raises(DataError, match=r"^a\.jpg: its columns has .* bytes, and Milvus holds at most 65,535"):
        checked(row)
