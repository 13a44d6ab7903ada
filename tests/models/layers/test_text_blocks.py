from copy import deepcopy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import batch_norm, conv2d, pad, relu

from diptych.models.layers.text_blocks import Block, Convolution, Windows, norm_places, residual_blocks
from diptych.models.towers.text.cnn import DEPTHS


def rows_of_places(draw, most=3):
    places = draw(st.integers(1, 9))
    rows = st.lists(st.lists(st.integers(0, most), min_size=places, max_size=places), min_size=1, max_size=4)
    return torch.tensor(draw(rows))


keys_of_places = st.composite(rows_of_places)()


@given(keys_of_places)
def test_windows_are_the_distinct_keys_and_their_counts(keys):
    distinct, windows = Windows.from_keys(keys)
    assert torch.equal(distinct[windows.at], keys)
    assert len(set(distinct.tolist())) == len(distinct)
    assert windows.counts.tolist() == [keys.flatten().tolist().count(key) for key in distinct.tolist()]


@given(keys_of_places, st.sampled_from([1, 2]))
def test_windows_are_joined_with_the_one_before(keys, stride):
    _, windows = Windows.from_keys(keys)
    pairs, longer = windows.extended(stride)
    nothing = len(windows.counts)
    texts, places = keys.shape
    ends = sorted(range(places - 1, -1, -stride))  # the last place is always an end
    expected = [
        [[int(windows.at[text, end - 1]) if end else nothing, int(windows.at[text, end])] for end in ends]
        for text in range(texts)
    ]
    assert pairs[longer.at].tolist() == expected
    assert len({tuple(pair) for pair in pairs.tolist()}) == len(pairs) == len(longer.counts)
    assert longer.counts.sum() == texts * len(ends)


@given(keys_of_places.filter(lambda keys: keys.numel() > 1), st.integers(0, 1000))
def test_the_norm_counts_a_window_as_often_as_it_occurs(keys, seed):
    torch.manual_seed(seed)
    distinct, windows = Windows.from_keys(keys)
    shared = nn.BatchNorm1d(3).double()
    nn.init.normal_(shared.weight)
    nn.init.normal_(shared.bias)
    plain = deepcopy(shared)
    vectors = torch.randn(len(distinct), 3, dtype=torch.double, requires_grad=True)
    direction = torch.randn(keys.numel(), 3, dtype=torch.double)
    expected = plain(vectors[windows.at.flatten()])
    normed = norm_places(shared, vectors, windows)[windows.at.flatten()]
    torch.testing.assert_close(normed, expected)
    torch.testing.assert_close(shared.running_mean, plain.running_mean)
    torch.testing.assert_close(shared.running_var, plain.running_var)
    for one, other in zip(
        torch.autograd.grad((normed * direction).sum(), [vectors, *shared.parameters()]),
        torch.autograd.grad((expected * direction).sum(), [vectors, *plain.parameters()]),
        strict=True,
    ):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-6)  # deviations of almost nothing are divided by it


def test_a_single_place_is_normed_by_the_running_statistics():
    norm = nn.BatchNorm1d(2)
    norm.running_mean.copy_(torch.tensor([1.0, 2.0]))
    _, windows = Windows.from_keys(torch.tensor([[5]]))
    torch.testing.assert_close(norm_places(norm, torch.tensor([[1.0, 4.0]]), windows), torch.tensor([[0.0, 2.0]]))
    assert norm.running_mean.tolist() == [1, 2]


def test_in_evaluation_the_norm_is_that_of_the_running_statistics():
    norm = nn.BatchNorm1d(2).eval()
    nn.init.normal_(norm.weight)
    norm.running_var.copy_(torch.tensor([4.0, 9.0]))
    vectors = torch.randn(3, 2)
    _, windows = Windows.from_keys(torch.tensor([[0, 1, 1], [1, 2, 1]]))
    torch.testing.assert_close(norm_places(norm, vectors, windows), norm(vectors))
    assert norm.running_var.tolist() == [4, 9]


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("places", [7, 8])
@pytest.mark.parametrize("inputs", [3, 8])
def test_a_block_is_its_convolutions(inputs, places, stride):
    torch.manual_seed(0)
    block = Block(inputs, 8, stride).double()
    keys = torch.randint(0, 3, (2, places))
    distinct, windows = Windows.from_keys(keys)
    vectors = torch.randn(len(distinct), inputs, dtype=torch.double)
    made, longer = block(vectors, windows)
    expected = block_by_convolutions(block, vectors[windows.at].permute(0, 2, 1)[:, :, None])
    torch.testing.assert_close(made[longer.at], expected[:, :, 0].permute(0, 2, 1))
    assert (block.shortcut is None) == (stride == 1 and inputs == 8)


def block_by_convolutions(block, pictures):
    """A block over pictures of height one, (texts, channels, 1, places)."""
    inner = relu(convolved(block.narrow, pictures, 1))
    inner = relu(convolved(block.pair, pad(inner, (1, 0)), 2, block.stride, pictures.shape[3]))
    made = convolved(block.widen, inner, 1)
    if block.shortcut is not None:
        pictures = convolved(block.shortcut, pictures, 1, block.stride, pictures.shape[3])
    return relu(made + pictures)


def convolved(part: Convolution, pictures, span, stride=1, places=0):
    weight = part.product.weight.view(part.product.out_features, span, -1).permute(0, 2, 1)[:, :, None]
    every = conv2d(pictures, weight)
    if stride == 2:  # every second of the places, so that the last is one of them
        every = every[..., [place for place in range(places) if (places - 1 - place) % 2 == 0]]
    return batch_norm(every, None, None, part.norm.weight, part.norm.bias, training=True)


def test_weights_start_as_he_et_al_propose():
    torch.manual_seed(0)
    part = Convolution(400, 500)
    assert part.product.bias is None
    assert part.product.weight.std().item() == pytest.approx((2 / 400) ** 0.5, rel=0.01)


@pytest.mark.parametrize(("depth", "count"), [("resnet50", 16), ("public", 14), ("resnet152", 50), ("small", 7)])
def test_each_depth_has_its_number_of_blocks(depth, count):
    with torch.device("meta"):
        blocks = residual_blocks(300, DEPTHS[depth])
    assert len(blocks) == count
    assert sum(block.stride == 2 for block in blocks) == 3
    assert [block.widen.product.out_features for block in blocks if block.shortcut] == [w for w, _ in DEPTHS[depth]]
    assert all(block.pair.product.in_features == 2 * block.pair.product.out_features for block in blocks)
