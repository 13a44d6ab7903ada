import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diptych.index.sqlite.store import Store
from diptych.index.words import WordStore

FTS_SYNTAX = ['"', "*", "NEAR", "NEAR(a b)", "AND", "OR", "NOT", "(", ")", "^a", "captions:", "-a", "+", "\x00", "a_b"]


@pytest.fixture
def words(kit, tmp_path):
    """Image 1 has captions, images 1 to 3 names and folders."""
    store = Store.create(tmp_path / "x.diptych", kit.spec())
    kit.put(store, ["sunset", "IMG_2041"], ["A black Dog runs.", "Crème brûlée in the snow"], folder="trip to Rome")
    kit.put(store, ["snow"], [], folder="b")
    yield store
    store.close()


def images(store):
    return store.vectors("image")[0].tolist()


def test_an_sqlite_index_can_search_words(words):
    assert isinstance(words, WordStore)


def test_captions_and_words_in_pictures_are_searched_for_phrases(words):
    first = images(words)[:1]
    assert words.described_by(["snow"]).tolist() == first  # the name of the third image does not count
    assert words.described_by(["cat", "black dog"]).tolist() == first
    assert words.described_by(["creme"]).tolist() == first
    assert words.described_by(["dog black", "runs creme in the cat"]).tolist() == []
    last = images(words)[2]
    (content,) = words.contents_of([last])
    words.add_picture_words([(int(content), "Receipt No. 12")])
    assert words.described_by(["receipt", "black dog"]).tolist() == [*first, last]
    assert words.described_by([]).tolist() == words.described_by(["..."]).tolist() == []


def test_images_by_all_words_or_by_any_of_them(words):
    first, second, third = images(words)
    assert words.by_words("dog snow", every=True)[0].tolist() == [first]
    assert set(words.by_words("dog snow", every=False)[0].tolist()) == {first, third}
    assert words.by_words("img_2041", every=True)[0].tolist() == [second]
    assert set(words.by_words("Rome", every=True)[0].tolist()) == {first, second}
    assert words.by_words("cat", every=False)[0].tolist() == words.by_words("", every=True)[0].tolist() == []
    assert words.by_words("Cre\u0300me bru\u0302le\u0301e", every=True)[0].tolist() == [first]
    for text in ("dog snow", "Rome", "cat", "", "..."):
        assert words.with_words(text).tolist() == sorted(words.by_words(text, every=True)[0].tolist())
    ids, scores = words.by_words("dog snow snow", every=False)
    assert ids.tolist()[0] == first
    assert scores[0] > scores[1] > 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.one_of(st.text(), st.lists(st.sampled_from(FTS_SYNTAX)).map(" ".join)))
def test_no_text_is_syntax(words, text):
    for every in (True, False):
        ids, scores = words.by_words(text, every=every)
        assert len(ids) == len(scores)
    words.described_by([text, f'"{text}'])


def test_an_index_has_descriptions_once_it_has_a_caption(kit, tmp_path):
    store = Store.create(tmp_path / "y.diptych", kit.spec())
    kit.put(store, ["sunset"])
    assert not store.has_descriptions()
    kit.put(store, ["snow"], ["a caption"])
    assert store.has_descriptions()
    store.close()


def test_every_word_of_its_captions_finds_an_image(words):
    for text in ("A black Dog runs.", "crème BRÛLÉE", "sunset"):
        assert words.by_words(text, every=True)[0].tolist() == images(words)[:1]
