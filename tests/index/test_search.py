import hashlib
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from diptych.errors import DataError, DiptychError, IndexFileError
from diptych.index import exact, search
from diptych.index.encoder import Encodings
from diptych.index.entries import Filters, SearchRequest
from diptych.index.exact import Pool
from diptych.index.query_plan import QueryPlan
from diptych.index.search import Searcher
from diptych.index.source import About
from diptych.index.sqlite.store import IndexSpec, Store
from diptych.index.sqlite.vectors import encode, encode_set
from diptych.index.sqlite.writer import Content, Writer, text_hash

SIZE = 6


def small(words, count=1):
    """Whole numbers, so that a product is the same in any order of its sums."""
    digest = hashlib.sha256(str(words).encode()).digest() * count
    return np.frombuffer(digest, np.uint8)[: SIZE * count].reshape(count, SIZE).astype(np.float32) % 7 - 3


class FakeEncoder:
    address, identity, size = "runs/fake", "fake", SIZE

    def __init__(self, rescores=False, sets=()):
        self.rescores, self.sets = rescores, sets  # the kinds that are sets

    def encodings(self, items, kind):
        own = tuple(small(item, 3) for item in items) if kind in self.sets else None
        return Encodings(np.concatenate([small(item) for item in items]), own)

    def prepare(self, photo):
        return np.asarray(photo)[0, 0]

    def images(self, prepared):
        return self.encodings([tuple(pixel.tolist()) for pixel in prepared], "image")

    def texts(self, texts):
        return self.encodings(texts, "text")

    def score(self, images, texts):
        if images.sets is None:
            return -np.abs(images.vectors[:, None] - texts.vectors[None]).sum(2)
        others = texts.vectors[:, None] if texts.sets is None else texts.sets
        return np.array([[(image @ text.T).max(1).sum() for text in others] for image in images.sets], np.float32)

    def known(self, words):
        return np.array([len(word) < 6 for word in words], bool)


def put(store, names, texts=(), sets=(), looks=None, **about):
    """Images of these names, each with what a fake encoder makes of it, and the texts of the first of them."""
    with store.database.transaction():
        writer = Writer(store, [])
        for text in set(texts):
            own = encode_set(small(text, 3)) if "text" in sets else None
            writer.add(Content("text", text_hash(text), encode(small(text), "float32")[0], own))
        for number, name in enumerate(names):
            own = encode_set(small(name, 3)) if "image" in sets else None
            content = Content(
                "image",
                name.encode(),
                encode(small(name), "float32")[0],
                own,
                look=int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") if looks is None else looks,
            )
            known = writer.content("image", name.encode())
            key = f"{about.get('folder', 'a')}/{len(store.vectors('image')[0])}-{name}"
            split, columns = about.get("split"), about.get("columns", {})
            said = About(None, texts if number == 0 else (), split, columns)
            writer.put_image(key, writer.add(content) if known is None else known, (1, 0, ""), said)


@pytest.fixture
def store(tmp_path):
    made = Store.create(tmp_path / "x.diptych", IndexSpec("runs/fake", "fake", SIZE, False, "float32", "s", None, "0"))
    yield made
    made.close()


def keys(answer):
    return [hit.entry.key for hit in answer.hits]


def reference(pool, query, k, cosine=False, rows=None):
    """The best by sorting all."""
    rows = range(len(pool.ids)) if rows is None else rows
    scores = pool.vectors.astype(np.float64) @ query.astype(np.float64)
    if cosine:
        scores /= pool.lengths
    return sorted(rows, key=lambda row: (-scores[row], row))[:k]


whole = st.integers(-2, 2).map(float)


@given(
    entries=st.lists(st.lists(whole, min_size=3, max_size=3), min_size=1, max_size=40),
    queries=st.lists(st.lists(whole, min_size=3, max_size=3), min_size=1, max_size=4),
    k=st.integers(1, 50),
    every=st.sampled_from([1, 2, 9]),
    cosine=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_exact_search_is_what_sorting_finds(entries, queries, k, every, cosine):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "BLOCK", 7)
        patch.setattr(exact, "SAMPLE", 5)
        ids = 3 * np.arange(len(entries)) + 1
        pool = Pool(ids, np.array(entries, np.float32))
        asked = np.array(queries, np.float32)
        narrowed = pool.narrowed(ids[::every])
        found = narrowed.top(asked, k, cosine)
        for query, own in zip(asked, found, strict=True):
            wanted = reference(pool, query, k, cosine, range(0, len(entries), every))
            if cosine:  # quotients are rounded: equal ones in exact numbers may not be
                ours = narrowed.score(query, own.rows, True)
                assert np.all(np.diff(ours) <= 0)
                assert sorted(ours) == pytest.approx(sorted(pool.score(query, np.array(wanted), True)), abs=1e-6)
            else:
                assert narrowed.ids[own.rows].tolist() == ids[wanted].tolist()
                assert own.scores.tolist() == [float(pool.vectors[row] @ query) for row in wanted]
            assert [narrowed.top(query[None], k, cosine)[0].rows.tolist()] == [own.rows.tolist()]


def test_equal_entries_have_equal_scores_wherever_they_stand():
    random = np.random.default_rng(0)
    row = random.standard_normal((1, 67)).astype(np.float32)
    pool = Pool(np.arange(3001), np.repeat(row, 3001, 0))
    for found in pool.top(random.standard_normal((3, 67)).astype(np.float32), 9):
        assert found.rows.tolist() == list(range(9))
        assert len(set(found.scores.tolist())) == 1
    # a product may give equal entries scores that differ in the last bit: all of them are looked at again
    assert exact._promising(np.arange(4), np.array([1, 0.5, 1 + 1e-7, 1], np.float32), 1, 1e-5).tolist() == [0, 2, 3]


@pytest.mark.parametrize("longest", [1.0, 1e5])
def test_exact_search_finds_the_best_among_vectors_of_any_length(longest):
    random = np.random.default_rng(3)
    vectors = random.standard_normal((3000, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors[5] *= longest
    queries = random.standard_normal((4, 8)).astype(np.float32)
    pool = Pool(np.arange(1, 3001), vectors)
    for query, found in zip(queries, pool.top(queries, 10), strict=True):
        assert found.rows.tolist() == reference(pool, query, 10)


def test_scores_a_rounding_apart_are_told_apart():
    steps = np.float32(0.5) + np.arange(40, dtype=np.float32) * np.float32(2e-6)
    for rows in (np.random.default_rng(seed).permutation(40) for seed in range(20)):
        pool = Pool(np.arange(40), steps[rows][:, None])
        found = pool.top(np.ones((1, 1), np.float32), 7)[0]
        assert found.rows.tolist() == np.argsort(-steps[rows])[:7].tolist()


def test_a_batch_with_several_aims_equals_single_queries(store):
    put(store, [f"n{i}" for i in range(30)], ["red", "blue", "dog"], split="val")
    put(store, [f"m{i}" for i in range(10)], ["car"], folder="b/c", split="test", columns={"year": "1999"})
    searcher = Searcher(store, FakeEncoder())
    asks = [
        SearchRequest(k=3),
        SearchRequest(k=7, filters=Filters(split="test")),
        SearchRequest(to="text", k=2),
        SearchRequest(k=4, filters=Filters(folder="b", columns=(("year", "1999"),))),
        SearchRequest(k=1),
    ]
    kinds = ["text", "text", "image", "image", "image"]
    queries = searcher.encoder.texts([f"q{i}" for i in range(5)])
    batch = searcher.search(queries, asks, kinds)
    single = [searcher.search(queries.take([i]), [asks[i]], kinds[i])[0] for i in range(5)]
    assert batch == single
    assert [len(answer.hits) for answer in batch] == [3, 7, 2, 4, 1]
    assert [answer.searched for answer in batch] == [40, 10, 4, 10, 40]
    assert all(key.startswith("b/c/") for key in keys(batch[1]) + keys(batch[3]))
    ids, vectors = store.vectors("image")
    scores = vectors @ queries.vectors[0]
    assert [hit.entry.id for hit in batch[0].hits] == ids[np.lexsort((ids, -scores))[:3]].tolist()
    assert [hit.score for hit in batch[0].hits] == np.sort(scores)[::-1][:3].tolist()


def test_all_four_directions_and_an_entry_of_its_own(store):
    put(store, [f"n{i}" for i in range(9)], ["red dog", "Red  dog!", "blue"])
    searcher = Searcher(store, FakeEncoder())
    ids, vectors = store.vectors("image")
    cosines = vectors @ vectors[4] / np.linalg.norm(vectors, axis=1) / np.linalg.norm(vectors[4])
    found = searcher.search_similar(int(ids[4]), SearchRequest(k=8))
    assert [hit.entry.id for hit in found.hits] == [ids[row] for row in np.argsort(-cosines, kind="stable") if row != 4]
    assert found.hits[0].score == pytest.approx(np.sort(cosines)[-2], abs=1e-6)
    photo = Image.new("RGB", (4, 4), (1, 2, 3))
    assert len(searcher.search_image(photo, SearchRequest(to="text")).hits) == 2  # the same words are one hit
    assert searcher.search_texts(["blue"], SearchRequest(to="text"))[0].hits[0].score == pytest.approx(1, abs=1e-6)
    text = store.vectors("text")[0][0]
    assert keys(searcher.search_similar(int(text), SearchRequest(k=1))) == keys(
        searcher.search_texts(["red dog"], SearchRequest(k=1))[0]
    )
    assert searcher.unknown_words("a longword and a longword!") == ["longword"]


def test_equal_contents_are_one_hit_and_leave_with_the_asking_one(store):
    put(store, ["p", "q", "p", "r", "p"])
    ids = store.vectors("image")[0].tolist()
    searcher = Searcher(store, FakeEncoder())
    hits = searcher.search(Encodings(small("p")), [SearchRequest(k=3)], "image")[0].hits
    assert hits[0].entry.id == ids[0]
    assert hits[0].near == (ids[2], ids[4])
    assert {hit.entry.id for hit in hits} == {ids[0], ids[1], ids[3]}
    assert {hit.entry.id for hit in searcher.search_similar(ids[2], SearchRequest(k=9)).hits} == {ids[1], ids[3]}


def test_many_copies_do_not_crowd_out_other_hits(store):
    put(store, ["p"] * 60 + ["q", "r"])
    hits = Searcher(store, FakeEncoder()).search(Encodings(small("p")), [SearchRequest(k=3)], "image")[0].hits
    assert len(hits) == 3
    assert len(hits[0].near) == 59


def test_changes_of_another_writer_are_seen(store, tmp_path):
    put(store, ["a"])
    reader = Store.open(tmp_path / "x.diptych")
    searcher = Searcher(reader, FakeEncoder())
    asked = SearchRequest(filters=Filters(folder="a"))
    assert searcher.search_texts(["x"], asked)[0].searched == 1
    put(store, ["b", "c"])
    assert searcher.search_texts(["x"], asked)[0].searched == 3
    reader.close()


def other_file(path, names, identity="fake"):
    """Another index in the place of one that may be open."""
    beside = path.with_name("beside.diptych")
    made = Store.create(beside, IndexSpec("runs/fake", identity, SIZE, False, "float32", "s", None, "0"))
    put(made, names)
    made.close()
    beside.replace(path)


def test_an_index_that_another_model_rebuilt_is_not_searched(store, tmp_path):
    put(store, ["a", "b"])
    store.close()
    searcher = Searcher(Store.open(store.path), FakeEncoder())
    assert len(searcher.search_texts(["x"], SearchRequest())[0].hits) == 2
    other_file(store.path, ["a", "c", "d"])
    assert len(searcher.search_texts(["x"], SearchRequest())[0].hits) == 3
    other_file(store.path, ["a"], "another")
    with pytest.raises(IndexFileError, match="made by another model"):
        searcher.search_texts(["x"], SearchRequest())


def test_an_index_that_is_replaced_during_a_search_is_searched_again(store, monkeypatch):
    put(store, [f"a{i}" for i in range(9)])
    store.close()
    searcher = Searcher(Store.open(store.path), FakeEncoder())
    hits = QueryPlan._hits

    def late(aim, *arguments):
        if not replaced:
            replaced.append(other_file(store.path, [f"b{i}" for i in range(9)]))
        return hits(aim, *arguments)

    replaced = []
    monkeypatch.setattr(QueryPlan, "_hits", late)
    found = searcher.search_texts(["x"], SearchRequest())[0]
    monkeypatch.undo()
    assert replaced
    assert found == searcher.search_texts(["x"], SearchRequest())[0]


def test_an_entry_that_goes_while_it_is_found_is_looked_for_again(store, monkeypatch):
    put(store, ["a", "b"])
    searcher = Searcher(store, FakeEncoder())
    plain = store.entries

    def once(ids):
        monkeypatch.setattr(store, "entries", plain)
        with store.database.transaction():
            Writer(store, ["a/0-a"]).finish({}, [])
        return plain(ids)

    monkeypatch.setattr(store, "entries", once)
    assert keys(searcher.search_texts(["x"], SearchRequest())[0]) == ["a/1-b"]


@pytest.mark.parametrize("sets", [("image", "text"), ("image",), ()], ids=["sets", "regions", "vectors"])
@pytest.mark.parametrize("of", ["text", "image"])
def test_re_ranking_equals_scoring_everything(store, sets, of):
    put(store, [f"n{i}" for i in range(25)], [f"t{i}" for i in range(25)], sets)
    encoder = FakeEncoder(rescores=True, sets=sets)
    to = "image" if of == "text" else "text"
    query = encoder.encodings(["q"], of)
    ids, vectors = store.vectors(to)
    everything = Encodings(vectors, store.sets(ids))
    assert (everything.sets is None) == (to not in sets)
    scores = (encoder.score(everything, query) if of == "text" else encoder.score(query, everything)).ravel()
    best = np.lexsort((ids, -scores))
    found = Searcher(store, encoder).search(query, [SearchRequest(to, k=25)], of)[0]
    assert [hit.entry.id for hit in found.hits] == ids[best].tolist()
    assert [hit.score for hit in found.hits] == pytest.approx(scores[best].tolist())
    like = Searcher(store, encoder).search_similar(int(ids[3]), SearchRequest(of, k=2))
    others, own = store.vectors(of), Encodings(vectors[[3]], everything.sets and everything.sets[3:4])
    rows = Encodings(others[1], store.sets(others[0]))
    scores = (encoder.score(own, rows) if to == "image" else encoder.score(rows, own)).ravel()
    assert [hit.score for hit in like.hits] == pytest.approx(sorted(scores, reverse=True)[:2])


def test_a_cache_is_used_kept_and_made_anew_when_it_is_stale(store, tmp_path):
    put(store, [f"n{i}" for i in range(70)], ["x"])
    encoder = FakeEncoder()
    ask, query = [SearchRequest(k=5)], encoder.texts(["q"])
    wanted = Searcher(store, encoder, ivf="never").search(query, ask, "text")[0]
    found = Searcher(store, encoder, ivf="always").search(query, ask, "text")[0]
    assert (found.method, found.hits) == ("ivf", wanted.hits)
    file = tmp_path / "x.diptych.image.ivf"
    before = file.stat().st_mtime_ns, file.stat().st_ino
    reader = Searcher(store, encoder, ivf_above=10, builds=False)
    assert reader.search(query, ask, "text")[0].method == "ivf"
    put(store, ["another"])
    assert reader.search(query, ask, "text")[0].method == "exact"  # stale, and nobody is to make it
    again = Searcher(store, encoder, ivf="always").search(query, ask, "text")[0]
    assert (again.method, again.searched) == ("ivf", 71)
    assert (file.stat().st_mtime_ns, file.stat().st_ino) != before
    assert (
        reader.search(query, [SearchRequest(k=5, filters=Filters(folder="a"))], "text")[0].method == "exact"
    )  # held since
    assert Searcher(store, encoder, ivf_above=1000).search(query, ask, "text")[0].method == "exact"


def test_a_cache_serves_images_like_an_image_whose_vectors_were_rounded(store, monkeypatch):
    put(store, [f"n{i}" for i in range(70)])
    vectors = np.random.default_rng(5).standard_normal((70, SIZE)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    rounded = vectors.astype(np.float16).astype(np.float32)
    monkeypatch.setattr(store, "vectors", lambda kind: (np.arange(1, 71), rounded))
    query = Encodings(rounded[:1])
    wanted = Searcher(store, FakeEncoder(), ivf="never").search(query, [SearchRequest(k=5)], "image")[0]
    found = Searcher(store, FakeEncoder(), ivf="always").search(query, [SearchRequest(k=5)], "image")[0]
    assert (found.method, found.hits) == ("ivf", wanted.hits)


def test_without_faiss_a_large_index_is_searched_exactly_and_it_is_said(store, monkeypatch):
    put(store, ["a", "b"])
    assert Searcher(store, FakeEncoder(), ivf_above=1).notes() == []
    monkeypatch.setattr(search.ivf_cache, "available", lambda: False)
    searcher = Searcher(store, FakeEncoder(), ivf_above=1)
    assert searcher.search_texts(["x"], SearchRequest())[0].method == "exact"
    assert "pip install 'diptych[faiss]'" in searcher.notes()[0]
    assert Searcher(store, FakeEncoder()).notes() == []
    with pytest.raises(DiptychError, match="faiss"):
        Searcher(store, FakeEncoder(), ivf="always")


def test_nothing_stands_out_among_entries_that_have_nothing_to_do_with_it(store, monkeypatch):
    put(store, [f"n{i}" for i in range(40)])
    random = np.random.default_rng(3)
    vectors = random.standard_normal((40, SIZE)).astype(np.float32)
    vectors[:, 0] = 0
    vectors[7, 0] = 30
    monkeypatch.setattr(store, "vectors", lambda kind: (np.arange(1, 41), vectors))
    searcher = Searcher(store, FakeEncoder())
    there, nowhere = np.eye(SIZE, dtype=np.float32)[:1], random.standard_normal((1, SIZE)).astype(np.float32)
    nowhere[:, 0] = 0
    found = searcher.search(Encodings(there), [SearchRequest(k=3)], "text")[0]
    assert found.found
    assert [hit.stands_out for hit in found.hits] == [True, False, False]
    lost = searcher.search(Encodings(nowhere), [SearchRequest(k=3)], "text")[0]
    assert not lost.found
    assert len(lost.hits) == 3
    monkeypatch.setattr(
        store, "matching", lambda kind, filters: np.arange(10, 15)
    )  # the one that fits is not let through
    copy = searcher.search(Encodings(vectors[11:12] * 2), [SearchRequest(k=2)], "image")[
        0
    ]  # no cosine could be beyond the bar
    assert [hit.stands_out for hit in copy.hits] == [True, False]
    few = searcher.search(Encodings(there), [SearchRequest(k=3, filters=Filters(split="test"))], "text")[0]
    assert (few.searched, few.found) == (5, False)


def test_bad_questions_are_one_line(store):
    put(store, ["a"])
    searcher = Searcher(store, FakeEncoder())
    for words, ask, expected in ((" ", SearchRequest(), "empty"), ("x", SearchRequest(k=0), "k = 0")):
        with pytest.raises(DataError, match=expected):
            searcher.search_texts([words], ask)
    with pytest.raises(DataError, match="no entry 99"):
        searcher.search_similar(99, SearchRequest())
    with pytest.raises(IndexFileError, match=r"another model than runs/other.*diptych index runs/other s --into"):
        Searcher(store, SimpleNamespace(identity="other", address="runs/other", rescores=False))
    assert searcher.search_texts([], SearchRequest()) == []
    assert searcher.search_texts(["x"], SearchRequest(to="text"))[0].hits == ()
    assert not searcher.search_texts(["x"], SearchRequest(to="text"))[0].found
