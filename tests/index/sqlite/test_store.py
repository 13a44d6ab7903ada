"""Entries are read as they were written, in the order of the request."""

import threading

import numpy as np
import pytest

from diptych.errors import DataError, IndexFileError
from diptych.index.sqlite.store import Store


def keys(store, ids):
    return [entry.key for entry in store.entries(ids)]


def test_vectors_are_in_the_order_of_the_ids(example, store):
    ids, vectors = store.vectors("image")
    assert (np.diff(ids) > 0).all()
    assert keys(store, ids) == list(example.IMAGES)
    assert np.array_equal(vectors, example.VECTORS)
    ids, vectors = store.vectors("text")
    assert [entry.text for entry in store.entries(ids)] == ["a dog", "a cat", "a dog", "a mouse"]
    assert np.array_equal(vectors, example.VECTORS[[0, 1, 0, 2]])
    assert store.counts() == {"image": 4, "text": 4}


def test_entries_are_in_the_given_order_and_a_text_has_the_details_of_its_image(store):
    image, text = store.vectors("image")[0][1], store.vectors("text")[0][2]
    found = store.entries([text, image, text])
    assert [entry.id for entry in found] == [text, image, text]
    assert (found[0].key, found[0].image, found[0].text) == ("trip/a.jpg#0", image, "a dog")
    for entry in found:
        assert (entry.folder, entry.split, entry.path) == ("trip", "test", "/photos/trip/a.jpg")
        assert (entry.width, entry.height, entry.columns) == (30, 20, {"price": "5", "shop's": "x"})
    with pytest.raises(DataError, match="no entry 999; it may have been removed"):
        store.entries([image, 999])


def test_equal_texts_share_a_content_and_hashes_have_64_bits(example, store):
    texts, images = store.vectors("text")[0], store.vectors("image")[0]
    contents = store.contents_of(texts)
    assert contents[0] == contents[2]
    assert len(set(contents.tolist())) == 3
    assert store.looks(images).tolist() == [2**64 - 1 - number for number in range(4)]
    assert store.looks(texts[3:]).tolist() == [2**64 - 4]
    assert store.captions(images) == dict(
        zip(images.tolist(), (own for *_, own in example.IMAGES.values()), strict=True)
    )
    assert store.thumbnail(int(texts[3])) == store.thumbnail(int(images[3])) == b"jpeg 3"
    assert store.thumbnail(999) is None


def test_sets_are_stored_if_the_model_has_them(example, store, tmp_path):
    assert store.sets(store.vectors("image")[0]) is None
    other = Store.create(tmp_path / "sets.diptych", example.SPEC)
    example.fill(other, sets=True)
    ids = other.vectors("image")[0]
    found = other.sets(ids[[2, 0]])
    other.close()
    assert [members.shape for members in found] == [(1, 4)] * 2
    assert np.allclose(np.concatenate(found), example.VECTORS[[2, 0]], atol=1e-2)


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


def test_stamps_and_problems_are_what_a_sync_compares_with(example, copy):
    stamps = copy.image_stamps()
    assert stamps.keys() == example.IMAGES.keys()
    assert all(size == 1 and details is None for size, _, details in stamps.values())
    with copy.database.transaction():
        copy.database.rows("INSERT INTO problems VALUES('z.jpg', 3, 4, 'broken'), ('below/', NULL, NULL, 'unreadable')")
    assert sorted(copy.problem_records()) == [("below/", None, None, "unreadable"), ("z.jpg", 3, 4, "broken")]
    assert copy.problems() == [("below/", "unreadable"), ("z.jpg", "broken")]


def test_a_file_without_a_spec_is_refused(copy):
    with copy.database.transaction():
        copy.database.set_meta("making", {"model": "run"})
    with pytest.raises(IndexFileError, match="does not name its model and source; make it again: diptych index"):
        Store.open(copy.path)
