"""Top scores compared with sorting all of them, with ties, in tiles of any size."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from diptych.mining.top_scores import EMPTY, TopScores, items_of, scores_of

# Few different scores, both zeros and an exclusion among them: ties everywhere.
ALL = [-np.inf, -2.5, -1.0, -0.0, 0.0, 0.25, 0.5, 3e38]
SCORES = st.sampled_from(ALL)


@st.composite
def matrices(draw):
    """All of these scores, two or three, or a single one all over a matrix; drawing each entry would be slow."""
    values = np.array(draw(st.lists(SCORES, min_size=1, max_size=3) | st.just(ALL)), np.float32)
    shape = draw(st.integers(1, 9)), draw(st.integers(1, 120))
    return np.random.default_rng(draw(st.integers(0, 2**32))).choice(values, shape)


def sorted_best(scores, size):
    best = np.full((len(scores), size), -1)
    for query, row in enumerate(scores):
        order = [item for item in sorted(range(len(row)), key=lambda item: (-row[item], item)) if row[item] > -np.inf]
        best[query, : len(order[:size])] = order[:size]
    return best


def spans(count, size):
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def offered(top, scores, height, width, by_item):
    for items in spans(scores.shape[1], width):
        for queries in spans(len(scores), height):
            tile = scores[queries, items]
            top.offer(np.ascontiguousarray(tile.T).T if by_item else np.ascontiguousarray(tile), queries, items)
    return top


@example(np.array([[-0.0, 0.0, -1.0, 0.0]], np.float32), 2, 1, 1, False)  # both zeros are equal: the first two
@given(matrices(), st.integers(1, 6), st.integers(1, 9), st.integers(1, 130), st.booleans())
def test_the_best_are_those_of_a_sort_whatever_the_tiles(scores, size, height, width, by_item):
    keys = offered(TopScores(len(scores), size), scores, height, width, by_item).best()
    wanted = sorted_best(scores, size)
    np.testing.assert_array_equal(items_of(keys), wanted)
    filled = wanted >= 0
    np.testing.assert_array_equal(scores_of(keys)[filled], np.take_along_axis(scores, np.maximum(wanted, 0), 1)[filled])


@given(matrices(), st.integers(1, 6), st.integers(1, 40), st.integers(0, 5))
def test_it_continues_from_a_restored_state(scores, size, width, left_after):
    cut = min(left_after * width, scores.shape[1])
    first = (
        offered(TopScores(len(scores), size), scores[:, :cut], 4, width, by_item=False)
        if cut
        else TopScores(len(scores), size)
    )
    second = TopScores(len(scores), size)
    second.offer(
        np.full_like(scores, 1e30), slice(0, len(scores)), slice(0, scores.shape[1])
    )  # replaced by the restored state
    second.restore(first.best())
    for items in spans(scores.shape[1], width):
        if items.start >= cut:
            second.offer(np.ascontiguousarray(scores[:, items]), slice(0, len(scores)), items)
    np.testing.assert_array_equal(items_of(second.best()), sorted_best(scores, size))


def test_many_scores_in_the_worst_order():
    scores = np.sort(np.random.default_rng(0).random((7, 5000), np.float32), axis=1)  # each better than all before
    for by_item in (False, True):
        keys = offered(TopScores(7, 20), scores, 3, 900, by_item).best()
        np.testing.assert_array_equal(items_of(keys), np.tile(np.arange(4999, 4979, -1), (7, 1)))


def test_of_equal_scores_the_first_items_are_kept():
    keys = offered(TopScores(5, 10), np.full((5, 3000), -0.75, np.float32), 2, 1000, by_item=False).best()
    np.testing.assert_array_equal(items_of(keys), np.tile(np.arange(10), (5, 1)))


def test_without_scores_the_lists_are_empty():
    assert (TopScores(3, 2).best() == EMPTY).all()
    assert (items_of(TopScores(3, 2).best()) == -1).all()
