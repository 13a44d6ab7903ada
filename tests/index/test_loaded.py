import shutil

import numpy as np
import pytest

from diptych.errors import IndexFileError
from diptych.index.entries import Filters
from diptych.index.loaded import LoadedIndex
from diptych.index.sqlite.store import Store


def test_each_part_is_loaded_once(kit, store, monkeypatch):
    kit.put(store, ["p", "q"], ["one", "two"], split="test")
    loaded = LoadedIndex(store)
    assert (len(loaded.pool("image")), len(loaded.pool("text"))) == (2, 2)
    filtered = loaded.pool("image", Filters(split="test"))
    monkeypatch.setattr(store, "vectors", None)
    monkeypatch.setattr(store, "matching", None)
    assert loaded.pool("image") is loaded.pool("image", Filters())
    assert loaded.pool("image", Filters(split="test")) is filtered


def test_only_the_most_recent_filters_are_remembered(kit, store):
    kit.put(store, ["p"] * 9, split="test")
    loaded = LoadedIndex(store)
    filters = [Filters(folder="none"), *(Filters(until=f"19{year}-01-01") for year in range(10, 13))]
    pools = [loaded.pool("image", one) for one in filters]
    assert loaded.pool("image", filters[0]) is pools[0]  # now the most recent
    loaded.pool("image", Filters(split="test"))
    assert loaded.pool("image", filters[0]) is pools[0]
    assert loaded.pool("image", filters[1]) is not pools[1]


def test_a_filter_by_an_album_follows_the_album(kit, store):
    kit.put(store, ["p", "q"])
    loaded, favourites = LoadedIndex(store), Filters(album=0)
    assert len(loaded.pool("image", favourites)) == 0
    with store.edit_albums() as edit:
        edit.add(0, [1])
    assert loaded.pool("image", favourites).allowed.tolist() == [0]
    assert loaded.is_current


def test_it_is_current_until_the_index_changes(kit, store):
    kit.put(store, ["p"])
    loaded = LoadedIndex(store)
    assert loaded.is_current
    kit.put(store, ["q"])
    assert not loaded.is_current


def test_it_is_not_current_once_a_copy_has_taken_the_place_of_the_file(kit, store):
    kit.put(store, ["p"])
    store.close()
    reader = Store.open(store.path)
    loaded = LoadedIndex(reader)
    shutil.copy(store.path, store.path.with_name("copy"))
    store.path.with_name("copy").replace(store.path)
    assert not loaded.is_current
    assert LoadedIndex(reader).is_current
    reader.close()


def test_vectors_that_are_not_finite_are_refused(kit, store, monkeypatch):
    monkeypatch.setattr(store, "vectors", lambda kind: (np.array([1]), np.full((1, 3), np.inf, np.float32)))
    with pytest.raises(IndexFileError, match="diptych index rebuild"):
        LoadedIndex(store).pool("image")
