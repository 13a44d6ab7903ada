import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.index.fusion import fuse

rankings = st.lists(st.lists(st.integers(0, 20), unique=True).map(lambda items: np.array(items, np.int64)), max_size=3)


def weighted(items, weight=1):
    return np.array(items, np.int64), np.full(len(items), weight, np.float32)


def test_a_ranking_of_little_weight_only_breaks_ties():
    items, _ = fuse([weighted([5, 7, 9]), weighted([7], 0.01), weighted([3], 0.01)])
    assert items.tolist() == [5, 7, 9, 3]


def test_an_item_of_both_rankings_precedes_those_of_one():
    items, sums = fuse([weighted([5, 7]), weighted([9, 7])])
    assert items.tolist() == [7, 5, 9]
    assert sums.tolist() == pytest.approx([2 / 12, 1 / 11, 1 / 11])


@given(rankings)
def test_every_item_has_the_sum_of_its_reciprocal_ranks(rankings):
    items, sums = fuse([weighted(ranking) for ranking in rankings])
    assert set(items.tolist()) == {item for ranking in rankings for item in ranking.tolist()}
    assert (np.diff(sums) <= 0).all()
    for item, value in zip(items.tolist(), sums.tolist(), strict=True):
        ranks = [ranking.tolist().index(item) + 1 for ranking in rankings if item in ranking]
        assert value == pytest.approx(sum(1 / (10 + rank) for rank in ranks))
