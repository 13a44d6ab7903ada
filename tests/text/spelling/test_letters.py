import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.text.spelling.letters import SMOOTHING, LetterModel
from diptych.text.spelling.word_list import LETTERS, word_list


def plain_cost(words, word):
    """The equation of the module, counted letter by letter."""

    def probability(before, sign):
        follow = [text[at + len(before)] for text in padded for at in range(3 - len(before), len(text) - len(before))
                  if at + len(before) >= 3 and text[at : at + len(before)] == before]  # fmt: skip
        shorter = probability(before[1:], sign) if before else 1 / 27
        return (follow.count(sign) + SMOOTHING * shorter) / (len(follow) + SMOOTHING)

    padded = ["   " + other + " " for other in words]
    text = "   " + word + " "
    return -sum(math.log(probability(text[at - 3 : at], text[at])) for at in range(3, len(text)))


@given(
    st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=6), st.text("abcz", min_size=1, max_size=6)
)
def test_the_cost_is_that_of_the_equation(words, word):
    assert LetterModel(words).cost(word) == pytest.approx(plain_cost(words, word), rel=1e-4)


def test_the_probabilities_of_all_words_of_a_length_are_at_most_one():
    model = LetterModel(["ab", "ba", "abc"])
    assert sum(math.exp(-model.cost(a + b)) for a in LETTERS for b in LETTERS) < 1


def test_keys_at_random_cost_more_than_words_of_other_languages():
    model = word_list().other_languages
    costs = [model.cost_per_letter(word) for word in ("strandkorb", "nuages", "asdfgh", "zxcvbnm")]
    assert max(costs[:2]) + 0.3 < 4 < min(costs[2:])
