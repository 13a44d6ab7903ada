import numpy as np
import pytest

from diptych.index.entries import Filters, SearchRequest
from diptych.index.search import Searcher
from diptych.models.engines.engine import Encodings


def test_equal_contents_are_one_hit_and_a_similar_search_excludes_all_of_them(kit, store):
    kit.put(store, ["p", "q", "p", "r", "p"])
    ids = store.vectors("image")[0].tolist()
    searcher = Searcher(store, kit.FakeModel())
    hits = kit.search(searcher, Encodings(kit.vectors_of("p")), SearchRequest(k=3), "image").hits
    assert hits[0].entry.id == ids[0]
    assert hits[0].near == (ids[2], ids[4])
    assert {hit.entry.id for hit in hits} == {ids[0], ids[1], ids[3]}
    assert {hit.entry.id for hit in searcher.search_similar(ids[2], SearchRequest(k=9)).hits} == {ids[1], ids[3]}


def test_many_copies_do_not_crowd_out_other_hits(kit, store):
    kit.put(store, ["p"] * 60 + ["q", "r"])
    searcher = Searcher(store, kit.FakeModel())
    hits = kit.search(searcher, Encodings(kit.vectors_of("p")), SearchRequest(k=3), "image").hits
    assert len(hits) == 3
    assert len(hits[0].near) == 59


@pytest.mark.parametrize("set_kinds", [("image", "text"), ("image",), ()], ids=["sets", "regions", "vectors"])
@pytest.mark.parametrize("kind", ["text", "image"])
def test_re_ranking_equals_scoring_everything(kit, store, set_kinds, kind):
    kit.put(store, [f"n{i}" for i in range(25)], [f"t{i}" for i in range(25)], set_kinds)
    model = kit.FakeModel(is_inner_product=False, set_kinds=set_kinds)
    to = "image" if kind == "text" else "text"
    query = model.encodings(["q"], kind)
    ids, vectors = store.vectors(to)
    everything = Encodings(vectors, store.sets(ids))
    assert (everything.sets is None) == (to not in set_kinds)
    scores = (model.score(everything, query) if kind == "text" else model.score(query, everything)).ravel()
    best = np.lexsort((ids, -scores))
    found = kit.search(Searcher(store, model), query, SearchRequest(to, k=25), kind)
    assert [hit.entry.id for hit in found.hits] == ids[best].tolist()
    assert [hit.score for hit in found.hits] == pytest.approx(scores[best].tolist())
    similar = Searcher(store, model).search_similar(int(ids[3]), SearchRequest(kind, k=2))
    other_ids, other_vectors = store.vectors(kind)
    entry = Encodings(vectors[[3]], everything.sets and everything.sets[3:4])
    others = Encodings(other_vectors, store.sets(other_ids))
    scores = (model.score(entry, others) if to == "image" else model.score(others, entry)).ravel()
    assert [hit.score for hit in similar.hits] == pytest.approx(sorted(scores, reverse=True)[:2])


def test_only_the_best_candidates_are_re_ranked(kit, store):
    kit.put(store, [f"n{i}" for i in range(60)])
    model = kit.FakeModel(is_inner_product=False)
    scored = []
    model.score = lambda images, texts: scored.append(len(images)) or np.zeros((len(images), len(texts)), np.float32)
    kit.search(Searcher(store, model, rerank=25), model.encode_texts(["q"]), SearchRequest(k=1), "text")
    assert scored == [25]


def test_only_related_entries_stand_out(kit, store, monkeypatch):
    kit.put(store, [f"n{i}" for i in range(40)])
    random = np.random.default_rng(3)
    vectors = random.standard_normal((40, kit.SIZE)).astype(np.float32)
    vectors[:, 0] = 0
    vectors[7, 0] = 30
    monkeypatch.setattr(store, "vectors", lambda kind: (np.arange(1, 41), vectors))
    searcher = Searcher(store, kit.FakeModel())
    matching = Encodings(np.eye(kit.SIZE, dtype=np.float32)[:1])
    unrelated = random.standard_normal((1, kit.SIZE)).astype(np.float32)
    unrelated[:, 0] = 0
    found = kit.search(searcher, matching, SearchRequest(k=3), "text")
    assert found.found
    assert [hit.stands_out for hit in found.hits] == [True, False, False]
    not_found = kit.search(searcher, Encodings(unrelated), SearchRequest(k=3), "text")
    assert not not_found.found
    assert len(not_found.hits) == 3
    # A copy stands out even where no cosine could reach the threshold.
    copy = kit.search(searcher, Encodings(vectors[11:12] * 2), SearchRequest(k=2), "image")
    assert [hit.stands_out for hit in copy.hits] == [True, False]
    # A filter that excludes the matching entry does not make the others stand out.
    monkeypatch.setattr(store, "matching", lambda kind, filters: np.arange(10, 15))
    few = kit.search(searcher, matching, SearchRequest(k=3, filters=Filters(split="test")), "text")
    assert (few.searched, few.found) == (5, False)


def test_an_ivf_finds_similar_images_among_rounded_vectors(kit, store, monkeypatch):
    pytest.importorskip("faiss")
    kit.put(store, [f"n{i}" for i in range(70)])
    vectors = np.random.default_rng(5).standard_normal((70, kit.SIZE)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    rounded = vectors.astype(np.float16).astype(np.float32)
    monkeypatch.setattr(store, "vectors", lambda kind: (np.arange(1, 71), rounded))
    exact, ivf = (
        kit.search(Searcher(store, kit.FakeModel(), ivf=use), Encodings(rounded[:1]), SearchRequest(k=5), "image")
        for use in ("never", "always")
    )
    assert (ivf.method, ivf.hits) == ("ivf", exact.hits)
