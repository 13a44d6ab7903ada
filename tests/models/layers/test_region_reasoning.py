import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diptych.models.layers.region_reasoning import Layout, RegionGraph

SIZE = 5


def regions_of(counts, most, seed=0):
    regions = torch.randn(len(counts), most, SIZE, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    for image, count in enumerate(counts):
        regions[image, count:] = 0
    return regions


def block_of(seed=0, fresh=False):
    torch.manual_seed(seed)
    block = RegionGraph(SIZE).double()
    if not fresh:
        for parameter in block.parameters():
            torch.nn.init.normal_(parameter)
        torch.nn.init.normal_(block.normalise.running_mean)
        torch.nn.init.uniform_(block.normalise.running_var, 0.5, 2)
    return block


def reference(block, regions, counts):
    """The equations image by image, pair by pair; rows of all images, and what the batch norm read."""
    heard = []
    for image, count in zip(regions, counts, strict=True):
        for i in range(count):
            own = torch.zeros(SIZE, dtype=torch.float64)
            for j in range(count):
                affinity = torch.dot(
                    block.theta.weight @ image[i] + block.theta.bias, block.phi.weight @ image[j] + block.phi.bias
                )
                own = own + affinity / count * (block.message.weight @ image[j] + block.message.bias)
            heard.append(block.update.weight @ own + block.update.bias)
    read = torch.stack(heard)
    norm = block.normalise
    mean, variance = norm.running_mean, norm.running_var
    if block.training:
        mean = sum(heard) / len(heard)
        variance = sum((one - mean) ** 2 for one in heard) / len(heard)
    changed = [(one - mean) / torch.sqrt(variance + norm.eps) * norm.weight + norm.bias for one in heard]
    before = [image[i] for image, count in zip(regions, counts, strict=True) for i in range(count)]
    return torch.stack([old + new for old, new in zip(before, changed, strict=True)]), read


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("counts", [(3, 1, 2), (3, 3, 3), (1, 1)], ids=["ragged", "full", "fewer rows than numbers"])
def test_a_block_follows_the_equations_in_values_and_gradients(counts, training):
    block, regions = block_of().train(training), regions_of(counts, 4).requires_grad_()
    expected, _ = reference(block, regions, counts)
    toward = torch.randn(expected.shape, dtype=torch.float64)
    inputs = [regions, *block.parameters()]
    wanted = torch.autograd.grad((expected * toward).sum(), inputs)
    rows, layout = Layout.from_regions(regions)
    assert block.composes(len(rows)) == (sum(counts) > SIZE)
    out = block(rows, layout)
    torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-9)
    got = torch.autograd.grad((out * toward).sum(), inputs)
    torch.testing.assert_close(got, wanted, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("counts", [(9, 4, 2), (9, 9)], ids=["ragged", "full"])
def test_composed_and_separate_maps_are_one_function(monkeypatch, counts):
    block = block_of().float()
    regions = regions_of(counts, 9).float()
    results = []
    for composed in (True, False):
        monkeypatch.setattr(block, "composes", lambda rows, composed=composed: composed)
        rows, layout = Layout.from_regions(regions)
        rows.requires_grad_()
        out = block(rows, layout)
        inputs = [rows, *block.parameters()]
        results.append([out, *torch.autograd.grad((out * torch.arange(SIZE)).sum(), inputs)])
    for composed, separate in zip(*results, strict=True):
        scale = float(separate.detach().abs().max().clamp(min=1))
        torch.testing.assert_close(composed / scale, separate / scale, rtol=0, atol=1e-5)


def test_statistics_are_those_of_the_regions_that_there_are():
    counts = (4, 1, 2)
    block, regions = block_of().train(), regions_of(counts, 6)
    plain = torch.nn.BatchNorm1d(SIZE).double()
    plain.load_state_dict(block.normalise.state_dict())
    _, read = reference(block, regions, counts)
    expected = plain(read)
    rows, layout = Layout.from_regions(regions)
    torch.testing.assert_close(block(rows, layout) - rows, expected)
    torch.testing.assert_close(block.normalise.running_mean, plain.running_mean)
    torch.testing.assert_close(block.normalise.running_var, plain.running_var)
    assert block.normalise.num_batches_tracked == plain.num_batches_tracked


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_a_fresh_block_changes_nothing_and_can_learn(training):
    block = block_of(fresh=True).train(training)
    rows, layout = Layout.from_regions(regions_of((3, 2), 3))
    out = block(rows, layout)
    assert torch.equal(out, rows)
    (out * torch.arange(SIZE)).sum().backward()
    assert block.normalise.bias.grad.abs().max() > 0


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 3), st.integers(0, 9), st.booleans())
def test_neither_padding_nor_neighbours_nor_holes_change_a_region(counts, more, seed, apart):
    block = block_of(seed).eval()
    tight = regions_of(counts, max(counts), seed)
    loose = torch.zeros(len(counts), max(counts) + more + (max(counts) if apart else 0), SIZE, dtype=torch.float64)
    for image, count in enumerate(counts):
        loose[image, : (2 if apart else 1) * count : 2 if apart else 1] = tight[image, :count]
    whole, looser = (block(*Layout.from_regions(regions)) for regions in (tight, loose))
    torch.testing.assert_close(whole, looser)
    alone = [block(*Layout.from_regions(tight[image : image + 1])) for image in range(len(counts))]
    torch.testing.assert_close(whole, torch.cat(alone))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=5))
def test_rows_come_back_from_their_padding(counts):
    regions = regions_of(counts, 5)
    rows, layout = Layout.from_regions(regions)
    assert layout.counts.tolist() == [max(1, count) for count in counts]  # no region at all is one of zeros
    padded = layout.pad(rows)
    assert torch.equal(padded, regions[:, : layout.most])
    assert torch.equal(layout.take(padded), rows)
    some = 1 + len(counts) // 2
    few, of_few = layout.first(rows, some)
    assert torch.equal(of_few.pad(few), padded[:some])
    assert torch.equal(of_few.take(padded[:some]), few)
    assert torch.equal(layout.last(padded), torch.stack([regions[i, max(1, n) - 1] for i, n in enumerate(counts)]))


def test_a_single_region_has_no_statistics_and_takes_the_running_ones():
    block = block_of().train()
    rows, layout = Layout.from_regions(regions_of([1], 1))
    before = block.normalise.running_mean.clone()
    alone = block(rows, layout)
    assert torch.equal(block.normalise.running_mean, before)
    torch.testing.assert_close(alone, block.eval()(rows, layout))
