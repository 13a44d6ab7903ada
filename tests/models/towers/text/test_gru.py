"""The GRU tower against torch's GRU; the prefix path itself is tested with layers/prefix_gru."""

import torch

from diptych.models.tower import Tokens
from diptych.models.towers.text.gru import GRUSettings
from diptych.text.tokenisers.token_table import PAD

IDS = torch.tensor([[1, 4, 5, 2], [1, 6, 2, 0], [1, 4, 2, 0]])
TOKENS = Tokens(IDS, torch.tensor([4, 3, 3]))


def tower():
    torch.manual_seed(0)
    return GRUSettings(word=3, hidden=5).build(9)


def test_a_text_is_the_state_at_its_last_word():
    gru = tower()
    expected = [gru.gru(gru.words(ids[:length])[None])[1][0, 0] for ids, length in zip(IDS, [4, 3, 3], strict=True)]
    torch.testing.assert_close(gru(TOKENS), torch.stack(expected))
    torch.testing.assert_close(gru.plain(TOKENS), torch.stack(expected))
    assert gru.size == 5


def test_padding_changes_nothing():
    longer = Tokens(torch.cat([IDS, torch.zeros(3, 2, dtype=torch.int64)], 1), TOKENS.lengths)
    torch.testing.assert_close(tower()(longer), tower()(TOKENS))


def test_words_start_small():
    weights = tower().words.weight
    assert 0.05 < weights.abs().max() <= 0.1
    assert tower().words.padding_idx == PAD


def test_found_words_start_from_their_vectors():
    gru, found = tower(), torch.tensor([False] * 4 + [True] * 5)
    before = gru.words.weight.detach().clone()
    gru.load_word_vectors(torch.full((9, 3), 7.0), found)
    assert (gru.words.weight[found] == 7).all()
    assert torch.equal(gru.words.weight[~found], before[~found])


def test_the_defaults_are_those_of_vsepp():
    assert (GRUSettings().word, GRUSettings().hidden) == (300, 1024)
