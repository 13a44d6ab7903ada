import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.text.spelling.edits import (
    DOUBLED,
    EXTRA,
    FIRST,
    MISSING,
    NEARBY,
    SECOND,
    SWAPPED,
    WRONG,
    candidates,
    single_edits,
)


def distance(a, b):
    """The distance of Damerau and Levenshtein (optimal string alignment), by its table."""
    table = [[i + j if 0 in (i, j) else 0 for j in range(len(b) + 1)] for i in range(len(a) + 1)]
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            cost = table[i - 1][j - 1] + (a[i - 1] != b[j - 1])
            table[i][j] = min(cost, table[i - 1][j] + 1, table[i][j - 1] + 1)
            if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
                table[i][j] = min(table[i][j], table[i - 2][j - 2] + 1)
    return table[-1][-1]


words = st.text("abdgo", min_size=1, max_size=5)


@given(words, words)
def test_single_edits_are_the_words_at_distance_one(typed, other):
    assert (other in single_edits(typed)) == (distance(typed, other) == 1)


@pytest.mark.parametrize(
    ("typed", "meant", "cost"),
    [
        ("beahc", "beach", SWAPPED),
        ("beaach", "beach", DOUBLED),
        ("hapy", "happy", DOUBLED),
        ("beacth", "beach", EXTRA),
        ("bech", "beach", MISSING),
        ("beafh", "beagh", NEARBY),
        ("beech", "beach", NEARBY),
        ("beapch", "beaccx", None),
        ("beapf", "beaqf", WRONG),
        ("ebach", "beach", SWAPPED + FIRST),
    ],
)
def test_costs(typed, meant, cost):
    assert single_edits(typed).get(meant) == cost


def test_two_edits_only_if_one_is_not_enough():
    known = {"dog", "kitten", "sitting"}.__contains__
    assert candidates("kittne", known) == {"kitten": SWAPPED}
    assert candidates("kitne", known) == {"kitten": SWAPPED + DOUBLED + SECOND}
    assert candidates("kitne", known, twice=False) == {}
    assert candidates("dgoe", known) == {}
