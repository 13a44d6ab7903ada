"""The defaults of towers, and how a recipe names them."""

import pytest
import torch
from torch import nn

from diptych.errors import RecipeError
from diptych.models.matchers.vse import VSESettings
from diptych.models.tower import TextTower, load_word_embedding
from diptych.models.towers.image.cnn import CNNSettings
from diptych.models.towers.text.words import WordsSettings


class Lengths(TextTower):
    size = 1

    def forward(self, tokens):
        return tokens.lengths[:, None].float()


def test_a_recipe_names_towers_by_their_files():
    named = VSESettings.model_validate(
        {"image": {"name": "cnn", "width": 2}, "text": {"name": "words", "hidden": 8, "word": 3}, "joint": 8}
    )
    assert named.image == CNNSettings(width=2)
    assert named.text == WordsSettings(hidden=8, word=3)
    assert VSESettings.model_validate(named.model_dump(mode="json")) == named


def test_a_tower_that_does_not_exist_is_refused_with_the_nearest_name():
    with pytest.raises(RecipeError, match=r"model\.text\.name = 'grux': no such name; .*'gru'"):
        VSESettings.model_validate({"text": {"name": "grux"}})
    with pytest.raises(RecipeError, match=r"model\.image: needs a table with a name"):
        VSESettings.model_validate({"image": "cnn"})


def test_a_tower_without_a_backbone_has_nothing_to_load():
    tower = CNNSettings(pixels=16, width=1).build()
    before = {name: value.clone() for name, value in tower.state_dict().items()}
    tower.load_pretrained()
    assert (tower.pretrained, tower.pretrained_weights) == (None, None)
    assert all(torch.equal(value, before[name]) for name, value in tower.state_dict().items())
    assert CNNSettings().for_data((2048,)) == CNNSettings()


def test_a_tower_without_word_embedding_refuses_word_vectors():
    with pytest.raises(RecipeError, match=r"text\.vectors: the text tower has no word embedding"):
        Lengths().load_word_vectors(torch.ones(3, 2), torch.ones(3, dtype=torch.bool))


def test_found_words_get_their_vectors_and_the_others_stay():
    embedding = nn.Embedding(4, 2)
    before = embedding.weight.detach().clone()
    vectors, found = torch.arange(8.0).view(4, 2), torch.tensor([False, True, False, True])
    load_word_embedding(embedding, vectors, found)
    assert torch.equal(embedding.weight[found], vectors[found])
    assert torch.equal(embedding.weight[~found], before[~found])
    with pytest.raises(RecipeError, match=r"vectors of size 3, set model\.text\.word = 3"):
        load_word_embedding(embedding, torch.ones(4, 3), found)


def test_a_tower_that_is_trained_from_scratch_leaves_the_tokeniser_to_the_recipe():
    assert WordsSettings().tokeniser() is None
