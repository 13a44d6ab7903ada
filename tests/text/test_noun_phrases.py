from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from diptych.text.noun_phrases import noun_phrases

WORDS = (
    "a an the his two one red black young smiling covered man dog dogs runs kicks jump surfs group pair set of and in "
    "on is who with 's ’s , . standing quickly building air snow hill 7 - _ Front café’s"
)
SENTENCES = st.lists(st.sampled_from(WORDS.split()))


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ("A tall man kicks a ball to two dogs .", ["A tall man", "a ball", "two dogs"]),
        ("Two dogs run through green grass", ["Two dogs", "green grass"]),
        ("A black and white dog and a cat", ["A black and white dog", "a cat"]),
        ("A small group of people in front of a building.", ["A small group of people", "a building"]),
        ("one of the girls holds a pair of red shoes", ["one of the girls", "a pair of red shoes"]),
        ("A smiling girl on a snow covered hill", ["A smiling girl", "a snow covered hill"]),
        ("A girl smiling, dressed in bright red", ["A girl", "bright red"]),
        ("A dog surfs while people watch", ["A dog", "people"]),
        ("the man's hat and the boy 's old shoes", ["the man's hat", "the boy 's old shoes"]),
        ("He makes a jump high in the air", ["a jump", "high"]),
        ("She quickly retrieves the stick", ["the stick"]),
        ("They look at each other", []),
        ("", []),
        ("... !?", []),
    ],
)
def test_phrases_of_captions(text: str, phrases: list[str]) -> None:
    assert noun_phrases(text) == phrases


@given(SENTENCES.map(" ".join) | st.text())
@example("a İ dog ſ's ǅ")  # characters that change in number or case
def test_phrases_lie_in_the_text_one_behind_the_other(text: str) -> None:
    at = 0
    for phrase in noun_phrases(text):
        assert phrase.strip() == phrase != ""
        at = text.index(phrase, at) + len(phrase)


@given(SENTENCES)
def test_phrases_are_whole_words_and_case_does_not_matter(words: list[str]) -> None:
    text = " ".join(words)
    phrases = noun_phrases(text)
    at = 0
    for phrase in phrases:
        parts = phrase.split()
        at = next(i for i in range(at, len(words)) if words[i : i + len(parts)] == parts) + len(parts)
    assert [phrase.upper() for phrase in phrases] == noun_phrases(text.upper())


@given(SENTENCES, SENTENCES)
def test_a_full_stop_parts_what_is_before_from_what_is_behind(before: list[str], behind: list[str]) -> None:
    one, other = " ".join(before), " ".join(behind)
    assert noun_phrases(f"{one} . {other}") == noun_phrases(one) + noun_phrases(other)
