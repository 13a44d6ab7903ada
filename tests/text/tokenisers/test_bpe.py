from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from diptych.text.tokenisers.bpe import BytePairs
from diptych.text.tokenisers.stored import load_tokeniser

WORDS = {"low": 5, "lower": 2, "newest": 6, "widest": 3}  # the example of Sennrich et al. 2016, Fig. 1


def texts_of(words):
    return [word for word, count in words.items() for _ in range(count)]


def split(word):
    return (*word[:-1], word[-1] + "</w>")


def joined(pieces, pair):
    out = []
    for piece in pieces:
        if out and (out[-1], piece) == pair:
            out[-1] += piece
        else:
            out.append(piece)
    return tuple(out)


def is_greedy(words, merges):
    """Whether each merge joins a pair that is the most frequent at its turn; returns the words in the end."""
    words = {split(word): count for word, count in words.items()}
    for left, right in merges:
        pairs = Counter()
        for word, count in words.items():
            for pair in pairwise(word):
                pairs[pair] += count
        assert pairs[left, right] == max(pairs.values())
        words = {joined(word, (left, right)): count for word, count in words.items()}
    return words


def test_the_most_frequent_pair_is_joined_first():
    made = BytePairs.from_texts(texts_of(WORDS), 40, 2)
    merges = [tuple(pair) for pair in made.document["model"]["merges"]]
    assert set(merges[:3]) <= {("e", "s"), ("es", "t</w>"), ("s", "t</w>"), ("e", "st</w>"), ("l", "o"), ("lo", "w")}
    in_the_end = is_greedy(WORDS, merges)
    for word in in_the_end:
        text = "".join(word).removesuffix("</w>")
        assert made.tokens(text) == ["<start>", *word, "<end>"]


@given(st.dictionaries(st.text("abcd", min_size=1, max_size=6), st.integers(1, 5), min_size=1, max_size=8))
def test_pieces_are_those_of_a_plain_implementation(words):
    made = BytePairs.from_texts(texts_of(words), 30, 1)
    merges = [tuple(pair) for pair in made.document["model"]["merges"]]
    for word in is_greedy(words, merges):
        assert made.tokens("".join(word).removesuffix("</w>"))[1:-1] == list(word)


def test_size_and_threshold_bound_the_pieces():
    assert len(BytePairs.from_texts(texts_of(WORDS), 16, 1)) <= 16 + 4
    rare = BytePairs.from_texts(texts_of(WORDS), 1000, 7)
    frequent = BytePairs.from_texts(texts_of(WORDS), 1000, 2)
    assert len(rare) < len(frequent)
    assert rare.tokens("widest")[1:-1] == ["w", "i", "d", "est</w>"]
    assert frequent.tokens("widest")[1:-1] == ["widest</w>"]


def test_a_character_that_did_not_occur_is_unknown_by_itself(tmp_path):
    made = BytePairs.from_texts(texts_of(WORDS), 100, 1)
    assert made.tokens("low☃ xyz")[1:-1] == ["lo", "w", *["<unknown>"] * 4]
    assert made.known(["lowx", "xyz", "low"]).tolist() == [True, False, True]
    made.save(tmp_path)
    again = load_tokeniser(tmp_path)
    assert (again, again.digest) == (made, made.digest)
    assert again.encode_all(["a newest low"]).flat.tolist() == made.encode_all(["a newest low"]).flat.tolist()
