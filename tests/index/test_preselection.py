import threading

import numpy as np
import pytest

from diptych.errors import DiptychError, IndexFileError
from diptych.files import locked_file
from diptych.index import ivf as ivf_cache
from diptych.index import preselection
from diptych.index.backend import Content
from diptych.index.entries import Filters, SearchRequest
from diptych.index.preselection import Int8Codes
from diptych.index.search import Searcher
from diptych.index.sources.listing import ImageInfo
from diptych.index.sqlite.writer import Writer
from diptych.index.vector_cache import cache_file, packed_pool
from diptych.index.vectors import encode
from diptych.models.engines.engine import Encodings

RANDOM = np.random.default_rng(0)
VECTORS = RANDOM.standard_normal((600, 6)).astype(np.float32)
VECTORS /= np.linalg.norm(VECTORS, axis=1, keepdims=True)
TEN = SearchRequest(k=10)


@pytest.fixture
def filled(kit, store):
    """Six hundred images with random vectors, and a searcher with options."""
    add(store, VECTORS)
    return lambda **options: Searcher(store, kit.FakeModel(), **options)


def add(store, vectors, folder="a"):
    with store.database.transaction():
        writer = Writer(store, [])
        for number, vector in enumerate(encode(vectors, "float32")):
            content = writer.add(Content("image", f"{folder}{number}".encode(), vector, None, look=number * 7919**4))
            about = ImageInfo(None, (), "test" if number % 2 else "train", {})
            writer.put_image(f"{folder}/{number}.jpg", content, (1, 0, ""), about)


def answers(kit, searcher, request=TEN, count=20):
    return [kit.search(searcher, Encodings(query[None]), request, "text") for query in VECTORS[:count] + 0.05]


@pytest.mark.parametrize("request_", [SearchRequest(k=10), SearchRequest(k=10, filters=Filters(split="test"))])
def test_int8_finds_what_exact_search_finds_with_the_same_scores(kit, filled, store, request_, monkeypatch):
    monkeypatch.setattr(preselection, "RESCORED", 60)
    exact, found = (answers(kit, filled(codes=codes), request_) for codes in ("auto", "int8"))
    assert {answer.method for answer in found} == {"int8"}
    assert [answer.hits for answer in found] == [answer.hits for answer in exact]
    assert cache_file(store.path, "image", "int8").exists()
    assert cache_file(store.path, "image").exists()  # candidates are scored with vectors that are mapped


def test_int8_codes_are_those_of_the_present_entries(kit, filled, store):
    searcher = filled(codes="int8")
    answers(kit, searcher, count=1)
    add(store, -VECTORS[:5], "b")
    (answer,) = answers(kit, searcher, count=1)
    assert (answer.method, answer.searched) == ("int8", 605)


def test_codes_of_other_entries_than_the_vectors_are_not_used(kit, filled, store):
    """Of an index that changed after its vectors were loaded, and before the codes were."""
    searcher = filled(codes="int8")
    loaded = searcher._loaded
    loaded.pool("image")
    add(store, -VECTORS[:5], "b")
    assert searcher._preselection.of(loaded, "image") is None
    (answer,) = answers(kit, searcher, count=1)
    assert (answer.method, answer.searched) == ("int8", 605)


def test_int8_selects_enough_candidates_and_only_allowed_ones(filled, store):
    pool, _ = packed_pool(store, "image", "int8")
    codes, allowed = Int8Codes(pool), np.arange(0, 600, 3)
    (rows,) = codes.candidates(VECTORS[:1], 7)
    assert len(rows) == preselection.RESCORED
    assert np.array_equal(rows, np.unique(rows))
    (rows,) = codes.candidates(VECTORS[:1], 7, allowed)
    assert np.array_equal(rows, allowed)


def test_vectors_that_are_int8_need_no_codes(kit, filled, store):
    searcher = filled(codes="int8")
    store.set_meta("making", store.spec.to_json() | {"storage": "int8"})
    store._spec = None
    assert searcher._preselection._int8(searcher._loaded, "image", None) is None


def test_product_quantisation_scores_candidates_exactly(kit, filled, store, monkeypatch):
    pytest.importorskip("faiss")
    monkeypatch.setattr(preselection, "FEWEST", 100)
    monkeypatch.setitem(ivf_cache._RESCORED, "pq", 32)
    exact, found = (answers(kit, filled(codes=codes)) for codes in ("auto", "pq"))
    assert {answer.method for answer in found} == {"pq"}
    shared = 0
    for one, other in zip(exact, found, strict=True):
        scores = {hit.entry.key: hit.score for hit in one.hits}
        own = [hit for hit in other.hits if hit.entry.key in scores]
        assert all(hit.score == scores[hit.entry.key] for hit in own)
        shared += len(own)
    assert shared >= 0.9 * 200
    header = ivf_cache.load(
        ivf_cache.cache_file(store.path, "image", "pq"), packed_pool(store, "image")[0], "fake", store.generation
    ).header
    assert header.recall >= ivf_cache.RECALL
    assert "candidates scored" in ivf_cache.describe(store)[0]


def test_few_entries_are_searched_exactly_instead_of_by_product_quantisation(kit, filled):
    pytest.importorskip("faiss")
    assert {answer.method for answer in answers(kit, filled(codes="pq"), count=2)} == {"exact"}


def test_without_faiss_product_quantisation_is_refused(filled, monkeypatch):
    monkeypatch.setattr(ivf_cache, "available", lambda: False)
    with pytest.raises(DiptychError, match=r"^--codes pq needs faiss: pip install 'diptych\[faiss\]'$"):
        filled(codes="pq")


def test_an_ivf_that_several_build_at_the_same_time_is_built_once(kit, filled, monkeypatch):
    pytest.importorskip("faiss")
    built = []
    original = ivf_cache.build
    monkeypatch.setattr(ivf_cache, "build", lambda *given: built.append(1) or original(*given))
    searchers = [filled(ivf="always") for _ in range(3)]
    threads = [threading.Thread(target=answers, args=(kit, one, SearchRequest(k=3), 1)) for one in searchers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert built == [1]


def test_a_cache_that_cannot_be_built_is_said(kit, filled, store, monkeypatch):
    pytest.importorskip("faiss")
    monkeypatch.setattr(preselection, "_PATIENCE", 0.1)
    searcher = filled(ivf="always")
    with locked_file(ivf_cache.cache_file(store.path, "image"), IndexFileError):
        (answer,) = answers(kit, searcher, count=1)
    assert answer.method == "exact"
    assert any("searching all entries exactly: " in note and "is writing to it" in note for note in searcher.notes())
