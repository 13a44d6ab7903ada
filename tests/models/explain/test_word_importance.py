from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diptych.errors import DataError, ScoreError
from diptych.model import Model
from diptych.models.embeddings import from_array
from diptych.models.explain import word_importance
from diptych.models.explain.word_importance import MAX_WORDS, Explanation, WordImportance
from diptych.models.matchers.dual_path import DualPathSettings
from diptych.models.matchers.scan import SCANSettings
from diptych.models.matchers.similarity_net import SimilarityNetSettings
from diptych.models.matchers.two_branch import TwoBranchSettings
from diptych.models.matchers.vse import VSESettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.region.features import RegionFeatureSettings
from diptych.models.towers.text.cnn import TextCNNSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.models.towers.text.mean import MeanSettings
from diptych.text.tokenisers.token_table import UNKNOWN
from diptych.text.vocabulary import Vocabulary
from diptych.text.word_vectors import WordVectors

VOCABULARY = Vocabulary.from_texts(["a dog and the man 's red ball on grass"], 1)
COUNT = len(VOCABULARY)
TEXT = GRUSettings(hidden=6, word=5)
WHOLE = {"image": FeatureSettings(shape=(4,)), "words": COUNT}
LAYERS = {"image_layers": (6,), "text_layers": (6,)}
MODELS = {
    "vse": VSESettings(joint=6, text=TEXT, **WHOLE),
    "scan": SCANSettings(joint=6, image=RegionFeatureSettings(shape=(3, 4)), words=COUNT),
    "similarity_net": SimilarityNetSettings(text=TEXT, fused=(4,), **LAYERS, **WHOLE),
    "dual_path": DualPathSettings(text=TextCNNSettings(word=5, depth="small", length=8), hidden=6, joint=6, **WHOLE),
    "mean": TwoBranchSettings(text=MeanSettings(word=5), **LAYERS, **WHOLE),
}


def built(name):
    torch.manual_seed(0)
    matcher = MODELS[name].build().eval()
    if name == "mean":  # knows a vector for all words but "on"
        found = np.arange(COUNT) > UNKNOWN
        found[VOCABULARY.ids["on"]] = False
        vectors = np.random.default_rng(0).normal(size=(COUNT, 5)).astype(np.float32)
        matcher.text.fit(VOCABULARY.encode_all([]), WordVectors(vectors * found[:, None], found))
    trained = Model.from_matcher(matcher, VOCABULARY, torch.device("cpu"))
    shape = (1, 3, 4) if name == "scan" else (1, 4)
    with torch.inference_mode():
        return trained, matcher.encode_images(torch.randn(shape, generator=torch.Generator().manual_seed(1)))


def explain(trained, image, sentence):
    return word_importance.explain(trained.engine, from_array(image.numpy()), sentence)


@pytest.mark.parametrize("name", list(MODELS))
@torch.inference_mode()
def test_importance_is_the_drop_of_the_score_without_each_word(name):
    trained, image = built(name)
    sentence = ["a", "dog", "zebra", "and", "a", "red", "ball"]

    def score(some):
        return trained.matcher.score(image, trained.torch_engine.text_tensor([" ".join(some)])).item()

    found = explain(trained, image, "A dog, zebra and a red ball".replace(",", ""))
    assert found.score == pytest.approx(score(sentence), abs=1e-6)
    assert [word.word for word in found.words] == sentence
    for place, word in enumerate(found.words):
        assert word.position == place
        if word.word == "zebra":
            assert word.importance is None
        else:
            lost = score(sentence) - score(sentence[:place] + sentence[place + 1 :])
            assert word.importance == pytest.approx(lost, abs=1e-6)
    lost = [word.importance for word in found.words if word.importance is not None]
    assert max(map(abs, lost)) > 1e-4
    assert [word.importance for word in found.by_importance] == sorted(lost, reverse=True)
    assert found.unknown == ["zebra"]


@given(st.lists(st.sampled_from([*VOCABULARY.words, "zebra", "unicorn", ",", "n't"]), min_size=1, max_size=9))
def test_every_word_has_its_position(sentence):
    trained, image = built("vse")
    if not any(word in VOCABULARY.ids for word in sentence):
        with pytest.raises(DataError, match="none of its words"):
            explain(trained, image, " ".join(sentence))
        return
    found = explain(trained, image, " ".join(sentence))
    assert [word.position for word in found.words] == list(range(len(found.words)))
    assert all((word.importance is None) == (word.word not in VOCABULARY.ids) for word in found.words)
    assert sorted(word.position for word in found.by_importance) == [
        word.position for word in found.words if word.importance is not None
    ]


def test_the_words_are_the_models_tokens():
    found = explain(*built("vse"), "The man's red ball")
    assert [word.word for word in found.words] == ["the", "man", "'s", "red", "ball"]


def test_a_word_that_the_text_tower_does_not_know_is_unknown():
    found = explain(*built("mean"), "a dog on grass")
    assert found.unknown == ["on"]
    with pytest.raises(DataError, match="none of its words"):
        explain(*built("mean"), "on")


@pytest.mark.parametrize("name", list(MODELS))
@torch.inference_mode()
def test_without_its_only_word_the_empty_text_is_scored(name):
    trained, image = built(name)
    (word,) = explain(trained, image, "Dog").words
    alone, empty = trained.matcher.score(image, trained.torch_engine.text_tensor(["dog", ""]))[0].tolist()
    assert word.importance == pytest.approx(alone - empty, abs=1e-6)


def test_refusals_are_one_line():
    trained, image = built("vse")
    for sentence, reason in (
        ("", "the sentence is empty"),
        ("  \n", "the sentence is empty"),
        ("zebra unicorn", "'zebra unicorn': the run knows none of its words"),
        ("dog " * (MAX_WORDS + 1), f"at most {MAX_WORDS}"),
    ):
        with pytest.raises(DataError, match=reason) as error:
            explain(trained, image, sentence)
        assert "\n" not in str(error.value)
    with pytest.raises(ScoreError, match="not a finite number"):
        explain(trained, image * torch.nan, "a dog")


def test_equally_important_words_keep_the_order_of_the_sentence():
    each = [WordImportance(0, "b", 0.5), WordImportance(1, "x", None), WordImportance(2, "a", 0.5)]
    found = Explanation("b x a", 0.9, (*each, WordImportance(3, "c", 0.75)))
    assert [word.word for word in found.by_importance] == ["c", "b", "a"]
    told = json.loads(json.dumps(found.to_json()))
    assert told["words"][1] == {"place": 1, "word": "x", "importance": None}
    assert [word["word"] for word in told["by_importance"]] == ["c", "b", "a"]
    assert (told["sentence"], told["score"]) == ("b x a", 0.9)
    assert replace(found, words=()).by_importance == []
