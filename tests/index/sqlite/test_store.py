"""What an index holds comes back as it was put in, in order, and a file that is none is refused in one line."""

import shutil
import sqlite3
import threading

import numpy as np
import pytest

from diptych.errors import DataError, IndexFileError
from diptych.index.entries import Filters
from diptych.index.source import About
from diptych.index.sqlite.database import remove_logs
from diptych.index.sqlite.store import IndexSpec, Store
from diptych.index.sqlite.vectors import encode, encode_set
from diptych.index.sqlite.writer import Content, Writer, text_hash

DAY = 86400 * 10**9
MAKING = IndexSpec("run", "i" * 64, 4, False, "float32", "/photos", "/photos", "0.1.0")
VECTORS = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
IMAGES = {  # key: split, day of the file, day in the file, columns, texts
    "b.jpg": ("train", 100, None, {}, ["a dog", "a cat"]),
    "trip/a.jpg": ("test", 200, None, {"price": "5", "shop's": "x"}, ["a dog"]),
    "trip/sea/c.jpg": ("test", 300, "1971-01-02", {"price": "7"}, []),
    "trips/d.jpg": ("test", 400, None, {"price": "5"}, ["a mouse"]),
}


def fill(store, sets=False):
    writer = Writer(store, [])
    with store.database.transaction():
        texts = dict.fromkeys(text for *_, own in IMAGES.values() for text in own)
        for number, text in enumerate(texts):
            writer.add(Content("text", text_hash(text), encode(VECTORS[number : number + 1], "float32")[0]))
        for number, (key, (split, day, taken, columns, own)) in enumerate(IMAGES.items()):
            row = VECTORS[number : number + 1]
            kept = encode_set(row) if sets else None
            vector = encode(row, "float32")[0]
            look = 2**64 - 1 - number
            content = Content("image", bytes([number]), vector, kept, look, 30, 20, taken, b"jpeg %d" % number)
            stamp = (1, day * DAY + DAY // 2, None)
            writer.put_image(key, writer.add(content), stamp, About(key, own, split, columns))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    store = Store.create(tmp_path_factory.mktemp("store") / "an.diptych", MAKING)
    fill(store)
    store.close()
    return store.path


@pytest.fixture(scope="module")
def store(whole):
    """To read."""
    store = Store.open(whole)
    yield store
    store.close()


@pytest.fixture
def written(whole, tmp_path):
    """To write."""
    store = Store.open(shutil.copy(whole, tmp_path), write=True)
    yield store
    store.close()


def keys(store, ids):
    return [entry.key for entry in store.entries(ids)]


def test_vectors_are_those_of_the_entries_in_the_order_of_their_ids(store):
    ids, vectors = store.vectors("image")
    assert (np.diff(ids) > 0).all() and keys(store, ids) == list(IMAGES)
    assert np.array_equal(vectors, VECTORS)
    ids, vectors = store.vectors("text")
    assert [entry.text for entry in store.entries(ids)] == ["a dog", "a cat", "a dog", "a mouse"]
    assert np.array_equal(vectors, VECTORS[[0, 1, 0, 2]])
    assert store.counts() == {"image": 4, "text": 4}


def test_entries_come_in_the_given_order_and_a_text_says_what_its_image_says(store):
    image, text = store.vectors("image")[0][1], store.vectors("text")[0][2]
    found = store.entries([text, image, text])
    assert [entry.id for entry in found] == [text, image, text]
    assert (found[0].key, found[0].image, found[0].text) == ("trip/a.jpg#0", image, "a dog")
    for entry in found:
        assert (entry.folder, entry.split, entry.path) == ("trip", "test", "/photos/trip/a.jpg")
        assert (entry.width, entry.height, entry.columns) == (30, 20, {"price": "5", "shop's": "x"})
    with pytest.raises(DataError, match="no entry 999; it may have been removed"):
        store.entries([image, 999])


def test_equal_texts_share_a_content_and_looks_keep_64_bits(store):
    texts, images = store.vectors("text")[0], store.vectors("image")[0]
    contents = store.contents_of(texts)
    assert contents[0] == contents[2] and len(set(contents.tolist())) == 3
    assert store.looks(images).tolist() == [2**64 - 1 - number for number in range(4)]
    assert store.looks(texts[3:]).tolist() == [2**64 - 4]
    assert store.captions(images) == dict(zip(images.tolist(), (own for *_, own in IMAGES.values()), strict=True))
    assert store.thumbnail(int(texts[3])) == store.thumbnail(int(images[3])) == b"jpeg 3"
    assert store.thumbnail(999) is None


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        (Filters(), [0, 1, 2, 3]),
        (Filters(folder="trip"), [1, 2]),
        (Filters(folder="/trip/"), [1, 2]),
        (Filters(folder="trip/sea"), [2]),
        (Filters(folder="tri_"), []),
        (Filters(folder="."), [0, 1, 2, 3]),
        (Filters(since="1970-07-20", until="1971-01-02"), [1, 2]),
        (Filters(since="1971-01-03"), [3]),
        (Filters(split="train"), [0]),
        (Filters(columns=(("price", "5"),)), [1, 3]),
        (Filters(columns=(("price", "5"), ("shop's", "x"))), [1]),
        (Filters(folder="trip", columns=(("price", "7"),)), [2]),
    ],
    ids=lambda value: None if isinstance(value, list) else repr(value),
)
def test_filters_let_images_through_and_texts_with_them(store, filters, wanted):
    wanted = [list(IMAGES)[number] for number in wanted]
    assert keys(store, store.matching("image", filters)) == wanted
    texts = store.entries(store.matching("text", filters))
    assert [text.text for text in texts] == [text for key in wanted for text in IMAGES[key][-1]]


def test_a_filter_that_cannot_be_is_an_error_that_names_what_there_is(store):
    for filters, said in (
        (Filters(since="yesterday"), "since 'yesterday': not a day; write it like 2026-11-16"),
        (Filters(until="2026-02-30"), "until '2026-02-30': not a day"),
        (Filters(columns=(("prize", "5"),)), "no column 'prize' in the index; did you mean 'price'?"),
        (Filters(split="val"), "no split 'val' in the index; known: test, train"),
    ):
        with pytest.raises(DataError, match=said.replace("?", r"\?")):
            store.matching("image", filters)
    assert store.columns() == ["price", "shop's"]
    assert store.folders() == ["trip", "trip/sea", "trips"]
    assert store.splits() == ["test", "train"]


def test_sets_are_kept_for_models_that_have_them(store, tmp_path):
    assert store.sets(store.vectors("image")[0]) is None
    other = Store.create(tmp_path / "sets.diptych", MAKING)
    fill(other, sets=True)
    ids = other.vectors("image")[0]
    found = other.sets(ids[[2, 0]])
    other.close()
    assert [own.shape for own in found] == [(1, 4)] * 2
    assert np.allclose(np.concatenate(found), VECTORS[[2, 0]], atol=1e-2)


def test_a_reader_sees_what_others_change_and_a_file_that_replaces_its_own(written, tmp_path):
    reader = Store.open(written.path)
    before = reader.generation
    with reader.reading():
        assert reader.counts()["image"] == 4
        with written.database.transaction():
            written.database.rows("DELETE FROM entries WHERE key = 'b.jpg'")
        assert reader.counts()["image"] == 4  # of one moment
    assert reader.counts() == {"image": 3, "text": 2}  # its texts went with it
    after = reader.generation
    assert after > before
    Store.create(tmp_path / "other.diptych", MAKING).close()
    remove_logs(written.path)
    (tmp_path / "other.diptych").replace(written.path)
    assert reader.generation > after and reader.counts()["image"] == 0
    reader.close()


def test_a_transaction_that_fails_changes_nothing(written):
    generation = written.generation
    with pytest.raises(ZeroDivisionError), written.database.transaction():
        written.database.rows("DELETE FROM entries")
        _ = 1 / 0
    assert written.counts()["image"] == 4 and written.generation == generation


def test_threads_share_a_store(store):
    wanted, found = store.entries(store.vectors("image")[0]), []
    threads = [
        threading.Thread(target=lambda: found.append(store.entries(store.vectors("image")[0]))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [wanted] * 8


def refused(path):
    with pytest.raises(IndexFileError) as error:
        store = Store.open(path)
        store.vectors("image")
        store.close()
    assert "\n" not in str(error.value) and str(path) in str(error.value)
    return str(error.value)


def test_what_is_no_index_is_refused_in_one_line(whole, tmp_path):
    assert "no such index; make it: diptych index RUN SOURCE" in refused(tmp_path / "gone.diptych")
    assert "is a folder" in refused(tmp_path)
    (tmp_path / "text").write_text("hello " * 1000)
    assert "not an index of Diptych" in refused(tmp_path / "text")
    (tmp_path / "empty").touch()
    assert "not an index of Diptych" in refused(tmp_path / "empty")
    content = whole.read_bytes()
    (tmp_path / "cut").write_bytes(content[: len(content) // 2])
    assert "damaged (database disk image is malformed); `diptych index rebuild" in refused(tmp_path / "cut")
    newer = shutil.copy(whole, tmp_path / "newer")
    other = sqlite3.connect(newer)
    other.execute("PRAGMA user_version = 9")
    other.close()
    assert "format 9, and this version reads format 1; update Diptych" in refused(newer)


def test_nothing_lies_beside_an_index_at_rest_and_what_was_left_there_is_no_part_of_a_new_one(written, tmp_path):
    reader = Store.open(written.path)
    with written.database.transaction():
        written.database.rows("DELETE FROM entries WHERE key = 'b.jpg'")
    written.close()  # the reader keeps the log
    assert written.path.with_name("an.diptych-wal").exists()
    written.path.unlink()
    Store.create(written.path, MAKING).close()
    reader.close()
    assert [file.name for file in tmp_path.iterdir()] == ["an.diptych"]
    other = Store.open(written.path)
    assert other.counts() == {"image": 0, "text": 0}
    other.close()


def test_a_reader_survives_a_file_that_is_no_index_in_the_place_of_its_own(store, tmp_path):
    path, aside = store.path, tmp_path / "aside"
    reader = Store.open(path)
    path.rename(aside)
    path.write_bytes(bytes(range(256)) * 40)
    with pytest.raises(IndexFileError, match="not an index"):
        reader.counts()
    aside.replace(path)
    assert reader.counts() == store.counts()
    reader.close()
