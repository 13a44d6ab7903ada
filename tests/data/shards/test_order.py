from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.data.shards.order import epoch_order, share

COUNTS = st.lists(st.integers(0, 12), min_size=1, max_size=9)


def left(counts, seed, buffer, **share_of):
    return [sample for _, sample in epoch_order(counts, seed, buffer, **share_of)]


@given(COUNTS, st.integers(1, 30), st.integers(1, 4))
def test_every_sample_enters_and_leaves_once_whatever_the_buffer_and_the_ranks(counts, buffer, ranks):
    everything = [(shard, row) for shard, count in enumerate(counts) for row in range(count)]
    of_ranks = []
    for rank in range(ranks):
        inside, entered_before = set(), []
        for entered, one in epoch_order(counts, [3, 1], buffer, rank=rank, ranks=ranks):
            inside.update(entered)
            entered_before += entered
            assert len(inside) <= buffer + 1
            inside.remove(one)
            of_ranks.append(one)
        assert not inside
        for shard in range(len(counts)):  # a shard is read from its beginning to its end
            rows = [row for other, row in entered_before if other == shard]
            assert rows == sorted(rows)
    assert sorted(of_ranks) == everything


def test_ranks_have_shards_of_their_own():
    shards = [{shard for shard, _ in left([5] * 7, [0, 1], 4, rank=rank, ranks=3)} for rank in range(3)]
    assert sorted(map(len, shards)) == [2, 2, 3]
    assert len(set.union(*shards)) == 7
    assert share([4, 2, 9], 1, 2) == [2]
    with pytest.raises(ValueError, match="part 2 of 2"):
        share([1], 2, 2)


def test_the_order_depends_on_seed_and_epoch_alone():
    counts = [50, 40, 60, 50, 30, 20]
    first = left(counts, [0, 1], 16)
    assert first == left(counts, [0, 1], 16)
    assert first != left(counts, [0, 2], 16)
    assert first != left(counts, [1, 1], 16)


def test_samples_of_a_shard_are_spread():
    order = left([100] * 20, [0, 1], 256)
    neighbours = sum(a[0] == b[0] for a, b in pairwise(order))
    assert neighbours < 0.5 * len(order)  # 1.0 without lanes and buffer, 0.05 in a random order
    positions = {sample: place for place, sample in enumerate(order)}
    moved = [abs(positions[0, row + 1] - positions[0, row]) for row in range(99)]
    assert sum(moved) / len(moved) > 64


def test_at_most_four_shards_are_open():
    begun, ended = set(), set()
    for entered, _ in epoch_order([6] * 12, [0, 1], 1):
        for shard, row in entered:
            begun.add(shard)
            assert len(begun - ended) <= 4
            if row == 5:
                ended.add(shard)


def test_the_beginning_of_an_epoch_needs_no_more_than_that():
    huge = epoch_order([10**9] * 1000, [0, 1], 8)
    assert len(list(islice(huge, 100))) == 100
