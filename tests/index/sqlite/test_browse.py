"""Images by day, newest first, page by page; and folders with their counts."""

import pytest

from diptych.index.entries import Filters
from diptych.index.frames import frame_key
from diptych.index.sources.listing import ImageInfo
from diptych.index.sqlite.browse import _FIRST_OF_VIDEO, _PAGE, newest, subfolders
from diptych.index.sqlite.writer import Writer


def put_videos(store, moments):
    """Add videos, each with frames at some seconds."""
    writer = Writer(store, [])
    with writer.transaction():
        for video, seconds in moments.items():
            for moment in seconds:
                info = ImageInfo(video, (), moment=moment)
                writer.put_image(frame_key(video, moment), writer.content_of("b.jpg"), (1, 1, None), info)


def keys(store, places):
    return [entry.key for entry in store.entries([id for _, id in places])]


def test_the_newest_come_first_and_a_capture_day_counts_before_the_day_of_the_file(store):
    found = newest(store.database, 10)
    assert keys(store, found) == ["trips/d.jpg", "trip/sea/c.jpg", "trip/a.jpg", "b.jpg"]
    assert [day for day, _ in found] == sorted((day for day, _ in found), reverse=True)
    assert dict(zip(keys(store, found), (day for day, _ in found), strict=True))["trip/sea/c.jpg"] == "1971-01-02"


@pytest.mark.parametrize("count", [1, 2, 3])
def test_pages_contain_every_image_once(store, count):
    seen, after = [], None
    while page := newest(store.database, count, after):
        assert len(page) <= count
        seen += page
        after = page[-1]
    assert seen == newest(store.database, 10)
    assert len(seen) == 4


def test_a_folder_includes_those_below_it_but_not_those_with_a_longer_name(store):
    assert set(keys(store, newest(store.database, 10, filters=Filters("trip/")))) == {"trip/a.jpg", "trip/sea/c.jpg"}


def test_a_page_is_read_from_the_index_of_days(store):
    plan = store.database.rows(
        "EXPLAIN QUERY PLAN SELECT day, id FROM entries WHERE kind = 'image' AND (day, id) < ('2026-01-01', 5) "
        "ORDER BY day DESC, id DESC LIMIT 9"
    )
    assert "images_by_day" in plan[0][-1]
    assert len(plan) == 1  # nothing is sorted


def test_folders_are_counted_with_what_is_below_them(store):
    assert subfolders(store.database) == [("trip", 2, True), ("trips", 1, False)]
    assert subfolders(store.database, "trip") == [("trip/sea", 1, False)]
    assert subfolders(store.database, "nowhere") == []


def test_a_video_is_shown_by_its_first_frame(copy):
    put_videos(copy, {"film.mp4": (0.0, 5.0, 105.0), "film.mp4.mov": (2.5, 10.0)})
    frames = [key for key in keys(copy, newest(copy.database, 10)) if key.startswith("film")]
    assert sorted(frames) == ["film.mp4#0.0", "film.mp4.mov#2.5"]
    assert len(newest(copy.database, 10)) == 6


def test_a_folder_counts_a_video_as_one_image(copy):
    put_videos(copy, {"trip/film.mp4": (0.0, 5.0, 105.0), "trip/sea/film.mp4": (2.5, 10.0)})
    for parent in ("", "trip"):
        for folder, images, _ in subfolders(copy.database, parent):
            assert images == len(newest(copy.database, 20, filters=Filters(folder)))
    assert subfolders(copy.database, "trip") == [("trip/sea", 2, False)]


def test_the_condition_on_frames_needs_no_other_table_than_that_of_entries(copy):
    statement = _PAGE.format(images="entries", conditions=_FIRST_OF_VIDEO)
    plan = [row[-1] for row in copy.database.rows(f"EXPLAIN QUERY PLAN {statement}", (9,))]
    assert any("COVERING INDEX frames_of_videos" in step for step in plan)
    assert not any("TEMP B-TREE" in step for step in plan)
