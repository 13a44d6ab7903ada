import subprocess
import sys

import pytest

from diptych.errors import DataError
from diptych.text.tokenisers.bpe import BytePairs
from diptych.text.tokenisers.token_table import SPECIALS
from diptych.text.tokenisers.wordpiece import WordPieces

TEXTS = [
    "Two dogs run on the beach.",
    "A dog's CAFÉ",
    "the ﬁeld",
    "a sign: <start> <unknown>, no pad",
    "tied died lied",
] * 3
KINDS = [BytePairs, WordPieces]


@pytest.mark.parametrize("kind", KINDS)
def test_words_are_lower_case_and_split_at_punctuation(kind):
    made = kind.from_texts(TEXTS, 300, 1)
    for one, other in (("TWO dogs", "two DOGS"), ("café", "CAFE\u0301"), ("ﬁeld", "field"), ("dogs.", "dogs  .")):
        assert made.encode_all([one]).flat.tolist() == made.encode_all([other]).flat.tolist()
    assert made.known(["two", "café", "beach."]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_no_special_token_is_found_in_a_text(kind):
    made = kind.from_texts(TEXTS, 300, 1)
    inside = made.encode_all([" ".join(SPECIALS), "<unknown>"]).flat
    assert sorted(set(inside.tolist()) & {0, 1, 2, 3}) == [1, 2]  # only those at the ends
    assert (inside == 1).sum() == (inside == 2).sum() == 2


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_texts_give_the_same_pieces_in_another_process(kind):
    texts = [f"{a}{b}{c} {b}{a}" for a in "abcde" for b in "vwxyz" for c in "mno"]  # many pairs of equal counts
    code = (
        f"from {kind.__module__} import {kind.__name__} as T; "
        f"print([T.from_texts(texts, 60, 1).digest for texts in [{texts!r}, {texts[::-1]!r}]])"
    )
    printed = {subprocess.check_output([sys.executable, "-c", code], text=True) for _ in range(2)}
    assert printed == {f"{[kind.from_texts(texts, 60, 1).digest] * 2}\n"}


@pytest.mark.parametrize("kind", KINDS)
def test_texts_without_a_word_are_refused(kind):
    for texts in ([], ["", " \n"]):
        with pytest.raises(DataError, match="none of the texts has a word to make pieces of"):
            kind.from_texts(texts, 100, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_surrogates_are_no_obstacle(kind):
    made = kind.from_texts([*TEXTS, "a \udc80"], 300, 1)
    assert made.encode_all(["a \ud800"]).flat.tolist() == made.encode_all(["a \ufffd"]).flat.tolist()
