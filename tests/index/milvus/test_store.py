"""Entries are read as they were written, in the order of the request."""

import numpy as np
import pytest

from diptych.errors import DataError, IndexFileError
from diptych.index.milvus import store as module


def ids_by_key(store, kind="image"):
    ids = store.vectors(kind)[0]
    return dict(zip([entry.key for entry in store.entries(ids)], ids.tolist(), strict=True))


def test_vectors_are_in_the_order_of_the_ids(milvus_store, four):
    ids, vectors = milvus_store.vectors("image")
    assert (np.diff(ids) > 0).all()
    assert ids.max() < 2**53
    keys = [entry.key for entry in milvus_store.entries(ids)]
    assert np.array_equal(vectors, np.stack([four.vector(key) for key in keys]))
    assert milvus_store.counts() == {"image": 4, "text": 4}


def test_entries_are_in_the_given_order_and_a_text_has_the_details_of_its_image(milvus_store):
    image = ids_by_key(milvus_store)["trip/a.jpg"]
    text = ids_by_key(milvus_store, "text")["trip/a.jpg#0"]
    for asked in ([image, text], [text, image]):
        assert [entry.id for entry in milvus_store.entries(asked)] == asked
    one, other = milvus_store.entries([image, text])
    assert (one.path, one.folder, one.split, one.taken) == ("/photos/trip/a.jpg", "trip", "test", "1970-07-20")
    assert (one.width, one.height, one.text, one.moment) == (30, 20, None, None)
    assert (other.text, other.image, other.kind) == ("a dog", image, "text")
    assert (other.path, other.folder, other.split, other.columns) == (one.path, one.folder, one.split, one.columns)
    assert milvus_store.entries([]) == []


def test_an_entry_that_is_not_there(milvus_store):
    with pytest.raises(DataError, match="no entry 17; it may have been removed meanwhile"):
        milvus_store.entries([17])
    assert milvus_store.thumbnail(17) is None


def test_captions_contents_and_looks(milvus_store, four):
    images, texts = ids_by_key(milvus_store), ids_by_key(milvus_store, "text")
    captions = milvus_store.captions([images["b.jpg"], images["trip/sea_%/c.jpg"]])
    assert captions == {images["b.jpg"]: ["a dog", "a cat"], images["trip/sea_%/c.jpg"]: []}
    one, other, third = milvus_store.contents_of([texts["b.jpg#0"], texts["trip/a.jpg#0"], texts["b.jpg#1"]])
    assert one == other != third
    assert milvus_store.looks([images["b.jpg"], texts["b.jpg#0"]]).tolist() == [2**64 - 6] * 2
    kind, encoded = milvus_store.encoded(texts["b.jpg#1"])
    assert kind == "text"
    assert np.array_equal(encoded.vectors[0], four.vector("a cat"))
    assert encoded.sets is None


def test_facets_and_stamps(milvus_store, four):
    assert milvus_store.folders() == ["trip", "trip/sea_%", "trips"]
    assert milvus_store.splits() == ["test", "train"]
    assert milvus_store.columns() == ["price", "sh\"op's"]
    stamps = {key: (1, day * four.DAY + four.DAY // 2, None) for key, (_, day, *_) in four.IMAGES.items()}
    assert milvus_store.image_stamps() == stamps
    assert milvus_store.meta("synced") == "now"
    assert milvus_store.meta("no such value") is None


def test_rows_are_read_once_until_the_index_changes(milvus_store, monkeypatch):
    ids = milvus_store.vectors("image")[0]
    milvus_store.forget()
    asked, query = [], milvus_store.query
    monkeypatch.setattr(milvus_store, "query", lambda *parts: asked.append(parts) or query(*parts))
    monkeypatch.setattr(module, "_FRESH", 60.0)
    milvus_store.entries(ids)
    first = len(asked)
    milvus_store.entries(ids)
    milvus_store.looks(ids)
    assert (first, len(asked)) == (2, 2)  # one request per kind
    milvus_store.forget()
    milvus_store.entries(ids)
    assert len(asked) == 4


def test_more_rows_than_the_cache_holds(milvus_store, monkeypatch):
    monkeypatch.setattr(module, "_CACHED_ROWS", 2)
    monkeypatch.setattr(module, "_AT_ONCE", 3)
    ids = milvus_store.vectors("image")[0]
    assert [entry.id for entry in milvus_store.entries(ids)] == ids.tolist()
    assert len(milvus_store.captions(ids)) == 4


def test_a_collection_that_is_no_index(milvus_address):
    from diptych.index.backend import locate
    from diptych.index.milvus.schema import create_collection

    place = locate(milvus_address)
    store = module.Client(place.address)
    create_collection(store, f"{place.name}__1", 4)
    store.call("create_alias", f"{place.name}__1", place.name)
    with pytest.raises(IndexFileError, match="a collection that Diptych has not made, or not completely"):
        place.open()
    store.close()
