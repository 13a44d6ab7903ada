from typing import Literal

import numpy as np

from diptych.text.tokenisers.subwords import UNKNOWN_PIECE, SubwordTokeniser, encodable
from diptych.text.tokenisers.token_table import TokenTable


class Letters(SubwordTokeniser):
    """Every letter is a piece; upper-case letters are unknown."""

    name: Literal["letters"] = "letters"

    @property
    def sample_words(self):
        return ["a"]

    def __len__(self):
        return 128

    def encode_all(self, texts):
        return TokenTable.from_rows([ord(letter) for letter in text] for text in texts)

    def tokens(self, text):
        return list(text)

    def pieces(self, words):
        return [[UNKNOWN_PIECE if letter.isupper() else letter for letter in word] for word in words]


def test_words_are_separated_by_white_space():
    letters = Letters()
    assert letters.split("  a dog's\ttail. \n") == ["a", "dog's", "tail."]
    shortened = letters.encode_words([["a", "tail."], []])
    assert np.array_equal(shortened.flat, letters.encode_all(["a tail.", ""]).flat)
    assert shortened.offsets.tolist() == [0, 7, 7]


def test_a_word_is_unknown_if_most_of_its_pieces_are():
    words = ["dog", "Dog", "DOg", "DO", "DOgs", "D", ""]
    assert Letters().known(words).tolist() == [True, True, False, False, True, False, False]


def test_surrogates_are_replaced():
    assert encodable("a\ud83d dog") == "a\ufffd dog"
    assert encodable("größer 犬 🐕") == "größer 犬 🐕"
    encodable("\udfff").encode()
