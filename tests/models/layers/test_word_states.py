"""Both directions by distinct prefixes against torch's own bidirectional GRU: states and every gradient."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.errors import RecipeError
from diptych.models.layers.word_states import WordStates
from diptych.models.tower import Tokens


def states():
    torch.manual_seed(0)
    return WordStates(9, 3, 4).double()


def padded(texts, extra=0):
    longest = max(map(len, texts)) + extra
    ids = torch.tensor([[*text, *[0] * (longest - len(text))] for text in texts])
    return Tokens(ids, torch.tensor([len(text) for text in texts]))


def values_and_gradients(encode, network, tokens):
    network.zero_grad()
    out = encode(tokens)
    weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    (out * weight).sum().backward()
    return [out.detach(), *(parameter.grad.clone() for parameter in network.parameters())]


@settings(max_examples=20)
@given(st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=6), min_size=1, max_size=8), st.integers(0, 2))
def test_equals_the_plain_gru_with_all_gradients(texts, extra):
    network, tokens = states(), padded(texts, extra)
    fast = values_and_gradients(network.forward, network, tokens)
    plain = values_and_gradients(network.plain, network, tokens)
    assert fast[0].shape == (len(texts), tokens.ids.shape[1], 4)
    for ours, theirs in zip(fast, plain, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("way", ["forward", "plain"])
def test_words_have_length_one_and_the_padding_is_zero(way):
    found = getattr(states(), way)(padded([[1, 2], [1, 2, 3, 4]], extra=1))
    lengths = found.norm(dim=2)
    inside = torch.tensor([[True, True, False, False, False], [True, True, True, True, False]])
    torch.testing.assert_close(lengths, inside.double())


def test_a_row_does_not_depend_on_its_batch():
    network = states()
    alone = network(padded([[1, 2]]))
    beside = network(padded([[1, 2, 3, 4, 5], [1, 2], [2]], extra=2))
    torch.testing.assert_close(alone[0], beside[1, :2])


def test_a_word_sees_what_follows_and_what_came_before():
    network = states()
    base, later, earlier = network(padded([[1, 2, 3], [1, 2, 4], [5, 2, 3]]))
    assert not torch.allclose(base[1], later[1])
    assert not torch.allclose(base[1], earlier[1])


def test_word_vectors_start_the_found_words_only():
    network = states()
    before = network.words.weight.detach().clone()
    assert before.abs().max() <= 0.1
    found = torch.tensor([False] * 4 + [True] * 2 + [False] * 3)
    network.load_word_vectors(torch.full((9, 3), 7.0), found)
    assert (network.words.weight[found] == 7).all()
    torch.testing.assert_close(network.words.weight[~found], before[~found])
    with pytest.raises(RecipeError, match=r"model\.text\.word = 5"):
        network.load_word_vectors(torch.zeros(9, 5), found)
