"""Images by day with a cursor, and folders, over HTTP."""

import os
from contextlib import suppress
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.serve.errors import RequestError
from diptych.serve.routes.home import browsable, read_cursor
from diptych.serve.schemas.answers import FoldersAnswer, HomeAnswer

DAY = 86400


@pytest.fixture(scope="module")
def browsed(kit, tmp_path_factory):
    """A client of an index of three photos, of three days: blue, which is in a folder, then green, then red."""
    place = tmp_path_factory.mktemp("browsed")
    kit.fill(place / "photos")
    for day, name in enumerate(["red.jpg", "green.jpg", "below/blue.jpg"]):
        os.utime(place / "photos" / name, (DAY * (100.5 + day),) * 2)
    searcher = kit.searcher_of(place / "photos", place / "photos.diptych")
    with kit.served({"photos": searcher}) as client:
        yield client
    searcher.store.close()


def page(client, query=""):
    return HomeAnswer.model_validate(client.get(f"/home{query}").raise_for_status().json())


def test_the_newest_images_come_first_with_their_days_and_captions(browsed):
    found = page(browsed)
    assert [image.key for image in found.images] == ["below/blue.jpg", "green.jpg", "red.jpg"]
    assert [image.day for image in found.images] == ["1970-04-13", "1970-04-12", "1970-04-11"]
    assert found.images[1].captions == ["a green thing"]
    assert (found.images[1].width, found.images[1].height) == (60, 40)
    assert (found.index, found.next) == ("photos", None)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_cursor_continues_where_the_answer_before_ended(browsed, k):
    seen, cursor = [], ""
    while cursor is not None:
        found = page(browsed, f"?k={k}&cursor={cursor}")
        assert 1 <= len(found.images) <= k
        seen += [image.id for image in found.images]
        cursor = found.next
    assert seen == [image.id for image in page(browsed).images]


def test_a_folder_and_its_count(browsed):
    assert [image.key for image in page(browsed, "?folder=below").images] == ["below/blue.jpg"]
    assert page(browsed, "?folder=nowhere").images == []
    top = FoldersAnswer.model_validate(browsed.get("/folders").json())
    assert [(folder.path, folder.images, folder.has_folders) for folder in top.folders] == [("below", 1, False)]
    assert browsed.get("/folders?parent=below").json()["folders"] == []


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("since=1970-04-12", ["below/blue.jpg", "green.jpg"]),
        ("until=1970-04-12&k=1", ["green.jpg", "red.jpg"]),
        ("since=1970-04-12&folder=below", ["below/blue.jpg"]),
        ("until=1970-04-10", []),
    ],
)
def test_filters_apply_to_every_page(browsed, query, wanted):
    seen, cursor = [], ""
    while cursor is not None:
        found = page(browsed, f"?{query}&cursor={cursor}")
        seen, cursor = seen + [image.key for image in found.images], found.next
    assert seen == wanted


@pytest.mark.parametrize(
    ("query", "reason"),
    [("split=val", "no split 'val'"), ("where=a%3D1", "no column 'a'"), ("since=yesterday", "not a day")],
)
def test_a_filter_for_what_the_index_does_not_have_is_refused(browsed, kit, query, reason):
    assert reason in kit.error_of(browsed.get(f"/home?{query}"), 422)


@pytest.mark.parametrize("query", ["cursor=x", "cursor=2026-01-01.0", "cursor=2026-01-01.%2B1", "cursor=.9" + 30 * "9"])
def test_other_cursors_are_refused(browsed, kit, query):
    assert "begin with the newest" in kit.error_of(browsed.get(f"/home?{query}"), 422)


def test_mistakes_are_named(browsed, kit):
    assert "k" in kit.error_of(browsed.get("/home?k=501"), 422)
    assert "no such field" in kit.error_of(browsed.get("/folders?folder=a"), 422)
    assert "no index" in kit.error_of(browsed.get("/home?index=other"), 404)


@given(st.text(max_size=10), st.integers(1, 2**63 - 1))
def test_a_cursor_is_read_as_it_was_written(day, id):
    assert read_cursor(f"{day}.{id}") == (day, id)


@given(st.text(max_size=30))
def test_any_other_text_is_refused_or_is_the_same_cursor(text):
    with suppress(RequestError):
        found = read_cursor(text)
        assert found is None if not text else f"{found[0]}.{found[1]}" == text


def test_a_backend_that_cannot_be_browsed_is_refused():
    with pytest.raises(RequestError, match="cannot list images by day") as refused:
        browsable(SimpleNamespace(store=object()))
    assert refused.value.status == 409
