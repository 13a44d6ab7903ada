"""Losses and gradients of several ranks are those of one process with the same batches, for every objective."""

import json

import pytest
import torch

from diptych.data.sampling.share import Share
from diptych.ranks import Ranks
from diptych.training.distributed.encoding import ENCODING, SCORING, own_random, seed_common
from support.rank_cases import CASES
from support.ranks import finish, start_ranks

SOME = ("hinge", "instance", "scan, quintuplet", "vsrn")


@pytest.mark.parametrize(
    ("count", "cases"),
    [(2, SOME), *(pytest.param(*case, marks=pytest.mark.long) for case in [(2, tuple(CASES)), (3, SOME)])],
)
def test_losses_and_gradients_are_those_of_one_process(tmp_path, count, cases):
    """In double precision, where only the order of sums differs, and without dropout, which ranks draw differently."""
    ended = finish(start_ranks(count, ["-m", "support.rank_worker", tmp_path, *cases]))
    assert all(status == 0 for status, _, _ in ended), [errors[-3000:] for _, _, errors in ended]
    deviations = json.loads((tmp_path / "result.json").read_text())
    assert deviations.keys() == set(cases)
    bounds = {name: 1e-4 if CASES[name][2] == "pictures" else 1e-10 for name in cases}  # pixels are single precision
    assert {name: value for name, value in deviations.items() if value > bounds[name]} == {}


def share(rank, draw=(0, 1, 2, 3)):
    return Share(Ranks(rank, 2), draw, (), (), 0)


def drawn(share, use):
    with own_random(share, use):
        return torch.rand(4).tolist()


def test_random_numbers_depend_on_the_batch_and_the_rank_and_leave_the_common_ones_alone():
    seed_common(share(0))
    before = torch.get_rng_state()
    ours = drawn(share(0), ENCODING)
    assert torch.equal(torch.get_rng_state(), before)
    assert ours == drawn(share(0), ENCODING)
    others = [drawn(share(1), ENCODING), drawn(share(0), SCORING), drawn(share(0, (0, 1, 2, 4)), ENCODING)]
    assert all(ours != other for other in others)
    seed_common(share(1))
    assert torch.equal(torch.get_rng_state(), before)
