"""Rows for new words: the known words keep their vectors, and a new one begins as the unknown word."""

import pytest
import torch

from diptych.errors import RecipeError
from diptych.models.matchers.vse import VSESettings
from diptych.models.matchers.vsrn import VSRNSettings
from diptych.models.tower import Tokens
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.word_rows import add_word_rows
from diptych.text.tokenisers.token_table import UNKNOWN

KNOWN, WORDS = 9, 14


def vse(text, words):
    image = FeatureSettings(shape=(5,))
    settings = VSESettings(joint=6, image=image, text=text, text_projection=True)
    return settings.model_copy(update={"words": words}).build()


@pytest.mark.parametrize("text", [{"name": "words", "word": 4, "hidden": 8}, {"name": "gru", "word": 4, "hidden": 8}])
def test_new_words_score_as_the_unknown_word_did(text):
    small, large = vse(text, KNOWN), vse(text, WORDS)
    large.load_state_dict(add_word_rows(small.state_dict(), large, KNOWN, WORDS))
    lengths = torch.tensor([4, 4])
    as_unknown = torch.tensor([[1, 5, UNKNOWN, 2], [1, UNKNOWN, UNKNOWN, 2]])
    as_new = torch.tensor([[1, 5, KNOWN, 2], [1, WORDS - 1, KNOWN + 1, 2]])
    with torch.no_grad():
        expected = small.eval().encode_texts(Tokens(as_unknown, lengths))
        assert torch.equal(large.eval().encode_texts(Tokens(as_new, lengths)), expected)
    rows = large.state_dict()["text.words.weight"]
    assert torch.equal(rows[:KNOWN], small.state_dict()["text.words.weight"])
    assert rows.shape[0] == WORDS


def test_all_that_has_a_row_for_each_word_grows():
    """VSRN also writes captions: an embedding and an output for each word."""

    def build(words):
        image = {"name": "features", "shape": (3, 5)}
        text, generation = {"name": "gru", "word": 4, "hidden": 6}, {"weight": 1.0, "word": 4, "hidden": 6}
        settings = VSRNSettings(joint=6, image=image, text=text, generation=generation)
        return settings.model_copy(update={"words": words}).build()

    small, large = build(KNOWN), build(WORDS)
    weights = add_word_rows(small.state_dict(), large, KNOWN, WORDS)
    grown = [name for name in weights if weights[name].shape != small.state_dict()[name].shape]
    assert grown == ["text.words.weight", "captioner.words.weight", "captioner.output.weight", "captioner.output.bias"]
    large.load_state_dict(weights)


def test_a_tower_that_was_fitted_to_its_words_cannot_grow():
    matchers = [vse({"name": "tfidf"}, words) for words in (KNOWN, WORDS)]
    with pytest.raises(RecipeError, match=r"text\.grow: the text tower 'tfidf' was fitted .*set text\.grow = false"):
        add_word_rows(matchers[0].state_dict(), matchers[1], KNOWN, WORDS)
