import numpy as np
import torch

from diptych.models.tower import Tokens
from diptych.models.towers.text.tfidf import TfidfSettings
from diptych.text.tokenisers.token_table import TokenTable

# Three texts of the words 4 to 6: "4 4 5", "5", "5 unknown"; no text has the word 6.
TRAIN = TokenTable(np.array([1, 4, 4, 5, 2, 1, 5, 2, 1, 5, 3, 2], np.int32), np.array([0, 5, 8, 12], np.int64))
TOKENS = Tokens(torch.tensor([[1, 4, 5, 4, 2], [1, 3, 2, 0, 0], [1, 6, 2, 0, 0]]), torch.tensor([5, 3, 3]))


def fitted():
    tower = TfidfSettings().build(7)
    tower.fit(TRAIN, None)
    return tower


def test_term_frequency_times_smoothed_inverse_document_frequency():
    rare, common = np.log(4 / 2) + 1, np.log(4 / 4) + 1
    expected = np.array([2 * rare, common, 0]) / np.hypot(2 * rare, common)
    made = fitted()(TOKENS).double()
    torch.testing.assert_close(made[0], torch.from_numpy(expected), atol=1e-6, rtol=1e-6)
    assert made[1:].tolist() == [[0, 0, 0], [0, 0, 1]]
    assert fitted().size == 3


def test_specials_and_unknown_words_are_no_words():
    assert fitted().known(TOKENS).tolist() == [True, False, True]


def test_nothing_is_trained_and_given_features_are_used_as_they_are():
    tower = fitted()
    assert not list(tower.parameters())
    features = torch.randn(3, 3)
    assert tower(Tokens(TOKENS.ids, TOKENS.lengths, features)) is features
