"""Queries share passes of the model, and are cached."""

import numpy as np

from diptych.index.search import Searcher
from diptych.serve.app import create_app
from diptych.serve.queries import LruCache, stored_encoding


def test_concurrent_queries_share_a_pass_and_a_product(kit, two, monkeypatch):
    app = create_app(two)
    model = two["first"].model
    searched = []
    search = Searcher.search

    def counted(self, queries):
        searched.append(len(queries))
        return search(self, queries)

    monkeypatch.setattr(Searcher, "search", counted)
    model.passes.clear()
    words = [f"red {number}" for number in range(20)]
    addresses = [f"/search?text={text}&index={name}&k=1" for name in two for text in words]
    answers = kit.together(app, [*addresses, addresses[0], "/search?text=poison", "/search?text=venom"])
    assert [answer.status_code for answer in answers] == [200] * 41 + [500] * 2
    assert all(answer.json()["hits"][0]["key"].endswith("red.jpg") for answer in answers[:41])
    assert [answer.json()["text"] for answer in answers[:20]] == words
    assert "not finite" in answers[-1].json()["error"]
    healthy = [size for size in model.passes if size > 1]
    assert sum(searched) <= 41  # equal queries are searched once
    assert len(searched) < 15
    assert len(healthy) < 8
    model.passes.clear()
    assert kit.together(app, addresses[:1])[0].json()["hits"] == answers[0].json()["hits"]
    assert model.passes == []  # the encoding was cached


def test_the_stored_encoding_is_what_was_indexed(two):
    ids, vectors = two["first"].store.vectors("image")
    row, kind = stored_encoding(two["first"], int(ids[1]))
    assert (kind, row.sets) == ("image", None)
    assert np.array_equal(row.vectors, vectors[[1]])


def test_a_cache_drops_the_least_recently_used():
    cache = LruCache(limit=2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1
    cache.put("c", 3)
    assert [cache.get(key) for key in "abc"] == [1, None, 3]
    assert len(cache) == 2
