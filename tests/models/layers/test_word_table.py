import numpy as np
import pytest
import torch

from diptych.errors import RecipeError
from diptych.models.layers.word_table import WordTableTower
from diptych.models.tower import Tokens
from diptych.text.word_vectors import WordVectors

VECTORS = np.arange(14, dtype=np.float32).reshape(7, 2)
FOUND = np.array([True, False, False, True, True, False, True])  # the first four are special words


class Tower(WordTableTower):
    """A table that is only filled."""

    def fit(self, texts, vectors, progress=None):
        self.fill(vectors)

    def forward(self, tokens):
        return self.table[tokens.ids].sum(1)


def filled():
    tower = Tower(7, 2)
    tower.fit(None, WordVectors(VECTORS, FOUND))
    return tower


def test_only_found_words_that_are_not_special_have_a_vector():
    tower = filled()
    assert tower.found.tolist() == [False, False, False, False, True, False, True]
    assert torch.equal(tower.table[tower.found], torch.from_numpy(VECTORS[[4, 6]]))
    assert not tower.table[~tower.found].any()


def test_a_text_is_known_by_one_word_with_a_vector():
    ids = torch.tensor([[1, 4, 2, 0], [1, 5, 2, 0], [1, 5, 6, 2], [1, 3, 2, 0]])
    assert filled().known(Tokens(ids, torch.tensor([3, 3, 4, 3]))).tolist() == [True, False, True, False]


def test_the_table_is_stored_and_not_trained():
    assert set(filled().state_dict()) == {"table", "found"}
    assert not list(filled().parameters())


def test_vectors_are_needed_and_of_the_right_size():
    with pytest.raises(RecipeError, match=r"text\.vectors: the text tower needs word vectors"):
        Tower(7, 2).fill(None)
    with pytest.raises(RecipeError, match=r"vectors of size 2, set model\.text\.word = 2"):
        Tower(7, 3).fill(WordVectors(VECTORS, FOUND))
