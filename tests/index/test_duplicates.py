import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.index.duplicates import BITS, COSINE, same_images, same_texts


def at(cosine):
    """Two vectors of any length with this cosine."""
    return np.array([[2, 0], [3 * cosine, 3 * np.sqrt(1 - cosine**2)]], np.float32)


@pytest.mark.parametrize(
    ("bits", "cosine", "same"),
    [
        (BITS, COSINE + 0.01, True),
        (BITS + 1, 1.0, False),
        (BITS, COSINE - 0.01, False),
        (0, -1.0, False),
    ],
    ids=["both", "hash apart", "vectors apart", "opposite"],
)
def test_both_judges_must_agree(bits, cosine, same):
    looks = np.array([2**63 + 5, (2**63 + 5) ^ ((1 << bits) - 1)], np.uint64)
    assert same_images(np.array([1, 2]), looks, at(cosine)).tolist() == ([0, 0] if same else [0, 1])
    assert same_images(np.array([7, 7]), looks, at(cosine)).tolist() == [0, 0]


@given(contents=st.lists(st.integers(0, 5), max_size=30))
@settings(max_examples=25, deadline=None)
def test_equal_contents_belong_to_the_first_of_them(contents):
    looks = np.array([content * 0x0F0F0F0F0F0F0F0F % 2**64 for content in contents], np.uint64)
    vectors = np.zeros((len(contents), 2), np.float32)
    assert same_images(np.array(contents, np.int64), looks, vectors).tolist() == [contents.index(c) for c in contents]


def test_all_of_a_chain_go_by_the_best_alone():
    """What resembles a duplicate, but not the best, is another hit: groups do not grow along chains."""
    looks = np.array([0, (1 << BITS) - 1, (1 << 2 * BITS) - 1], np.uint64)
    assert same_images(np.arange(3), looks, np.ones((3, 2), np.float32)).tolist() == [0, 0, 2]


def test_texts_are_the_same_in_any_case_and_with_any_signs():
    texts = [
        "Two dogs, running.",
        "two  dogs running",
        "TWO DOGS — running!",
        "two dog running",
        "?",
        "!",
        "straße",
        "STRASSE",
    ]
    assert same_texts(texts).tolist() == [0, 0, 0, 3, 4, 5, 6, 6]
    assert same_texts([]).tolist() == []
    assert same_texts(["कि", "का"]).tolist() == [0, 1]  # vowel signs are no punctuation
