import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.errors import DataError
from diptych.index.entries import Filters, SearchRequest
from diptych.index.query import Cursor, Query

CURSOR = Cursor(b"12345678", 40, 7, 0.25)


@given(st.binary(min_size=8, max_size=8), st.integers(1, 2**32 - 1), st.integers(0, 2**63), st.floats(-9, 9, width=32))
def test_a_cursor_is_read_as_it_was_written(search, place, id, score):
    cursor = Cursor(search, place, id, score)
    assert Cursor.parse(str(cursor)) == cursor
    assert str(cursor).isascii()
    assert str(cursor).replace("-", "").replace("_", "").isalnum()


@pytest.mark.parametrize(
    "text",
    ["x", "é", "\x00", str(CURSOR)[:-4], f"{CURSOR}AAAA", "A" * 34, str(Cursor(b"12345678", 1, 7, float("nan")))],
    ids=["short", "not ASCII", "zero", "truncated", "longer", "another version", "not finite"],
)
def test_anything_else_is_refused(text):
    with pytest.raises(DataError, match=r"^cursor: not one that this search gave as next; leave it out"):
        Cursor.parse(text)
    with pytest.raises(DataError, match="leave it out"):
        Query(None, "text", SearchRequest(cursor=text), "dog").cursor()


def test_a_cursor_belongs_to_one_search_whatever_the_size_of_its_pages():
    query = Query(None, "text", SearchRequest(k=3), "dog")
    cursor = str(Cursor(query.digest, 3, 7, 0.5))
    assert query.cursor() is None
    assert Query(None, "text", SearchRequest(k=9, cursor=cursor), "dog").cursor() == Cursor.parse(cursor)
    others = [
        Query(None, "text", SearchRequest(cursor=cursor), "cat"),
        Query(None, "image", SearchRequest(cursor=cursor)),
        Query(None, "text", SearchRequest(to="text", cursor=cursor), "dog"),
        Query(None, "text", SearchRequest(filters=Filters(folder="a"), cursor=cursor), "dog"),
        Query(None, "text", SearchRequest(mode="both", cursor=cursor), "dog"),
    ]
    picture = Query(None, "image", SearchRequest(), picture=b"one")
    other_picture = SearchRequest(cursor=str(Cursor(picture.digest, 3, 7, 0.5)))
    others.append(Query(None, "image", other_picture, picture=b"another"))
    for other in others:
        with pytest.raises(DataError, match=r"^cursor: not one that this search gave"):
            other.cursor()
