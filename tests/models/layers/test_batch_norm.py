"""Batch norm with counts and over several ranks, against torch's own on the rows written out."""

import pytest
import torch
from torch import nn

from diptych.models.layers.batch_norm import JointBatchNorm, join_batch_norms, normed, weighted_norm
from diptych.ranks import ALONE, Ranks
from support.ranks import on_threads


def norm(size=3, kind=nn.BatchNorm1d):
    torch.manual_seed(0)
    made = kind(size).double()
    nn.init.normal_(made.weight)
    nn.init.normal_(made.bias)
    return made


def rows(count, *shape, seed=1):
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


def computed(layer, given, weights, apply):
    """The output, all gradients and the statistics after a pass."""
    given = given.clone().requires_grad_()
    out = apply(layer, given)
    (out * weights).sum().backward()
    statistics = {name: value.clone() for name, value in layer.named_buffers() if name != "num_batches_tracked"}
    return out.detach(), given.grad, layer.weight.grad, layer.bias.grad, statistics


def test_rows_that_count_several_times_are_as_if_written_out():
    counts = torch.tensor([1, 3, 2])
    given, weights = rows(3, 3), rows(3, 3, seed=2)
    ours = computed(norm(), given, weights, lambda layer, some: weighted_norm(layer, some, counts, 6))
    theirs = computed(
        norm(), given, weights, lambda layer, some: layer(some.repeat_interleave(counts, 0))[counts.cumsum(0) - 1]
    )
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("shape", [(3,), (3, 4, 2)], ids=["rows", "maps"])
@pytest.mark.parametrize("parts", [(2, 3), (5, 0), (1, 4)], ids=str)
def test_ranks_together_are_one_batch(parts, shape):
    kind = nn.BatchNorm1d if len(shape) == 1 else nn.BatchNorm2d
    given, weights = rows(sum(parts), *shape), rows(sum(parts), *shape, seed=2)
    layers = [norm(kind=kind) for _ in range(3)]
    out, to_rows, to_weight, to_bias, statistics = computed(layers[2], given, weights, lambda layer, some: layer(some))

    def work(ranks):
        own = slice(sum(parts[: ranks.rank]), sum(parts[: ranks.rank + 1]))
        joint = JointBatchNorm(layers[ranks.rank], ranks)
        return computed(joint, given[own], weights[own], lambda layer, some: layer(some))

    first, second = on_threads(2, work)
    torch.testing.assert_close(torch.cat([first[0], second[0]]), out)
    torch.testing.assert_close(torch.cat([first[1], second[1]]), to_rows)
    torch.testing.assert_close(first[2] + second[2], to_weight)
    torch.testing.assert_close(first[3] + second[3], to_bias)
    for found in (first, second):
        torch.testing.assert_close(found[4], statistics)


def test_a_single_row_uses_the_running_statistics():
    layer, given = norm(), rows(1, 3)
    wanted = norm().eval()(given)
    torch.testing.assert_close(normed(layer, given), wanted)
    torch.testing.assert_close(weighted_norm(layer, given, torch.ones(1), 1), wanted)
    assert torch.equal(layer.running_mean, torch.zeros(3).double())

    layers = [norm(), norm()]

    def work(ranks):
        return normed(JointBatchNorm(layers[ranks.rank], ranks), given[: 1 - ranks.rank])

    only, nothing = on_threads(2, work)
    torch.testing.assert_close(only, wanted)
    assert len(nothing) == 0


def test_layers_are_replaced_under_their_names():
    model = nn.Sequential(nn.Linear(3, 3), nn.Sequential(norm(), norm(kind=nn.BatchNorm2d))).double().eval()
    names, values = list(model.state_dict()), model.state_dict()

    join_batch_norms(model, ALONE)
    assert not isinstance(model[1][0], JointBatchNorm)
    join_batch_norms(model, Ranks(0, 2))
    assert isinstance(model[1][0], JointBatchNorm)
    assert isinstance(model[1][1], JointBatchNorm)
    assert list(model.state_dict()) == names
    assert all(value.data_ptr() == values[name].data_ptr() for name, value in model.state_dict().items())
    assert not model[1][0].training
    torch.testing.assert_close(model[1][0](rows(4, 3)), norm().eval()(rows(4, 3)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_statistics_of_half_precision_are_those_of_single_precision(dtype):
    given, weights = rows(5, 3).to(dtype) + 8, rows(5, 3, seed=2).float()
    layers = [norm().float() for _ in range(4)]
    wanted = computed(layers[3], given.float(), weights, lambda layer, some: layer(some))

    def in_autocast(layer, some):
        with torch.autocast("cpu", dtype):
            return weighted_norm(layer, some, torch.ones(len(some)), len(some))

    def work(ranks):
        own = slice(0, 2) if ranks.is_first else slice(2, 5)
        return computed(JointBatchNorm(layers[ranks.rank], ranks), given[own], weights[own], in_autocast)

    alone = computed(layers[2], given, weights, in_autocast)
    first, second = on_threads(2, work)
    together = torch.cat([first[0], second[0]]), torch.cat([first[1], second[1]])
    for out, to_rows, statistics in ((alone[0], alone[1], alone[4]), (*together, first[4])):
        assert out.dtype == torch.float32
        torch.testing.assert_close(out, wanted[0])
        torch.testing.assert_close(to_rows, wanted[1].to(dtype))
        torch.testing.assert_close(statistics, wanted[4])
