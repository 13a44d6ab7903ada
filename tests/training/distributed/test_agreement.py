"""Ranks stop after the same step, whichever of them was interrupted."""

import threading

import pytest

from diptych.errors import RankError, RunError
from diptych.training.distributed.agreement import Agreement
from diptych.training.engine.callbacks import StopTraining
from support.ranks import on_threads


def test_unreadable_images_become_known_to_all():
    told = [{}, {7: "seven is broken", 2: "two is gone"}, {5: "five"}]
    known = on_threads(3, lambda ranks: Agreement(ranks).unreadable(told[ranks.rank]))
    assert known == [{2: "two is gone", 5: "five", 7: "seven is broken"}] * 3
    assert list(known[0]) == [2, 5, 7]
    assert on_threads(2, lambda ranks: Agreement(ranks).unreadable({})) == [{}, {}]


def test_one_process_agrees_with_itself():
    alone = Agreement()
    assert alone.unreadable({1: "broken"}) == {1: "broken"}
    alone.asked.set()
    assert alone.interrupted.is_set()
    alone.leave(RunError("nobody hears this"))


def test_a_signal_to_one_rank_interrupts_all_at_the_same_exchange():
    def work(ranks):
        agreement = Agreement(ranks, threading.Event())
        agreement.check()
        before = agreement.interrupted.is_set()
        if ranks.rank == 1:
            agreement.asked.set()
        between = agreement.interrupted.is_set()
        agreement.check()
        agreement.leave(KeyboardInterrupt())  # all know
        return before, between, agreement.interrupted.is_set()

    assert on_threads(2, work) == [(False, False, True)] * 2


@pytest.mark.parametrize(
    ("error", "raised", "message"),
    [
        (StopTraining(), StopTraining, None),
        (RunError("the disk is full"), RankError, "rank 1: the disk is full"),
        (ValueError("odd"), RankError, "rank 1: ValueError: odd"),
    ],
)
def test_a_rank_that_leaves_takes_the_others_with_it(error, raised, message):
    def work(ranks):
        agreement = Agreement(ranks)
        if ranks.rank == 1:
            agreement.leave(error)
            return None
        with pytest.raises(raised, match=message) as caught:
            agreement.check()
        agreement.leave(caught.value)  # all know: nothing is exchanged
        return True

    assert on_threads(3, work) == [True, None, True]
