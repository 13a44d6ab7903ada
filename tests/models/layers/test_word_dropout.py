"""Dropout of word vectors: nothing in evaluation, equal words stay equal, and both ways to run a GRU agree on it."""

import pytest
import torch
from torch import nn

from diptych.models.layers.word_dropout import dropped_words
from diptych.models.layers.word_states import WordStates
from diptych.models.tower import Tokens
from diptych.models.towers.text.gru import GRUSettings

TOKENS = Tokens(torch.tensor([[1, 4, 5, 2], [1, 4, 2, 0], [1, 4, 5, 6]]), torch.tensor([4, 3, 4]))


def test_a_share_of_the_entries_is_dropped_and_the_others_grow():
    words = nn.Embedding(400, 50)
    nn.init.ones_(words.weight)
    torch.manual_seed(0)
    found = dropped_words(words, 0.2)
    assert set(found.flatten().tolist()) == {0.0, 1.25}
    assert (found == 0).float().mean().item() == pytest.approx(0.2, abs=0.01)
    assert not (found == 0).all(1).any()  # entries, not words
    assert torch.equal(dropped_words(words.eval(), 0.2), words.weight)


TOWERS = {
    "a vector per text": lambda dropout: GRUSettings(word=3, hidden=5, dropout=dropout).build(9),
    "a vector per word": lambda dropout: WordStates(9, 3, 5, dropout),
}


def values_and_gradients(network, encode):
    network.zero_grad()
    torch.manual_seed(5)
    found = encode(TOKENS)
    (found * torch.linspace(-1, 1, found.numel(), dtype=found.dtype).view_as(found)).sum().backward()
    return [found.detach(), *(parameter.grad.clone() for parameter in network.parameters())]


@pytest.mark.parametrize("build", TOWERS.values(), ids=TOWERS)
def test_shared_prefixes_and_the_plain_gru_drop_the_same(build):
    torch.manual_seed(0)
    network = build(0.5).double()
    fast, plain = values_and_gradients(network, network.forward), values_and_gradients(network, network.plain)
    for ours, theirs in zip(fast, plain, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("build", TOWERS.values(), ids=TOWERS)
def test_only_training_drops(build):
    torch.manual_seed(0)
    network, without = build(0.5), build(0.0)
    without.load_state_dict(network.state_dict())
    assert not torch.equal(network(TOKENS), network(TOKENS))
    assert torch.equal(without(TOKENS), without(TOKENS))
    assert torch.equal(network.eval()(TOKENS), without.eval()(TOKENS))
