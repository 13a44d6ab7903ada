from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diptych.errors import DataError
from diptych.index import word_plan
from diptych.index.entries import Filters, SearchRequest
from diptych.index.fusion import SMOOTHING
from diptych.index.query_text import parse
from diptych.index.search import Searcher
from diptych.index.word_plan import word_store


@pytest.fixture
def searcher(kit, store):
    """Forty images; the first of folder a has captions, and the name of another one is a word of them."""
    kit.put(store, ["n0"], ["red dog", "in the snow"])
    kit.put(store, ["snow", *(f"m{i}" for i in range(38))], folder="b")
    return Searcher(store, kit.FakeModel())


def find(searcher, text, **request):
    return searcher.search_texts([text], SearchRequest(**request))[0]


def test_words_find_only_images_that_have_all_of_them(kit, searcher):
    assert kit.keys(find(searcher, "red snow", mode="words")) == ["a/0-n0"]
    answer = find(searcher, "snow", mode="words")
    assert set(kit.keys(answer)) == {"a/0-n0", "b/1-snow"}
    assert answer.found
    assert all(hit.stands_out and hit.score > 0 for hit in answer.hits)
    nothing = find(searcher, "red submarines", mode="words")
    assert (nothing.hits, nothing.found, nothing.searched, nothing.unknown_words) == ((), False, 40, ())
    assert nothing.message == "No image has all of these words in its captions, its name, its folder or the picture."


def test_a_text_in_quotes_asks_for_exactly_these_words(kit, searcher):
    assert kit.keys(find(searcher, '"in the snow"')) == ["a/0-n0"]
    assert kit.keys(find(searcher, '"red dog" "the snow"')) == ["a/0-n0"]
    assert kit.keys(find(searcher, "“Red Dog”")) == ["a/0-n0"]
    assert kit.keys(find(searcher, '"b"', k=50)) == kit.keys(find(searcher, "b", mode="words", k=50)), "a folder"
    for text in ('"the in snow"', '"dog red"', '"red dog" "snow in"'):
        assert find(searcher, text).hits == ()
    assert kit.keys(find(searcher, "the in snow", mode="words")) == ["a/0-n0"]
    assert len(find(searcher, 'a "red dog"', k=50).hits) == 40, "not in quotes as a whole"
    assert len(find(searcher, '"red dog"', mode="meaning", k=50).hits) == 40


def test_filters_exclusions_and_k_hold_for_words(kit, searcher):
    for mode in ("words", "both"):
        assert "a/0-n0" not in kit.keys(find(searcher, "snow", mode=mode, k=50, filters=Filters("b")))
        assert "a/0-n0" not in kit.keys(find(searcher, "snow -dog", mode=mode, k=50))
        assert len(find(searcher, "snow", mode=mode, k=1).hits) == 1
        assert find(searcher, "snow", mode=mode, filters=Filters("c")).searched == 0


def test_near_duplicates_are_one_hit(kit, store):
    kit.put(store, ["snow"] * 30 + ["other snow"])
    for mode in ("words", "both"):
        answer = find(Searcher(store, kit.FakeModel()), "snow", mode=mode, k=2)
        assert sorted(len(hit.near) for hit in answer.hits) == [0, 29]


def test_both_ranks_images_with_the_words_higher(kit, searcher):
    meaning, both = (kit.keys(find(searcher, "snow dog", mode=mode, k=40)) for mode in ("meaning", "both"))
    assert sorted(meaning) == sorted(both)
    assert both.index("a/0-n0") <= min(meaning.index("a/0-n0"), 1)
    answer = find(searcher, "snow dog", mode="both", k=40)
    assert next(hit for hit in answer.hits if hit.entry.key == "a/0-n0").stands_out


def test_without_a_known_word_only_words_count(kit, store):
    kit.put(store, ["submarine", *(f"m{i}" for i in range(30))])
    answer = find(Searcher(store, kit.FakeModel()), "submarine", mode="both")
    assert kit.keys(answer) == ["a/0-submarine"]


def test_modes_of_one_batch_do_not_mix(kit, searcher):
    texts = ["snow", "red", "dog -snow"]
    for mode in ("words", "both"):
        batch = searcher.search_texts(texts, SearchRequest(mode=mode))
        assert batch == [find(searcher, text, mode=mode) for text in texts]


def test_models_that_compare_sets_can_exclude_by_words(kit, store):
    kit.put(store, ["snow", "snow dog"], set_kinds=("image", "text"))
    searcher = Searcher(store, kit.FakeModel(False, ("image", "text")))
    assert len(find(searcher, "snow -cat", mode="words").hits) == 2


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
@given(st.text(st.sampled_from('ab snow"*()-:^NEARAND\x00é'), min_size=1).filter(str.strip))
def test_no_text_fails(searcher, text):
    for mode in ("words", "both"):
        try:
            parse(text)
        except DataError:
            with pytest.raises(DataError, match="only excludes"):
                find(searcher, text, mode=mode)
        else:
            find(searcher, text, mode=mode)


def test_what_words_cannot_do_is_said(kit, searcher):
    with pytest.raises(DataError, match=r"^mode 'both' finds images"):
        find(searcher, "dog", mode="both", to="text")
    with pytest.raises(DataError, match=r"^mode 'words' searches with words"):
        searcher.search_similar(1, SearchRequest(mode="words"))
    with pytest.raises(DataError, match=r"^mode 'words' needs an index in an SQLite file"):
        word_store(SimpleNamespace(), SearchRequest(mode="words"), "dog")
    with pytest.raises(DataError, match=r"^mode 'word': choose one of auto, meaning, words, both$"):
        SearchRequest(mode="word")


def hits(searcher, text, **request):
    return find(searcher, text, **request).hits


def test_auto_is_both_once_words_in_pictures_were_read(kit, store):
    kit.put(store, ["snow", *(f"m{i}" for i in range(39))])
    searcher = Searcher(store, kit.FakeModel())
    assert hits(searcher, "snow") == hits(searcher, "snow", mode="meaning") != hits(searcher, "snow", mode="both")
    unread = store.unread_pictures()
    store.add_picture_words([(content, "pizza" if content == unread[20][0] else "") for content, _, _ in unread])
    assert hits(searcher, "pizza")[0].entry.key == unread[20][1]
    assert hits(searcher, "pizza") == hits(searcher, "pizza", mode="both")
    assert hits(searcher, "pizza", to="text") == hits(searcher, "pizza", to="text", mode="meaning")
    similar = searcher.search_similar(unread[0][0], SearchRequest())
    assert similar.hits == searcher.search_similar(unread[0][0], SearchRequest(mode="meaning")).hits
    assert kit.keys(find(searcher, "pizza", mode="words")) == [unread[20][1]]


def test_auto_is_both_in_an_index_with_a_caption(searcher):
    found = hits(searcher, "red dog")
    assert found == hits(searcher, "red dog", mode="both") != hits(searcher, "red dog", mode="meaning")
    assert found[0].entry.key == "a/0-n0"


def test_a_text_without_a_word_that_the_model_knows_is_searched_by_its_words(kit, store):
    kit.put(store, ["n"], ["a zebra-crossing"])
    kit.put(store, ["m"])
    searcher = Searcher(store, kit.FakeModel())
    for mode in ("auto", "both"):
        found = find(searcher, "crossing", mode=mode)
        assert (kit.keys(found), found.unknown_words) == (["a/0-n"], ("crossing",))
        nothing = find(searcher, "zebras crossings", mode=mode)
        assert (nothing.hits, nothing.unknown_words) == ((), ("zebras", "crossings"))
        assert nothing.message.endswith(
            "No image has all of these words in its captions, its name, its folder or the picture."
        )
    assert find(searcher, "crossing", mode="meaning").hits == ()


def test_behind_the_images_that_are_fused_the_others_follow_by_meaning(kit, searcher, monkeypatch):
    monkeypatch.setattr(word_plan, "_FUSED", 2)
    meaning = kit.keys(find(searcher, "snow dog", mode="meaning", k=40))
    pages, cursor = [], None
    while cursor is not None or not pages:
        answer = find(searcher, "snow dog", mode="both", k=7, cursor=cursor)
        pages += kit.keys(answer)
        cursor = answer.next
    first = {"a/0-n0", "b/1-snow", *meaning[:14]}
    assert sorted(pages) == sorted(meaning)
    assert [key for key in pages if key not in first] == [key for key in meaning if key not in first]


def test_a_narrow_filter_does_not_change_what_words_weigh(kit, store):
    """More images of the index have these words than the folder has images."""
    kit.put(store, [f"n{number} dog bird" for number in range(60)], folder="a")
    kit.put(store, [f"m{number}" for number in range(200)], folder="b")
    kit.put(store, ["dog", *(f"k{number}" for number in range(9))], folder="c")
    answer = find(Searcher(store, kit.FakeModel()), "dog bird", mode="both", k=300, filters=Filters("c"))
    by_meaning = find(Searcher(store, kit.FakeModel()), "dog bird", mode="meaning", k=300, filters=Filters("c"))
    place = kit.keys(by_meaning).index("c/260-dog")
    weight = next(hit.score for hit in answer.hits if hit.entry.key == "c/260-dog") - 1 / (SMOOTHING + 1 + place)
    assert 0.2 < weight * (SMOOTHING + 1) < 0.3  # one of two words, squared


def test_images_without_captions_do_not_lose_against_a_word_in_common(kit, store):
    kit.put(store, ["n"], ["a dog in the red snow with a big ball"])
    kit.put(store, [f"m{number}" for number in range(40)], folder="b")
    searcher = Searcher(store, kit.FakeModel())
    text = "dog cat bird horse sheep"
    meaning, both = (kit.keys(find(searcher, text, mode=mode, k=41)) for mode in ("meaning", "both"))
    assert both.index("a/0-n") >= min(meaning.index("a/0-n"), 1)
    assert [key for key in both if key != "a/0-n"] == [key for key in meaning if key != "a/0-n"]
