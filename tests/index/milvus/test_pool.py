"""Milvus selects, and candidates are scored with their own vectors, as an index in a file does it."""

import numpy as np
import pytest

from diptych.errors import DataError
from diptych.index.entries import Filters
from diptych.index.exact import Pool
from diptych.index.milvus import pool as module


@pytest.mark.parametrize("cosine", [False, True])
@pytest.mark.parametrize("kind", ["image", "text"])
def test_the_best_are_those_of_exact_search(milvus_store, four, kind, cosine):
    ids, vectors = milvus_store.vectors(kind)
    queries = np.stack([four.vector(name) for name in ("x", "y")]) * (1 if cosine else 3)
    found = milvus_store.pool(kind, Filters()).top(queries, 3, cosine)
    for one, other in zip(found, Pool(ids, vectors).top(queries, 3, cosine), strict=True):
        assert one.rows.tolist() == ids[other.rows].tolist()
        assert np.allclose(one.scores, other.scores)


def test_only_what_passes_the_filters_is_found(milvus_store, four):
    pool = milvus_store.pool("image", Filters("trip"))
    ((found,), rows) = pool.top(four.vector("x")[None], 10), pool.ids_of(np.array([3]))
    assert (len(pool), pool.reachable, len(found.rows), rows.tolist()) == (2, 2, 2, [3])
    assert {entry.folder for entry in milvus_store.entries(found.rows)} == {"trip", "trip/sea_%"}
    empty = milvus_store.pool("image", Filters("none")).top(four.vector("x")[None], 10)
    assert [len(one.rows) for one in empty] == [0]


def test_nothing_but_the_candidates_is_fetched(milvus_store, four, monkeypatch):
    milvus_store.forget()
    fetched, query = [], milvus_store.query
    monkeypatch.setattr(milvus_store, "query", lambda *parts: fetched.extend(found := query(*parts)) or found)
    monkeypatch.setattr(milvus_store, "vectors", None)
    monkeypatch.setattr(module, "_MARGIN", 0)
    milvus_store.pool("image", Filters()).top(four.vector("x")[None], 2)
    assert len(fetched) == 2


def test_no_more_than_milvus_returns_is_reachable(milvus_store, four, monkeypatch):
    monkeypatch.setattr(module, "MOST", 3)
    pool = milvus_store.pool("image", Filters())
    assert (len(pool), pool.reachable) == (4, 3)
    assert len(pool.top(four.vector("x")[None], 10)[0].rows) == 3


def test_vectors_of_other_lengths_cannot_be_compared_by_cosine(milvus_store, four, monkeypatch):
    monkeypatch.setattr(milvus_store, "meta", lambda name: False if name == "unit" else None)
    with pytest.raises(DataError, match="do not have length one"):
        milvus_store.pool("image", Filters()).top(four.vector("x")[None], 1, cosine=True)


def test_some_vectors_and_the_method(milvus_store):
    pool = milvus_store.pool("image", Filters())
    assert (pool.sampled.shape, pool.method) == ((4, 4), "exact")
