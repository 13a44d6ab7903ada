import numpy as np
import pytest
import torch

from diptych.errors import RecipeError
from diptych.models.tower import Tokens
from diptych.models.towers.text.mean import MeanSettings
from diptych.text.tokenisers.token_table import TokenTable
from diptych.text.word_vectors import WordVectors

VECTORS = np.arange(14, dtype=np.float32).reshape(7, 2) ** 2
FOUND = np.array([True, False, False, False, True, False, True])  # whatever a file says, padding is no word
NOTHING = TokenTable(np.zeros(0, np.int32), np.zeros(1, np.int64))
TOKENS = Tokens(torch.tensor([[1, 4, 6, 4, 5, 2], [1, 5, 3, 2, 0, 0], [1, 6, 2, 0, 0, 0]]), torch.tensor([6, 4, 3]))


def fitted():
    tower = MeanSettings(word=2).build(7)
    tower.fit(NOTHING, WordVectors(VECTORS, FOUND))
    return tower


def test_the_mean_of_the_words_with_a_vector():
    expected = torch.from_numpy(np.stack([(2 * VECTORS[4] + VECTORS[6]) / 3, 0 * VECTORS[0], VECTORS[6]]))
    torch.testing.assert_close(fitted()(TOKENS), expected)
    assert fitted().size == 2


def test_which_texts_have_a_known_word():
    assert fitted().known(TOKENS).tolist() == [True, False, True]


def test_nothing_is_trained_and_given_features_are_used_as_they_are():
    assert not list(fitted().parameters())
    features = torch.randn(3, 2)
    assert fitted()(Tokens(TOKENS.ids, TOKENS.lengths, features)) is features


def test_vectors_are_needed_and_of_the_right_size():
    with pytest.raises(RecipeError, match=r"^text\.vectors: .* to a file"):
        MeanSettings(word=2).build(7).fit(NOTHING, None)
    with pytest.raises(RecipeError, match=r"^text\.vectors: vectors of size 2, set model\.text\.word = 2$"):
        MeanSettings(word=3).build(7).fit(NOTHING, WordVectors(VECTORS, FOUND))
