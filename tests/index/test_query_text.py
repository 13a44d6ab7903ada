import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.errors import DataError
from diptych.index.query_text import QueryText, asks_for_exact_words, has_words, parse, quoted_phrases


@pytest.mark.parametrize(
    ("text", "wanted", "excluded"),
    [
        ("dog -snow", "dog", ("snow",)),
        ("-snow a  dog", "a dog", ("snow",)),
        ('dog -"red  ball" -snow -snow beach', "dog beach", ("red ball", "snow")),
        ("dog -t-shirt", "dog", ("t-shirt",)),
        ("dog\n-Übergang", "dog", ("Übergang",)),
    ],
)
def test_words_and_phrases_after_a_dash_are_excluded(text, wanted, excluded):
    assert parse(text) == QueryText(wanted, excluded)


@pytest.mark.parametrize(
    "text",
    ["a t-shirt", "sun - sea", " dog  ", "-", "--", "--dog", "-_", "-)", 'dog -""', 'dog -" "', 'dog -"red ball'],
)
def test_other_dashes_are_plain_text(text):
    assert parse(text) == QueryText(text)


@pytest.mark.parametrize("text", ["-snow", ' -"red ball"  -snow '])
def test_a_text_must_say_what_to_look_for(text):
    with pytest.raises(DataError, match=r"only excludes; add what to look for, such as 'dog -snow'$"):
        parse(text)


@given(st.text(st.sampled_from('ab -"\n_é'), max_size=30))
def test_no_letter_is_lost(text):
    try:
        found = parse(text)
    except DataError:
        return
    letters = sorted(sign for sign in text if sign.isalnum())
    kept = sorted(sign for part in (found.wanted, *found.excluded) for sign in part if sign.isalnum())
    assert set(kept) == set(letters)
    assert len(kept) <= len(letters)  # a phrase that is excluded twice counts once
    assert all(any(sign.isalnum() for sign in phrase) for phrase in found.excluded)


def test_quotes_around_everything_ask_for_exact_words():
    for text in ('"red ball"', ' "red" "ball" ', "“red ball”", "„red ball“", '"red ball" -snow', '"red", "ball"'):
        assert asks_for_exact_words(text), text
    for text in ("red ball", 'a "red ball"', '"', '""', '"*"', '"red', 'the 15" screen'):
        assert not asks_for_exact_words(text), text
    assert quoted_phrases('a "red ball" and “snow”') == (["red ball", "snow"], "a   and  ")


@pytest.mark.parametrize("text", ["dog", "7", "(犬)", "é", "🐶", "❤!"])
def test_letters_digits_and_pictographs_are_words(text):
    assert has_words(text)


@pytest.mark.parametrize("text", ["", " ", "*", '"', "“”", "-", "--", "?!", "<>", "_", "+", "$"])
def test_signs_are_no_words(text):
    assert not has_words(text)
