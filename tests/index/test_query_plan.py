import numpy as np
import pytest

from diptych.index.entries import Filters, SearchRequest
from diptych.index.relevance import answer_level
from diptych.index.search import Searcher
from diptych.models.calibration.calibration import Calibration, LogisticFit
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


@pytest.fixture
def calibrated(kit):
    """A searcher whose hits have the probabilities of their scores, less the best score with the reference photos."""

    def make(store, **options):
        weights = np.array([1, 0, 0, 0, 0, -1, 0], np.float32)
        fits = LogisticFit(weights, 0.0), LogisticFit(weights, -1.0)
        searcher = Searcher(store, kit.FakeModel(**options))
        searcher.calibration = Calibration("fake", *fits, np.eye(kit.SIZE, dtype=np.float32)[:1], {})
        return searcher

    return make


def sigmoid(value):
    return 1 / (1 + np.exp(-value))


def test_a_hit_is_judged_by_its_own_score_and_not_by_how_many_others_fit(kit, store, calibrated, monkeypatch):
    kit.put(store, [f"n{i}" for i in range(40)])
    vectors = np.zeros((40, kit.SIZE), np.float32)
    vectors[:, 0] = np.where(np.arange(40) < 30, 6, -4)  # thirty photos fit
    monkeypatch.setattr(store, "vectors", lambda kind: (np.arange(1, 41), vectors))
    query = Encodings(np.eye(kit.SIZE, dtype=np.float32)[:1])
    answer = kit.search(calibrated(store), query, SearchRequest(k=40), "text", "red dog")
    assert answer.found
    assert [hit.fit for hit in answer.hits] == ["strong"] * 30 + ["weak"] * 10
    assert answer.hits[0].probability == pytest.approx(sigmoid(5), abs=1e-4)
    assert [hit.stands_out for hit in answer.hits] == [True] * 30 + [False] * 10
    # The same photos are judged alike if a filter lets only the worse ones through, and then nothing is found.
    monkeypatch.setattr(store, "matching", lambda kind, filters: np.arange(31, 41))
    few = kit.search(calibrated(store), query, SearchRequest(filters=Filters(split="test")), "text", "red dog")
    assert (few.found, {hit.fit for hit in few.hits}) == (False, {"weak"})
    assert few.hits[0].probability == answer.hits[-1].probability


def test_whether_anything_is_found_depends_on_how_many_photos_are_searched(kit, store, calibrated, monkeypatch):
    kit.put(store, [f"n{i}" for i in range(60)])
    vectors = np.zeros((60, kit.SIZE), np.float32)
    vectors[:, 0] = 0.2
    assert answer_level(20) < sigmoid(0.2 - 1 - 1) < answer_level(60)
    monkeypatch.setattr(store, "vectors", lambda kind: (np.arange(1, 61), vectors))
    query = Encodings(np.eye(kit.SIZE, dtype=np.float32)[:1])
    assert not kit.search(calibrated(store), query, SearchRequest(), "text", "red dog").found
    monkeypatch.setattr(store, "matching", lambda kind, filters: np.arange(1, 21))
    assert kit.search(calibrated(store), query, SearchRequest(filters=Filters(split="test")), "text", "red dog").found


def test_a_later_page_is_judged_as_the_first(kit, store, calibrated):
    kit.put(store, [f"n{i}" for i in range(40)])
    query = kit.FakeModel().encode_texts(["red dog"])
    whole = kit.search(calibrated(store), query, SearchRequest(k=40), "text", "red dog")
    first = kit.search(calibrated(store), query, SearchRequest(k=25), "text", "red dog")
    second = kit.search(calibrated(store), query, SearchRequest(k=25, cursor=first.next), "text", "red dog")
    assert [hit.fit for answer in (first, second) for hit in answer.hits] == [hit.fit for hit in whole.hits]
    assert {hit.fit for hit in whole.hits} >= {"strong", "weak"}  # else the test would be vacuous


def test_texts_for_a_photo_are_judged_by_what_is_known_of_each_text(kit, store, calibrated):
    kit.put(store, ["n0"], [f"t{i}" for i in range(20)])
    searcher = calibrated(store)
    query = kit.FakeModel().encodings(["q"], "image")
    answer = kit.search(searcher, query, SearchRequest("text", k=20), "image")
    for hit in answer.hits:
        vector = kit.vectors_of(hit.entry.text)[0]
        assert hit.probability == pytest.approx(sigmoid(vector @ query.vectors[0] - vector[0]), abs=1e-4)


def test_hits_are_not_judged_without_a_calibration_or_among_their_own_kind(kit, store, calibrated):
    kit.put(store, [f"n{i}" for i in range(5)], ["t"])
    query = kit.FakeModel().encode_texts(["red dog"])
    answers = [
        kit.search(Searcher(store, kit.FakeModel()), query, SearchRequest(), "text", "red dog"),
        kit.search(calibrated(store), query, SearchRequest(), "image"),
        kit.search(calibrated(store), query, SearchRequest(), "text"),  # a vector without its text
        kit.search(calibrated(store), query, SearchRequest(more=(1,)), "text", "red dog"),  # mixed with a photo
    ]
    for answer in answers:
        assert answer.found
        assert {(hit.fit, hit.probability, hit.stands_out) for hit in answer.hits} == {(None, None, True)}


def test_an_image_with_all_words_is_certain(kit, store, calibrated):
    kit.put(store, ["n0"], ["red dog"])
    kit.put(store, [f"m{i}" for i in range(20)], folder="b")
    searcher = calibrated(store)
    for mode in ("words", "both"):
        (answer,) = searcher.search_texts(["red dog"], SearchRequest(k=30, mode=mode))
        hit = next(hit for hit in answer.hits if hit.entry.key == "a/0-n0")
        assert (answer.found, hit.fit, hit.probability) == (True, "strong", None)


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
