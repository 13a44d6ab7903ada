"""What ranks exchange, what they say when one fails, and a process that is alone."""

import json
import os

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diptych.errors import RankError, RunError
from diptych.ranks import ALONE, Ranks, is_rank, join_ranks, local_device
from support.ranks import finish, on_threads, start_ranks

WORKER = """
import json, sys
import torch
from diptych.errors import RunError
from diptych.ranks import Ranks, join_ranks

with join_ranks("cpu") as ranks:
    rows = torch.full((1 + ranks.rank, 2), float(ranks.rank))
    found = {
        "ranks": [Ranks.current().rank, Ranks.current().count],
        "rows": ranks.all_rows(rows).tolist(),
        "sum": ranks.sum_(rows[:1].clone()).tolist(),
        "first": ranks.broadcast_(rows[:1].clone()).tolist(),
        "values": ranks.gather_values({"rank": ranks.rank, "umlaut": "\\u00e4"}),
    }
    if sys.argv[1:] == ["lost"]:
        if ranks.rank == 1:
            import os
            os._exit(3)
        ranks.wait()
    print(json.dumps(found))
"""


@pytest.mark.long
def test_processes_exchange_rows_sums_and_values(tmp_path):
    file = tmp_path / "worker.py"
    file.write_text(WORKER)
    ended = finish(start_ranks(2, [file]))
    assert [status for status, _, _ in ended] == [0, 0], ended
    for rank, (_, out, _) in enumerate(ended):
        assert json.loads(out) == {
            "ranks": [rank, 2],
            "rows": [[0, 0], [1, 1], [1, 1]],
            "sum": [[1, 1]],
            "first": [[0, 0]],
            "values": [{"rank": 0, "umlaut": "ä"}, {"rank": 1, "umlaut": "ä"}],
        }


@pytest.mark.long
def test_a_rank_that_is_gone_is_noticed_by_the_others(tmp_path):
    file = tmp_path / "worker.py"
    file.write_text(WORKER)
    (first, _, errors), (second, _, _) = finish(start_ranks(2, [file, "lost"]), seconds=60)
    assert (first, second) == (1, 3)
    assert errors.strip().endswith(
        "RankError: another rank has ended; what was saved is complete: "
        "run the same command again (to train: with --resume)"
    )


@given(st.integers(0, 50), st.integers(1, 7))
def test_shares_are_consecutive_and_equal(items, count):
    shares = [Ranks(rank, count).share(items) for rank in range(count)]
    assert [item for share in shares for item in range(items)[share]] == list(range(items))
    sizes = [len(range(items)[share]) for share in shares]
    assert max(sizes) - min(sizes) <= 1
    assert shares == [Ranks(0, count).share(items, rank) for rank in range(count)]


def test_a_process_that_is_alone_exchanges_nothing():
    rows = torch.ones(2, 3)
    assert ALONE.is_first
    assert ALONE.gather(rows)[0] is rows
    assert ALONE.all_rows(rows) is rows
    assert ALONE.sum_(rows) is rows
    assert ALONE.broadcast_(rows) is rows
    assert ALONE.gather_numbers(1, 2) == [[1, 2]]
    assert ALONE.gather_values({1: 2}) == [{1: 2}]
    assert ALONE.of_first(lambda: "value") == "value"
    assert ALONE.first_alone(lambda: "done") == "done"
    ALONE.must_agree({"recipe": "a"})
    with pytest.raises(RunError, match=r"^as it is$"):
        ALONE.together(fail)
    with join_ranks() as ranks:
        assert ranks is ALONE
    assert Ranks.current() is ALONE
    assert not is_rank()


def fail():
    raise RunError("as it is")


def test_what_fails_on_one_rank_fails_on_all_with_its_message():
    def work(ranks):
        with pytest.raises((RunError, RankError)) as caught:
            ranks.together(fail if ranks.rank == 1 else lambda: None)
        return type(caught.value), str(caught.value)

    assert on_threads(3, work) == [
        (RankError, "rank 1: as it is"),
        (RunError, "as it is"),
        (RankError, "rank 1: as it is"),
    ]


def test_the_first_rank_works_before_the_others():
    order = []

    def work(ranks):
        return ranks.first_alone(lambda: order.append(ranks.rank))

    on_threads(3, work)
    assert order[0] == 0
    assert sorted(order) == [0, 1, 2]
    assert on_threads(2, lambda ranks: ranks.of_first(lambda: ranks.rank)) == [0, 0]


def test_a_difference_is_named():
    def work(ranks):
        with pytest.raises(RankError) as caught:
            ranks.must_agree({"the data": "ab12", "the recipe": f"c{ranks.rank}"})
        return str(caught.value)

    message = "rank 1 has the recipe c1, and rank 0 has c0; start all ranks with the same command, data and version"
    assert on_threads(2, work) == [message] * 2


def test_rows_of_different_shapes_are_filled_up():
    def work(ranks):
        return [part.tolist() for part in ranks.gather(torch.ones(1, 1 + ranks.rank))]

    assert on_threads(2, work) == [[[[1, 0]], [[1, 1]]]] * 2


def test_half_an_environment_is_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.delenv("MASTER_PORT", raising=False)
    with pytest.raises(RankError, match=r"^the environment variable MASTER_PORT is not set; "), join_ranks("cpu"):
        pass
    assert is_rank()


def test_each_rank_of_a_machine_has_a_gpu_of_its_own(monkeypatch):
    assert local_device("auto") == "auto"
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert local_device("auto") == "auto"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert local_device("auto") == local_device("cuda") == "cuda:3"
    assert (local_device("cpu"), local_device("cuda:1")) == ("cpu", "cuda:1")
    assert os.environ["LOCAL_RANK"] == "3"
