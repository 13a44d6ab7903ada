from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from diptych.errors import DataError, DiptychError, ImageError, IndexFileError, ScoreError
from diptych.index import search
from diptych.index.entries import Filters, SearchRequest
from diptych.index.query import Query
from diptych.index.query_plan import QueryPlan
from diptych.index.search import CALIBRATE, NOT_JUDGED, Searcher, open_store
from diptych.index.sqlite.store import Store
from diptych.index.sqlite.writer import Writer
from diptych.models.calibration.calibration import Calibration, LogisticFit
from diptych.models.engines.engine import Encodings

UNJUDGED = f"{NOT_JUDGED}; {CALIBRATE}"


def test_a_batch_of_different_requests_equals_single_queries(kit, store):
    kit.put(store, [f"n{i}" for i in range(30)], ["red", "blue", "dog"], split="val")
    kit.put(store, [f"m{i}" for i in range(10)], ["car"], folder="b/c", split="test", columns={"year": "1999"})
    searcher = Searcher(store, kit.FakeModel())
    encoded = searcher.model.encode_texts([f"q{i}" for i in range(5)])
    queries = [
        Query(encoded.take([0]), "text", SearchRequest(k=3)),
        Query(encoded.take([1]), "text", SearchRequest(k=7, filters=Filters(split="test")), "some words"),
        Query(encoded.take([2]), "image", SearchRequest(to="text", k=2)),
        Query(encoded.take([3]), "image", SearchRequest(k=4, filters=Filters("b", columns=(("year", "1999"),)))),
        Query(encoded.take([4]), "image", SearchRequest(k=1)),
    ]
    batch = searcher.search(queries)
    assert batch == [searcher.search([query])[0] for query in queries]
    assert [len(answer.hits) for answer in batch] == [3, 7, 2, 4, 1]
    assert [answer.searched for answer in batch] == [40, 10, 4, 10, 40]
    assert all(key.startswith("b/c/") for key in kit.keys(batch[1]) + kit.keys(batch[3]))
    ids, vectors = store.vectors("image")
    scores = vectors @ encoded.vectors[0]
    assert [hit.entry.id for hit in batch[0].hits] == ids[np.lexsort((ids, -scores))[:3]].tolist()
    assert [hit.score for hit in batch[0].hits] == np.sort(scores)[::-1][:3].tolist()


def test_all_four_directions_and_similar_entries(kit, store):
    kit.put(store, [f"n{i}" for i in range(9)], ["red dog", "Red  dog!", "blue"])
    searcher = Searcher(store, kit.FakeModel())
    ids, vectors = store.vectors("image")
    cosines = vectors @ vectors[4] / np.linalg.norm(vectors, axis=1) / np.linalg.norm(vectors[4])
    found = searcher.search_similar(int(ids[4]), SearchRequest(k=8))
    assert [hit.entry.id for hit in found.hits] == [ids[row] for row in np.argsort(-cosines, kind="stable") if row != 4]
    assert found.hits[0].score == pytest.approx(np.sort(cosines)[-2], abs=1e-6)
    photo = Image.new("RGB", (4, 4), (1, 2, 3))
    assert len(searcher.search_image(photo, SearchRequest(to="text")).hits) == 2  # the same words are one hit
    (answer,) = searcher.search_texts(["blue"], SearchRequest(to="text"))
    assert answer.hits[0].score == pytest.approx(1, abs=1e-6)
    text = int(store.vectors("text")[0][0])
    (answer,) = searcher.search_texts(["red dog"], SearchRequest(k=1, mode="meaning"))
    assert kit.keys(searcher.search_similar(text, SearchRequest(k=1))) == kit.keys(answer)


def test_an_image_file_is_searched_like_its_photo(kit, store, tmp_path):
    kit.put(store, ["n"], ["red", "blue"])
    searcher = Searcher(store, kit.FakeModel())
    photo = Image.new("RGB", (4, 4), (1, 2, 3))
    photo.save(tmp_path / "photo.png")
    request = SearchRequest(to="text")
    assert searcher.search_file(tmp_path / "photo.png", request) == searcher.search_image(photo, request)
    with pytest.raises(ImageError, match="no such file"):
        searcher.search_file(tmp_path / "none.png", request)


def test_an_answer_names_the_words_that_the_model_does_not_know(kit, store):
    kit.put(store, [f"n{i}" for i in range(5)])  # too few for anything not to stand out
    searcher = Searcher(store, kit.FakeModel())
    known, some, none = searcher.search_texts(
        ["red dog", "a red longword, longword", "longword longerword"], SearchRequest()
    )
    assert (known.unknown_words, known.found, known.message) == ((), True, None)
    assert (some.unknown_words, some.found) == (("longword",), True)
    assert some.message == "The model does not know “longword”."
    assert none.unknown_words == ("longword", "longerword")
    assert not none.found
    assert none.hits == ()
    assert not any(hit.stands_out for hit in none.hits)
    assert none.message == "The model knows none of these words; try other words."
    # The same from the encoding, as the HTTP service asks; without its text nothing is known about words.
    encoded = searcher.model.encode_texts(["longword longerword"])
    assert kit.search(searcher, encoded, SearchRequest(), "text", "longword longerword") == none
    assert kit.search(searcher, encoded, SearchRequest(), "text").found


@pytest.mark.parametrize("text", ["*", '"', '""', "-", "(", "* -snow", "?!"])
@pytest.mark.parametrize("mode", ["meaning", "words", "both"])
def test_signs_alone_find_nothing(kit, store, text, mode):
    kit.put(store, [f"n{i}" for i in range(5)], ["red snow"])
    searcher = Searcher(store, kit.FakeModel())
    request = SearchRequest(mode=mode)
    answers = searcher.search_texts([text], request)
    if mode == "meaning":
        answers.append(searcher.search_similar(1, SearchRequest(added=text)))
    for answer in answers:
        assert (answer.hits, answer.found, answer.next) == ((), False, None)
        assert answer.message == "There are no words in the query; describe what to look for."
    if mode == "meaning":  # the liked images say what to look for
        assert searcher.search_texts([text], SearchRequest(more=(1,)))[0].hits


def test_many_unknown_words_are_counted(kit, store):
    kit.put(store, ["n"])
    words = " ".join(f"unknown{letter}" for letter in "abcdefg")
    (answer,) = Searcher(store, kit.FakeModel()).search_texts([f"red {words}"], SearchRequest())
    assert len(answer.unknown_words) == 7
    assert answer.message.endswith("“unknowne” and 2 more words.")


def test_a_message_explains_an_answer_without_hits(kit, store, monkeypatch):
    searcher = Searcher(store, kit.FakeModel())
    (empty,) = searcher.search_texts(["red"], SearchRequest())
    assert (empty.hits, empty.found) == ((), False)
    assert empty.message == "The index has no images yet; `diptych index` adds some."
    kit.put(store, ["p", "p"])
    (filtered,) = searcher.search_texts(["red"], SearchRequest(filters=Filters(folder="elsewhere")))
    assert filtered.message == "No image passes the filters; widen them."
    (filtered_name,) = searcher.search_texts(["p"], SearchRequest(filters=Filters(folder="elsewhere")))
    assert (filtered_name.message, filtered_name.words_exist) == (filtered.message, False)
    similar = searcher.search_similar(1, SearchRequest())
    assert (similar.hits, similar.searched) == ((), 2)
    assert similar.message == "There is nothing else: every entry is a copy of this one."
    never = LogisticFit(np.zeros(7, np.float32), -9.0)
    searcher.calibration = Calibration("fake", never, never, np.ones((1, kit.SIZE), np.float32), {})
    unrelated, named, both = searcher.search_texts(["red", "p", "red p"], SearchRequest())
    assert (unrelated.found, unrelated.message) == (False, "Nothing stands out; these are the nearest.")
    assert named.message == both.message == unrelated.message
    assert [answer.words_exist for answer in (unrelated, named, both)] == [False, True, False]
    (unknown,) = searcher.search_texts(["longword"], SearchRequest())
    assert (unknown.hits, unknown.words_exist) == ((), False)
    kit.put(store, ["longword"])
    searcher.refresh()
    (found_by_name,) = searcher.search_texts(["longword"], SearchRequest())
    assert (found_by_name.hits, found_by_name.message, found_by_name.words_exist) == ((), unknown.message, True)


def test_changes_by_another_writer_are_seen(kit, store, tmp_path):
    kit.put(store, ["a"])
    reader = Store.open(tmp_path / "x.diptych")
    searcher = Searcher(reader, kit.FakeModel())
    request = SearchRequest(filters=Filters(folder="a"))
    assert searcher.search_texts(["x"], request)[0].searched == 1
    kit.put(store, ["b", "c"])
    assert searcher.search_texts(["x"], request)[0].searched == 3
    reader.close()


def replace_index(kit, path, names, identity="fake"):
    """Put another index in the place of one that may be open."""
    beside = path.with_name("beside.diptych")
    store = Store.create(beside, kit.spec(identity))
    kit.put(store, names)
    store.close()
    beside.replace(path)


def test_an_index_that_another_model_rebuilt_is_not_searched(kit, store):
    kit.put(store, ["a", "b"])
    store.close()
    searcher = Searcher(Store.open(store.path), kit.FakeModel())
    assert len(searcher.search_texts(["x"], SearchRequest())[0].hits) == 2
    replace_index(kit, store.path, ["a", "c", "d"])
    assert searcher.model_matches
    assert len(searcher.search_texts(["x"], SearchRequest())[0].hits) == 3
    replace_index(kit, store.path, ["a"], "another")
    assert not searcher.model_matches
    with pytest.raises(IndexFileError, match="made by another model"):
        searcher.search_texts(["x"], SearchRequest())


def test_an_index_that_is_replaced_during_a_search_is_searched_again(kit, store, monkeypatch):
    kit.put(store, [f"a{i}" for i in range(9)])
    store.close()
    searcher = Searcher(Store.open(store.path), kit.FakeModel())
    answer = QueryPlan.answer

    def late(plan, *arguments):
        if not replaced:
            replaced.append(replace_index(kit, store.path, [f"b{i}" for i in range(9)]))
        return answer(plan, *arguments)

    replaced = []
    monkeypatch.setattr(QueryPlan, "answer", late)
    found = searcher.search_texts(["x"], SearchRequest())[0]
    monkeypatch.undo()
    assert replaced
    assert found == searcher.search_texts(["x"], SearchRequest())[0]


def test_a_search_is_repeated_if_a_hit_is_removed_meanwhile(kit, store, monkeypatch):
    kit.put(store, ["a", "b"])
    searcher = Searcher(store, kit.FakeModel())
    entries = store.entries

    def once(ids):
        monkeypatch.setattr(store, "entries", entries)
        with store.database.transaction():
            Writer(store, ["a/0-a"]).finish({}, [])
        return entries(ids)

    monkeypatch.setattr(store, "entries", once)
    assert kit.keys(searcher.search_texts(["x"], SearchRequest())[0]) == ["a/1-b"]


def test_an_ivf_is_used_stored_and_rebuilt_when_it_is_stale(kit, store, tmp_path):
    pytest.importorskip("faiss")
    kit.put(store, [f"n{i}" for i in range(70)], ["x"])
    model = kit.FakeModel()

    def answer(searcher, request=SearchRequest(k=5)):  # noqa: B008 (immutable)
        return kit.search(searcher, model.encode_texts(["q"]), request, "text")

    exact = answer(Searcher(store, model, ivf="never"))
    found = answer(Searcher(store, model, ivf="always"))
    assert (found.method, found.hits) == ("ivf", exact.hits)
    file = tmp_path / "x.diptych.image.ivf"
    before = file.stat().st_mtime_ns, file.stat().st_ino
    reader = Searcher(store, model, ivf_above=10, build_ivf=False)
    assert answer(reader).method == "ivf"
    kit.put(store, ["another"])
    assert answer(reader).method == "exact"  # stale, and this searcher does not build
    again = answer(Searcher(store, model, ivf="always"))
    assert (again.method, again.searched) == ("ivf", 71)
    assert (file.stat().st_mtime_ns, file.stat().st_ino) != before
    assert answer(reader, SearchRequest(k=5, filters=Filters(folder="a"))).method == "exact"  # loaded before
    assert answer(Searcher(store, model, ivf_above=1000)).method == "exact"


def test_without_faiss_a_large_index_is_searched_exactly_and_a_note_says_so(kit, store, monkeypatch):
    kit.put(store, ["a", "b"])
    assert Searcher(store, kit.FakeModel(), ivf_above=1).notes() == [UNJUDGED]
    monkeypatch.setattr(search.ivf_cache, "available", lambda: False)
    searcher = Searcher(store, kit.FakeModel(), ivf_above=1)
    assert searcher.search_texts(["x"], SearchRequest())[0].method == "exact"
    assert "pip install 'diptych[faiss]'" in searcher.notes()[0]
    assert Searcher(store, kit.FakeModel()).notes() == [UNJUDGED]
    with pytest.raises(DiptychError, match="faiss"):
        Searcher(store, kit.FakeModel(), ivf="always")


def test_bad_queries_are_refused_in_one_line(kit, store):
    kit.put(store, ["a"])
    searcher = Searcher(store, kit.FakeModel())
    for words, request, expected in ((" ", SearchRequest(), "empty"), ("x", SearchRequest(k=0), "k = 0")):
        with pytest.raises(DataError, match=expected):
            searcher.search_texts([words], request)
    with pytest.raises(DataError, match="no entry 99"):
        searcher.search_similar(99, SearchRequest())
    with pytest.raises(ScoreError, match="not finite"):
        kit.search(searcher, Encodings(np.full((1, kit.SIZE), np.nan, np.float32)), SearchRequest(), "text")
    with pytest.raises(IndexFileError, match=r"another model than runs/other.*diptych index runs/other s --into"):
        Searcher(store, SimpleNamespace(identity="other", address="runs/other"))
    assert searcher.search_texts([], SearchRequest()) == []


def test_a_run_or_a_folder_is_not_an_index(tmp_path):
    with pytest.raises(IndexFileError, match=f"diptych index starter {tmp_path}"):
        open_store(tmp_path)
    (tmp_path / "vocabulary.json").touch()
    with pytest.raises(IndexFileError, match=f"diptych index {tmp_path} FOLDER"):
        open_store(tmp_path)


def test_excluded_words_turn_the_query_and_remove_captioned_hits(kit, store):
    kit.put(store, ["n0"], ["red dog", "in the snow"])
    kit.put(store, [f"m{i}" for i in range(40)])
    searcher = Searcher(store, kit.FakeModel())
    plain, excluding = searcher.search_texts(["dog", "dog -snow"], SearchRequest(k=50))
    assert len(plain.hits) == 41
    assert len(excluding.hits) == 40
    assert "a/0-n0" in kit.keys(plain)
    assert "a/0-n0" not in kit.keys(excluding)
    assert [hit.score for hit in plain.hits[:5]] != [hit.score for hit in excluding.hits[:5]]
    (texts,) = searcher.search_texts(["dog -snow"], SearchRequest(to="text"))
    assert not texts.hits  # a text is excluded with its image
    assert texts.message == "All hits have an excluded word in their captions or in the picture."
    (unknown,) = searcher.search_texts(["dog -avalanche"], SearchRequest())
    assert unknown.unknown_words == ("avalanche",)
    assert "knows none of these" not in unknown.message
    assert searcher.search_similar(2, SearchRequest(k=50, excluded=("snow",))).hits
    with pytest.raises(DataError, match="only excludes"):
        searcher.search_texts(["dog", "-snow"], SearchRequest())


def unit(vector):
    return vector / np.linalg.norm(vector)


def test_words_are_added_to_an_entry_and_to_a_photo(kit, store):
    kit.put(store, [f"n{i}" for i in range(30)], ["red snow"])
    searcher = Searcher(store, kit.FakeModel())
    (first, *_) = store.vectors("image")[0].tolist()
    plain = searcher.search_similar(first, SearchRequest())
    added = searcher.search_similar(first, SearchRequest(added="red"))
    assert kit.keys(plain) != kit.keys(added)
    assert first not in [hit.entry.id for hit in added.hits]
    vectors = dict(zip(*store.vectors("image"), strict=True))
    query = 0.4 * unit(vectors[first]) + 0.6 * unit(kit.vectors_of("red")[0])
    best = max((id for id in vectors if id != first), key=lambda id: float(unit(vectors[id]) @ query))
    assert added.hits[0].entry.id == best
    photo = Image.new("RGB", (1, 1), (1, 2, 3))
    captioned = store.described_by(["snow"]).tolist()
    answer = searcher.search_image(photo, SearchRequest(k=30, added="red longword -snow"))
    assert answer.hits
    assert captioned[0] not in [hit.entry.id for hit in answer.hits]
    assert answer.unknown_words == ("longword",)
    unknown = searcher.search_image(photo, SearchRequest(added="longword"))
    assert (unknown.hits, unknown.message) == ((), "The model knows none of these words; try other words.")
    assert searcher.search_image(photo, SearchRequest(added="red moutnain")).suggestion == "red mountain"


def test_added_words_page_by_page(kit, store):
    kit.put(store, [f"n{i}" for i in range(30)])
    searcher = Searcher(store, kit.FakeModel())
    first = searcher.search_similar(3, SearchRequest(added="red"))
    second = searcher.search_similar(3, SearchRequest(added="red", cursor=first.next))
    assert not {*kit.keys(first)} & {*kit.keys(second)}
    with pytest.raises(DataError, match="cursor"):
        searcher.search_similar(3, SearchRequest(added="blue", cursor=first.next))


def test_the_cursor_of_a_photo_is_not_that_of_another(kit, store):
    kit.put(store, [f"n{number}" for number in range(30)])
    searcher = Searcher(store, kit.FakeModel())
    photos = [Image.new("RGB", (4, 4), (1, 2, blue)) for blue in (3, 3, 9)]
    first = searcher.search_image(photos[0], SearchRequest())
    assert searcher.search_image(photos[1], SearchRequest(cursor=first.next)).hits
    with pytest.raises(DataError, match="cursor"):
        searcher.search_image(photos[2], SearchRequest(cursor=first.next))


def test_words_need_a_picture_to_be_added_to(kit, store):
    kit.put(store, ["n", "m"])
    with pytest.raises(DataError, match="added to a picture only"):
        Searcher(store, kit.FakeModel()).search_more(SearchRequest(more=(1,), added="red"))


def test_blank_words_cannot_be_added():
    with pytest.raises(DataError, match=r"^the added text is empty"):
        SearchRequest(added=" ")
