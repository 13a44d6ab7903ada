import pytest
import torch

from diptych.models.tower import Tokens
from diptych.models.towers.text.words import WordsSettings

IDS = torch.tensor([[1, 4, 5, 2], [1, 6, 2, 0], [1, 2, 0, 0]])
TOKENS = Tokens(IDS, torch.tensor([4, 3, 2]))


def test_the_mean_of_the_words_through_the_layers():
    torch.manual_seed(0)
    tower = WordsSettings(word=3, hidden=5).build(9).eval()
    vectors = tower.words.weight
    means = torch.stack([(vectors[4] + vectors[5]) / 2, vectors[6], torch.zeros(3)])
    first, _, _, second = tower.layers
    expected = (means @ first.weight.t() + first.bias).clamp(min=0) @ second.weight.t() + second.bias
    torch.testing.assert_close(tower(TOKENS), expected)


def test_padding_and_order_change_nothing():
    tower = WordsSettings(word=3, hidden=5).build(9).eval()
    longer = Tokens(torch.cat([IDS, torch.zeros(3, 2, dtype=torch.int64)], 1), TOKENS.lengths)
    torch.testing.assert_close(tower(longer), tower(TOKENS))
    turned = Tokens(torch.tensor([[1, 5, 4, 2]]), torch.tensor([4]))
    torch.testing.assert_close(tower(turned), tower(TOKENS)[:1])


@pytest.mark.parametrize(("dropout", "varies"), [(0.0, False), (0.5, True)])
def test_dropout_acts_in_training_only(dropout, varies):
    tower = WordsSettings(word=16, hidden=16, dropout=dropout).build(9)
    tower.train()
    assert (not torch.equal(tower(TOKENS), tower(TOKENS))) is varies
    tower.eval()
    assert torch.equal(tower(TOKENS), tower(TOKENS))
