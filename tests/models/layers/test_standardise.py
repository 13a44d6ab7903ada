import torch
from hypothesis import given
from hypothesis import strategies as st

from diptych.models.layers.standardise import Standardise, Statistics


def test_vectors_are_unchanged_before_statistics_are_measured():
    vectors = torch.randn(5, 3)
    assert torch.equal(Standardise(3)(vectors), vectors)


def test_measured_vectors_have_mean_zero_and_deviation_one():
    vectors = torch.randn(50, 4) * torch.tensor([1.0, 10.0, 0.1, 3.0]) + torch.tensor([5.0, -3.0, 0.0, 1.0])
    layer = Standardise(4)
    layer.measured(vectors.mean(0), vectors.std(0, correction=0))
    out = layer(vectors)
    torch.testing.assert_close(out.mean(0), torch.zeros(4), atol=1e-5, rtol=0)
    torch.testing.assert_close(out.std(0, correction=0), torch.ones(4), atol=1e-5, rtol=0)


def test_an_entry_that_never_changes_is_only_centred():
    layer = Standardise(2)
    layer.measured(torch.tensor([2.0, 1.0]), torch.tensor([0.0, 2.0]))
    assert layer(torch.tensor([[2.0, 5.0], [3.0, 1.0]])).tolist() == [[0.0, 2.0], [1.0, 0.0]]


def test_statistics_are_part_of_the_weights():
    assert set(Standardise(2).state_dict()) == {"mean", "deviation"}


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.integers(0, 99), st.booleans())
def test_statistics_of_blocks_are_those_of_the_whole(sizes, seed, in_sets):
    """In sets, empty places do not count."""
    random = torch.Generator().manual_seed(seed)
    vectors = torch.randn(sum(sizes), *((3,) if in_sets else ()), 4, generator=random) * 3 + 1
    if in_sets:
        vectors[torch.rand(sum(sizes), 3, generator=random) < 0.4] = 0
    statistics = Statistics(4, torch.device("cpu"))
    for block in vectors.split(sizes):
        statistics.add(block)
    rows = vectors.flatten(0, -2)
    rows = rows[rows.any(1)]
    mean, deviation = statistics.result()
    if len(rows):
        torch.testing.assert_close(mean, rows.mean(0))
        torch.testing.assert_close(deviation, rows.std(0, correction=0), atol=1e-5, rtol=1e-5)
    else:
        assert not mean.any()
        assert not deviation.any()
