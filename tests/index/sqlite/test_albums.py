"""Albums in an index file: editing, syncs, replacement, several processes, and very many albums."""

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from diptych.errors import DataError, IndexFileError
from diptych.index.albums import FAVOURITES, Album, AlbumStore
from diptych.index.entries import Filters
from diptych.index.sqlite import albums
from diptych.index.sqlite.location import SQLiteLocation
from diptych.index.sqlite.store import Store


@pytest.fixture
def ids(copy):
    """The ids of the images by their keys."""
    return dict(copy.database.rows("SELECT key, id FROM entries WHERE kind = 'image'"))


def names(store):
    return [album.name for album in store.albums()]


def keys(store, album):
    """The keys of the images in an album."""
    found = store.matching("image", Filters(album=album))
    return [entry.key for entry in store.entries(found)]


def test_a_new_index_has_no_favourites_yet(store):
    assert isinstance(store, AlbumStore)
    assert store.albums() == [Album(FAVOURITES, "Favourites", 0, 0, None)]
    assert keys(store, FAVOURITES) == []


def test_albums_are_created_filled_renamed_and_deleted(copy, ids):
    generation = copy.generation
    with copy.edit_albums() as edit:
        trip, sea = edit.create(" Trip "), edit.create("Sea")
        assert edit.add(trip, [ids["b.jpg"], ids["trip/a.jpg"]]) == 2
        assert edit.add(trip, [ids["b.jpg"], ids["trips/d.jpg"], ids["trips/d.jpg"]]) == 1
        assert edit.add(FAVOURITES, [ids["b.jpg"]]) == 1
        edit.rename(sea, "a beach")
    assert [(album.id, album.name, album.images) for album in copy.albums()] == [
        *((FAVOURITES, "Favourites", 1), (sea, "a beach", 0), (trip, "Trip", 3))
    ]
    assert copy.albums()[2].cover == ids["trips/d.jpg"]  # added last
    assert copy.album_names(ids["b.jpg"]) == {FAVOURITES: "Favourites", trip: "Trip"}
    assert keys(copy, trip) == ["b.jpg", "trip/a.jpg", "trips/d.jpg"]
    with copy.edit_albums() as edit:
        assert edit.remove(trip, [ids["b.jpg"], ids["trip/sea/c.jpg"]]) == 1
        edit.delete(sea)
        edit.rename(trip, "TRIP")  # to itself in other letters
    assert names(copy) == ["Favourites", "TRIP"]
    assert keys(copy, trip) == ["trip/a.jpg", "trips/d.jpg"]
    assert copy.generation == generation  # nobody reads the vectors again


def test_a_text_stands_for_its_image_and_is_filtered_by_it(copy, ids):
    text = copy.database.rows("SELECT id FROM entries WHERE key = 'b.jpg#1'")[0][0]
    with copy.edit_albums() as edit:
        edit.add(FAVOURITES, [text])
    assert keys(copy, FAVOURITES) == ["b.jpg"]
    found = copy.entries(copy.matching("text", Filters(album=FAVOURITES)))
    assert {entry.image for entry in found} == {ids["b.jpg"]}
    assert len(found) == 2


def test_an_id_is_never_used_again(copy):
    with copy.edit_albums() as edit:
        first = edit.create("a")
    with copy.edit_albums() as edit:
        edit.delete(first)
    with copy.edit_albums() as edit:
        assert edit.create("b") != first


def edit_wrongly(store, change):
    edition = store.album_edition
    with pytest.raises(DataError) as error, store.edit_albums() as edit:
        edit.create("left over")
        change(edit)
    assert "\n" not in str(error.value)
    assert names(store) == ["Favourites"]  # nothing of it was done
    assert store.album_edition == edition
    return str(error.value)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda edit: edit.create("LEFT OVER"), "already an album 'left over'"),
        (lambda edit: edit.create("favourites"), "already an album 'Favourites'"),
        (lambda edit: edit.create("a\tb"), "control character"),
        (lambda edit: edit.rename(9, "a"), "no album 9"),
        (lambda edit: edit.delete(9), "no album 9"),
        (lambda edit: edit.delete(FAVOURITES), "favourites cannot be deleted"),
        (lambda edit: edit.rename(FAVOURITES, "a"), "favourites cannot be renamed"),
        (lambda edit: edit.add(9, []), "no album 9"),
        (lambda edit: edit.add(FAVOURITES, [1, 4711]), "no entry 4711"),
        (lambda edit: edit.remove(FAVOURITES, [4711]), "no entry 4711"),
    ],
)
def test_a_mistake_changes_nothing(copy, change, reason):
    assert reason in edit_wrongly(copy, change)


def test_an_unknown_album_is_not_an_empty_filter(store):
    with pytest.raises(DataError, match="no album 5 in this index"):
        store.matching("image", Filters(album=5))


def test_an_image_that_returns_is_in_its_albums_again(copy, ids):
    with copy.edit_albums() as edit:
        edit.add(FAVOURITES, [ids["b.jpg"], ids["trip/a.jpg"]])
    ((digest, content),) = copy.database.rows(
        "SELECT c.hash, c.id FROM entries AS e JOIN contents AS c ON c.id = e.content WHERE e.key = 'b.jpg'"
    )
    row = copy.database.rows("SELECT * FROM contents WHERE id = ?", (content,))[0]
    writer = copy.writer(["b.jpg"])
    with writer.transaction():
        writer.finish({}, [])
    assert (copy.albums()[0].images, copy.albums()[0].missing) == (1, 1)
    assert copy.albums()[0].cover == ids["trip/a.jpg"]
    with copy.database.transaction():
        marks = ", ".join("?" * len(row))
        copy.database.insert(f"INSERT INTO contents VALUES({marks})", row)
        copy.database.insert("INSERT INTO entries(kind, key, content) VALUES('image', 'new.jpg', ?)", (content,))
    assert digest == row[2]
    assert sorted(keys(copy, FAVOURITES)) == ["new.jpg", "trip/a.jpg"]


def test_a_replaced_index_takes_its_albums_along(example, copy, ids, tmp_path):
    with copy.edit_albums() as edit:
        trip = edit.create("Trip")
        edit.add(trip, [ids["b.jpg"]])
        edit.add(FAVOURITES, [ids["b.jpg"], ids["trip/sea/c.jpg"]])
    before = copy.albums()
    copy.close()
    reader = Store.open(copy.path)
    location = SQLiteLocation(copy.path)
    new = location.replacement().create(example.SPEC)
    example.fill(new)
    new.close()
    location.replace(location.replacement())
    assert reader.albums() == before
    assert keys(reader, trip) == ["b.jpg"]
    with reader.edit_albums() as edit:
        assert edit.create("Later") > trip
    reader.close()
    assert [file.name for file in tmp_path.iterdir()] == ["an.diptych"]


def test_albums_that_cannot_be_read_keep_their_file(example, copy, caplog):
    copy.close()
    location = SQLiteLocation(copy.path)
    location.replacement().create(example.SPEC).close()
    copy.path.write_bytes(b"x" * 5000)
    location.replace(location.replacement())
    assert copy.path.with_name("an.diptych.damaged").read_bytes() == b"x" * 5000
    assert "its albums could not be read" in caplog.text
    location.open().close()


def test_many_threads_and_a_sync_edit_at_once(copy, ids):
    """Every change is made although a writer has the file open, and a reader sees all of them."""
    reader = Store.open(copy.path)

    def create(number):
        with reader.edit_albums() as edit:
            edit.add(edit.create(f"album {number}"), [ids["b.jpg"]])

    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(create, number) for number in range(12)]
        for number in range(12):
            with copy.database.transaction():
                copy.database.set_meta("synced", number)
        for future in futures:
            future.result()
    assert len(reader.album_names(ids["b.jpg"])) == 12
    reader.close()


def test_an_edit_waits_for_a_writer_and_then_says_so(copy, monkeypatch):
    monkeypatch.setattr("diptych.index.sqlite.database._TIMEOUT", 0.2)
    reader = Store.open(copy.path)
    busy = pytest.raises(IndexFileError, match="another process is writing to it; wait and try again")
    with copy.database.transaction(), busy, reader.edit_albums():
        pass
    with reader.edit_albums() as edit:
        edit.create("now")
    assert names(reader) == ["Favourites", "now"]
    reader.close()


def test_an_edit_that_waits_for_a_replacement_changes_the_new_file(example, copy):
    copy.close()
    location = SQLiteLocation(copy.path)
    location.replacement().create(example.SPEC).close()
    reader = Store.open(copy.path)
    started = threading.Event()

    def create():
        started.set()
        with reader.edit_albums() as edit:
            return edit.create("after")

    with ThreadPoolExecutor(1) as pool:
        with albums.locked(copy.path):
            waiting = pool.submit(create)
            started.wait()
            albums.copy_albums(copy.path, location.replacement().path)
            location.replacement().path.replace(copy.path)
        waiting.result()
    assert names(reader) == ["Favourites", "after"]
    assert reader.counts()["image"] == 0
    reader.close()


def test_a_read_only_place_is_named(copy, monkeypatch):
    reader = Store.open(copy.path)

    def refused(*_, **__):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("pathlib.Path.open", refused)
    with pytest.raises(IndexFileError, match=r"cannot be written to \(Read-only file system\)"), reader.edit_albums():
        pass
    reader.close()


def test_ten_thousand_albums_take_one_query_each_of_which_uses_indexes(copy, ids):
    image = ids["b.jpg"]
    with copy.edit_albums() as edit:
        for number in range(10_000):
            edit._database.insert("INSERT INTO albums VALUES(?, ?, ?, '')", (number + 1, f"a {number}", f"a {number}"))
        edit._database.rows(
            "INSERT INTO album_images SELECT a.id, c.hash, '' FROM albums AS a, entries AS e JOIN contents AS c "
            "ON c.id = e.content WHERE e.id = ?",
            (image,),
        )
    statements = []
    copy.database._connection.set_trace_callback(statements.append)
    assert len(copy.albums()) == 10_001
    assert len(copy.album_names(image)) == 10_001
    assert keys(copy, 9_999) == ["b.jpg"]
    copy.database._connection.set_trace_callback(None)
    assert len(statements) < 20
    for statement in statements:
        if not statement.startswith("SELECT"):
            continue
        for *_, step in copy.database.rows(f"EXPLAIN QUERY PLAN {statement}"):
            assert not step.startswith(("SCAN i", "SCAN album_images", "SCAN c")), (statement, step)


def test_album_filters_agree_with_a_plain_reading_of_the_tables(copy, ids):
    rng = np.random.default_rng(0)
    with copy.edit_albums() as edit:
        numbers = [edit.create(f"album {number}") for number in range(6)]
        wanted = {album: [key for key in ids if rng.random() < 0.5] for album in numbers}
        for album, chosen in wanted.items():
            edit.add(album, [ids[key] for key in chosen])
    for album, chosen in wanted.items():
        assert sorted(keys(copy, album)) == sorted(chosen)
        newest = [id for _, id in copy.newest(10, filters=Filters(album=album))]
        assert newest == [id for _, id in copy.newest(10) if id in {ids[key] for key in chosen}]
        first = copy.newest(1, filters=Filters(album=album))
        if first:
            assert [id for _, id in copy.newest(10, first[0], Filters(album=album))] == newest[1:]
        below = [id for _, id in copy.newest(10, filters=Filters("trip", album=album))]
        assert below == [id for id in newest if id in {ids["trip/a.jpg"], ids["trip/sea/c.jpg"]}]


def test_a_copied_index_is_independent(copy, ids, tmp_path):
    with copy.edit_albums() as edit:
        edit.add(FAVOURITES, [ids["b.jpg"]])
    copy.close()
    other = Store.open(shutil.copy(copy.path, tmp_path / "other.diptych"))
    with other.edit_albums() as edit:
        edit.remove(FAVOURITES, [ids["b.jpg"]])
    again = Store.open(copy.path)
    assert (again.albums()[0].images, other.albums()[0].images) == (1, 0)
    other.close()
    again.close()
