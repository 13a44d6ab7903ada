import pytest

from diptych.errors import DataError
from diptych.index.details import DetailedStore, ImageDetails


def id_of(store, key):
    return store.database.rows("SELECT id FROM entries WHERE key = ?", (key,))[0][0]


def test_the_day_of_the_capture_counts_before_that_of_the_file(store):
    assert isinstance(store, DetailedStore)
    assert store.details(id_of(store, "trip/sea/c.jpg")) == ImageDetails(1, "1971-01-02", "1971-01-02", "taken")
    assert store.details(id_of(store, "b.jpg")) == ImageDetails(1, None, "1970-04-11", "file")


def test_camera_place_moment_and_words_are_read(copy):
    image = id_of(copy, "b.jpg")
    (content,) = copy.contents_of([image])
    with copy.database.transaction():
        copy.database.rows("INSERT INTO details VALUES(?, 'Pixel 8', 48.2, -16.5)", (int(content),))
        copy.database.rows("INSERT INTO picture_words VALUES(?, 'OPEN')", (int(content),))
        copy.database.rows("UPDATE entries SET moment = 2.5, size = 0, modified = 0 WHERE id = ?", (image,))
    assert copy.details(image) == ImageDetails(None, None, None, None, "Pixel 8", 48.2, -16.5, 2.5, "OPEN")


def test_only_images_have_details(store):
    text = id_of(store, "b.jpg#0")
    for id in (text, 4711):
        with pytest.raises(DataError, match=f"no image {id}"):
            store.details(id)
