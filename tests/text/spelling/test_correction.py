from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.text.spelling.correction import Corrector, OwnWords, Reading
from diptych.text.spelling.word_list import word_list


def corrector(*captions, knows=lambda word: False):
    counts = Counter(" ".join(captions).split())
    return Corrector(word_list(), OwnWords(counts.__contains__, lambda: counts), knows)


ALONE = corrector()


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("dgo on teh beech", "dog on the beach"),
        ("DGO ON TEH BEECH", "DOG ON THE BEACH"),
        ("Dgo on the beach", "Dog on the beach"),
        ("two dgos", "two dogs"),
        ("a mna ridng a hrose", "a man riding a horse"),
        ("dog -snwo", "dog -snow"),
        ("birthady, cake!", "birthday, cake!"),
        ("the dgo's ball", "the dog's ball"),
        ("2021 hoilday", "2021 holiday"),
        ("snow-covered moutains", "snow-covered mountains"),
    ],
)
def test_mistyped_words_are_corrected(typed, meant):
    assert ALONE.read(typed).suggestion == meant


@pytest.mark.parametrize(
    "text",
    [
        "dog on the beach",
        "a beech",
        '"dgo" on the beach',
        'dog -"teh snow"',
        "IMG_2034 dgo7",
        "photo of Zidane playing",
        "NASA rocket",
        "don't jump",
        "Hund am Strnad",
        "zwei Hunde spielen im Schnee",
        "un perro corriendo por la playa",
        "les nuages",
        "vélo",
        "собака",
        "犬",
        "bmx",
        "hdr photo",
        "rollerblades",
        "http://teh.example/beuach",
        "x",
        "- '",
    ],
)
def test_other_words_stay(text):
    assert ALONE.read(text) == Reading(None, True)


@pytest.mark.parametrize("text", ["asdfgh", "dgo", "the asdfgh", "beuach", "flwoers in a vsae"])
def test_without_a_known_word_nothing_is_searched_for(text):
    assert not ALONE.read(text).is_searchable


@pytest.mark.parametrize("text", ["asdfgh dog", "dgo 2021", 'dgo "qwrtz"', "dgo 犬", "on the"])
def test_one_known_word_is_enough(text):
    assert ALONE.read(text).is_searchable


def test_words_of_the_index_are_known_and_may_be_meant():
    own = corrector("zorbing in rome", *["a vizsla runs"] * 9)
    assert own.read("zorbing") == Reading()
    assert own.read("vizlsa runs").suggestion == "vizsla runs"
    assert ALONE.read("vizlsa runs").suggestion != "vizsla runs"
    captions = corrector(*["a puppy"] * 50)
    assert captions.read("pupyp").suggestion == "puppy"


def test_what_is_meant_depends_on_the_index():
    wing, wine = (corrector(*[caption] * 5000).read("a red winh").suggestion for caption in ("a wing", "a wine"))
    assert (wing, wine) == ("a red wing", "a red wine")


def test_words_that_a_model_knows_are_known():
    assert ALONE.read("a dgo").suggestion == "a dog"
    assert corrector(knows=lambda word: word == "dgo").read("a dgo") == Reading()


@given(st.text(st.sampled_from("dgo teh beach\"-'’:(),.éß犬7_AB\n"), max_size=40))
def test_any_text_can_be_read(text):
    reading = ALONE.read(text)
    assert reading.suggestion != text
    if reading.suggestion is not None:
        assert [len(part) for part in reading.suggestion.split('"')][1::2] == [len(part) for part in text.split('"')][
            1::2
        ]


@given(st.lists(st.sampled_from(["dog", "beach", "running", "two", "children", "red", "mountain"]), min_size=1))
def test_correct_words_are_never_corrected(words):
    assert ALONE.read(" ".join(words)) == Reading()
