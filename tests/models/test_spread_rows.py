"""Rows that are spread over ranks: where they are placed, who sees them, and how they are put together again."""

import numpy as np
import pytest
import torch

from diptych.models import spread_rows
from diptych.models.spread_rows import SpreadRows
from support.ranks import on_threads

ROWS = torch.arange(22.0).view(11, 2)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(spread_rows, "_MOVED_AT_ONCE", 4)


def spread(ranks, rows=ROWS):
    return SpreadRows(rows[ranks.share(len(rows))], ranks)


@pytest.mark.parametrize("count", [2, 3])
def test_a_rank_has_its_own_rows_until_others_are_placed_on_it(count):
    wanted = np.array_split(np.random.default_rng(0).permutation(11)[:9], count)

    def check(ranks):
        rows = spread(ranks)
        assert len(rows) == 11
        own = ranks.share(11)
        assert torch.equal(rows[own], ROWS[own])
        for _ in range(2):  # they stay where they were
            rows.place(wanted)
            assert torch.equal(rows[torch.from_numpy(wanted[ranks.rank])], ROWS[wanted[ranks.rank]])
            assert len(rows._placed) == len(wanted[ranks.rank])

    on_threads(count, check)


def test_rows_of_one_rank_are_shown_to_all():
    def check(ranks):
        rows = spread(ranks)
        rows.place([np.arange(6), np.arange(6, 11)])
        for index, rank in ((slice(1, 4), 0), (torch.tensor([9, 6]), 1), (slice(0, 0), 0)):
            rows.show(index, rank)
            assert torch.equal(rows[index], ROWS[index])
            assert torch.equal(
                rows[slice(0, 6) if ranks.is_first else slice(6, 11)], ROWS[:6] if ranks.is_first else ROWS[6:]
            )
        twice = torch.tensor([4, 4, 5])
        rows.show(twice, 0)
        assert torch.equal(rows[twice], ROWS[twice])

    on_threads(2, check)


def test_the_first_rank_can_have_all_rows():
    def gathered(ranks):
        return spread(ranks).on_first()

    first, *others = on_threads(3, gathered)
    assert torch.equal(first, ROWS)
    assert [len(other) for other in others] == [0, 0]


def test_sets_have_the_same_number_of_places_everywhere():
    def check(ranks):
        sets = torch.ones(2, 3 + ranks.rank, 5)
        rows = SpreadRows(sets, ranks)
        rows.place([np.array([0, 3]), np.array([1, 2])])
        mine = rows[torch.tensor([0, 3] if ranks.is_first else [1, 2])]
        assert mine.shape == (2, 4, 5)
        assert mine.sum((1, 2)).tolist() == [15, 20]

    on_threads(2, check)


def test_a_rank_may_have_no_rows():
    def check(ranks):
        rows = SpreadRows(ROWS if ranks.rank == 1 else ROWS[:0], ranks)
        rows.place([np.arange(0), np.arange(0), np.arange(11)])
        rows.show(slice(2, 5), 2)
        assert torch.equal(rows[slice(2, 5)], ROWS[2:5])

    on_threads(3, check)
