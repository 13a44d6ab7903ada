"""The prefix path against torch's own GRU, in double precision: states and every gradient."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.models.layers.prefix_gru import PrefixTree
from diptych.models.tower import Tokens
from diptych.models.towers.text.gru import TextGRU


def tower(words=9, size=3, hidden=4, seed=0):
    torch.manual_seed(seed)
    return TextGRU(words, size, hidden).double()


def padded(texts):
    longest = max(map(len, texts))
    ids = torch.tensor([[*text, *[0] * (longest - len(text))] for text in texts])
    return Tokens(ids, torch.tensor([len(text) for text in texts]))


def values_and_gradients(encode, tower, tokens):
    tower.zero_grad()
    out = encode(tokens)
    weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    (out * weight).sum().backward()
    return [out.detach(), *(parameter.grad.clone() for parameter in tower.parameters())]


texts = st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=6), min_size=1, max_size=12)


@settings(max_examples=25)
@given(texts)
def test_equals_the_plain_gru_with_all_gradients(texts):
    gru = tower()
    tokens = padded(texts)
    fast = values_and_gradients(gru.forward, gru, tokens)
    plain = values_and_gradients(gru.plain, gru, tokens)
    for ours, theirs in zip(fast, plain, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)


@given(texts)
def test_every_distinct_prefix_is_one_node(texts):
    tree = PrefixTree.from_ids(padded(texts).ids, padded(texts).lengths)
    prefixes = {tuple(text[:length]) for text in texts for length in range(1, len(text) + 1)}
    continued = {prefix[:-1] for prefix in prefixes if len(prefix) > 1}
    assert sum(map(len, tree.words)) == len(prefixes)
    assert sum(map(len, tree.inner)) == len(continued)
    assert tree.distinct.tolist() == sorted({word for text in texts for word in text})


@given(texts)
def test_the_path_leads_to_the_node_of_every_prefix(texts):
    tree = PrefixTree.from_ids(padded(texts).ids, padded(texts).lengths)
    nodes = {}
    for text, path in zip(texts, tree.path.tolist(), strict=True):
        for length, node in enumerate(path[: len(text)], 1):
            assert nodes.setdefault(tuple(text[:length]), node) == node
    assert sorted(nodes.values()) == list(range(sum(tree.nodes)))


def test_padding_changes_nothing():
    gru = tower()
    alone = gru(padded([[1, 2]]))
    beside = gru(padded([[1, 2], [1, 2, 3, 4, 5]]))
    torch.testing.assert_close(alone[0], beside[0])


def test_the_padding_word_may_stand_inside_a_text():
    gru = tower()
    tokens = padded([[1, 0, 2], [1, 0, 3], [1]])
    torch.testing.assert_close(gru(tokens), gru.plain(tokens))


def test_a_frozen_tower_still_passes_gradients_to_what_is_trainable():
    gru = tower()
    tokens = padded([[1, 2, 3], [1, 2]])
    gru.words.weight.requires_grad_(False)
    gru(tokens).sum().backward()
    assert gru.words.weight.grad is None
    assert gru.gru.weight_hh_l0.grad.abs().sum() > 0


@pytest.mark.parametrize("texts", [[[3]], [[3], [3], [3]]])
def test_one_word_and_repeated_texts(texts):
    gru = tower()
    tokens = padded(texts)
    torch.testing.assert_close(gru(tokens), gru.plain(tokens))
