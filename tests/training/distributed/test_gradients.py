"""Sums of gradients over ranks, in buckets."""

import pytest
import torch
from torch import nn

from diptych.training.distributed import gradients
from diptych.training.distributed.gradients import copy_first, sum_gradients, take_gradients_of_first
from support.ranks import ThreadRanks, on_threads

SIZES = [(3,), (2, 2), (), (5, 1)]


def parameters(rank):
    torch.manual_seed(rank)
    made = [nn.Parameter(torch.zeros(size)) for size in SIZES]
    for parameter in made:
        parameter.grad = torch.randn(parameter.shape)
    made[2].requires_grad_(False)
    made[3].grad = None if rank else made[3].grad  # used on the first rank only
    return made


@pytest.mark.parametrize("bucket", [1, 6, 100])
def test_gradients_are_summed(monkeypatch, bucket):
    monkeypatch.setattr(gradients, "BUCKET", bucket)
    ours = [parameters(rank) for rank in range(2)]
    wanted = [
        sum(torch.zeros(size) if made[number].grad is None else made[number].grad.clone() for made in ours)
        for number, size in enumerate(SIZES)
    ]
    kept = [made[2].grad.clone() for made in ours]
    on_threads(2, lambda ranks: sum_gradients(ours[ranks.rank], ranks))
    for rank, made in enumerate(ours):
        for number in (0, 1, 3):
            torch.testing.assert_close(made[number].grad, wanted[number])
        assert torch.equal(made[2].grad, kept[rank]), "what is not trained is left alone"


@pytest.mark.parametrize(("used", "exchanged"), [([[1], [1, 7]], 2), ([[], []], 0), ([[0, 1, 2], [3, 4, 5]], 10)])
def test_only_the_used_rows_of_a_table_are_exchanged(monkeypatch, used, exchanged):
    monkeypatch.setattr(gradients, "TABLE", 1)
    ours = [[nn.Parameter(torch.zeros(10, 4)), nn.Parameter(torch.zeros(3))] for _ in used]
    for (table, vector), rows in zip(ours, used, strict=True):
        table.grad, vector.grad = torch.zeros(10, 4), torch.ones(3)
        table.grad[rows, 1:] = torch.randn(len(rows), 3)  # the first column of a used row may be zero
    wanted = sum(table.grad.clone() for table, _ in ours)
    sent = []

    class Counting(ThreadRanks):
        def sum_(self, tensor):
            sent.append((self.rank, tensor.numel()))
            return super().sum_(tensor)

    on_threads(2, lambda ranks: sum_gradients(ours[ranks.rank], Counting(ranks.rank, ranks.count, ranks.exchange)))
    for table, vector in ours:
        assert torch.equal(table.grad, wanted)
        assert torch.equal(vector.grad, torch.full((3,), 2.0))
    assert [numbers for rank, numbers in sent if rank == 0] == [10, exchanged * 4 + 3]


def test_all_ranks_take_what_the_first_has():
    ours = [parameters(rank)[:2] for rank in range(3)]
    wanted = [parameter.grad.clone() for parameter in ours[0]]
    values = [torch.full((2,), float(rank)) for rank in range(3)]

    def work(ranks):
        take_gradients_of_first(ours[ranks.rank], ranks)
        copy_first([values[ranks.rank]], ranks)

    on_threads(3, work)
    assert all(torch.equal(made[number].grad, wanted[number]) for made in ours for number in range(2))
    assert all(torch.equal(value, torch.zeros(2)) for value in values)
