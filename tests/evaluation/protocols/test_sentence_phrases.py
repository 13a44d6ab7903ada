from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from diptych.data.corpus import Corpus, Features, Phrase
from diptych.errors import DataError, ScoreError
from diptych.evaluation.metrics.ranks import ranks
from diptych.evaluation.metrics.scores import Score, matrix_score
from diptych.evaluation.protocols.sentence_phrases import (
    TextPhrases,
    annotated_phrases,
    chunked_phrases,
    combined_score,
    mean_phrase_score,
    phrase_score,
)
from diptych.evaluation.runs import evaluate_encoded
from diptych.model import Model
from diptych.models.matchers.two_branch import TwoBranchSettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.text.vocabulary import Vocabulary

WORDS = ["a dog", "a red ball", "grass", "two men", "the sea"]


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def whole(score: Score):
    return score.against(slice(0, score.texts))(slice(0, score.images))


@given(st.lists(st.lists(st.sampled_from(WORDS), max_size=6), min_size=1, max_size=8), st.data())
def test_a_text_has_the_mean_of_its_phrases(lists, data):
    texts = [f"sentence {number}" for number in range(len(lists))]
    phrases = TextPhrases.from_lists(texts, lists)
    scores = normal(9, len(phrases.phrases)).double()
    expected = np.array(
        [
            [
                np.mean([scores[image, phrases.phrases.index(word)] for word in own or [text]])
                for own, text in zip(lists, texts, strict=True)
            ]
            for image in range(9)
        ]
    )
    score = mean_phrase_score(matrix_score(scores), phrases)
    assert (score.images, score.texts) == (9, len(texts))
    np.testing.assert_allclose(whole(score), expected, atol=1e-12)
    columns = data.draw(st.lists(st.integers(0, len(texts) - 1), min_size=1, max_size=12))
    rows = data.draw(st.lists(st.integers(0, 8), min_size=1, max_size=12))
    tile = score.against(torch.tensor(columns))(torch.tensor(rows))
    np.testing.assert_allclose(tile, expected[np.ix_(rows, columns)], atol=1e-12)


@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_the_same_phrases_tie_bit_for_bit_in_any_order(own, random):
    other = random.sample(own, len(own))
    lists = [own, WORDS, other, own + own, ["grass"]]
    phrases = TextPhrases.from_lists([""] * len(lists), lists)
    tile = whole(mean_phrase_score(matrix_score(normal(33, len(phrases.phrases))), phrases))
    assert torch.equal(tile[:, 0], tile[:, 2])
    assert torch.equal(tile[:, 0], tile[:, 3])


def test_each_distinct_phrase_of_a_tile_is_scored_once():
    asked = []

    def against(columns):
        asked.append(columns.tolist())
        return matrix_score(normal(4, 5)).against(columns)

    phrases = TextPhrases.from_lists(["x"] * 4, [WORDS[:3], WORDS[:3], WORDS[1:4], WORDS[4:]])
    tile = mean_phrase_score(Score(4, 5, against), phrases).against(slice(0, 3))
    tile(slice(0, 2))
    tile(slice(2, 4))
    assert asked == [sorted(phrases.phrases.index(word) for word in WORDS[:4])]


@pytest.mark.parametrize("share", [0.0, 0.2, 1.0])
def test_the_share_is_the_weight_of_the_phrases(share):
    sentences, phrases = normal(5, 10), normal(5, 10, seed=1)
    joined = combined_score(matrix_score(sentences), matrix_score(phrases), share)
    torch.testing.assert_close(whole(joined), (1 - share) * sentences + share * phrases)
    found = ranks(joined, np.arange(5), np.arange(10) // 2, block=12)
    expected = ranks(matrix_score((1 - share) * sentences + share * phrases), np.arange(5), np.arange(10) // 2)
    assert found.images.tolist() == expected.images.tolist()


def test_refusals():
    five = matrix_score(normal(5, 10))
    with pytest.raises(ScoreError, match=r"share of 1\.5"):
        combined_score(five, five, 1.5)
    with pytest.raises(ScoreError, match="5 x 10, 4 x 10"):
        combined_score(five, matrix_score(normal(4, 10)), 0.2)
    with pytest.raises(ScoreError, match="scores of 10 phrases for 1"):
        mean_phrase_score(five, TextPhrases.from_lists(["x"], [["y"]]))


class Regions(nn.Module):
    """An image tower in place of one that finds regions: it gives back the features that it is given."""

    def __init__(self, tower):
        super().__init__()
        self.input, self.size, self.pretrained = tower.input, tower.input.shape[-1], None

    def forward(self, values):
        return values


def corpus(shape=(4, 3), images=12):
    random = np.random.default_rng(2)
    groups = np.repeat(np.arange(images), 2)
    texts = [f"{random.choice(WORDS)} and {random.choice(WORDS)} {number}" for number in range(len(groups))]
    lists = [[Phrase(text.split(" and ")[0], "1")] if number % 3 else [] for number, text in enumerate(texts)]
    values = random.normal(size=(images, *shape)).astype(np.float32)
    values[::3, -1] = 0  # a region less
    splits = np.full(images, "test"), np.full(len(groups), "test")
    ids = [f"{number}.jpg" for number in range(images)]
    features = Features([values])
    return Corpus("c", ids, np.arange(images), splits[0], texts, groups, splits[1], features=features, phrases=lists)


def run(data, seed=0):
    torch.manual_seed(seed)
    vocabulary = Vocabulary.from_texts(data.texts, 1)
    shape = data.features.shape
    towers = {"text": GRUSettings(hidden=6, word=4), "image": FeatureSettings(shape=shape[-1:])}
    matcher = TwoBranchSettings(image_layers=(5,), text_layers=(5,), words=len(vocabulary), **towers).build()
    matcher.image = Regions(matcher.image)
    matcher.image.input = replace(matcher.image.input, shape=shape)
    return Model.from_matcher(matcher.eval(), vocabulary, torch.device("cpu"))


def test_a_phrase_run_scores_a_text_by_the_best_region_of_each_phrase():
    data = corpus()
    trained, phrases = run(data), annotated_phrases(data)
    seen = []
    tile = whole(phrase_score(trained, data, phrases, 0, lambda done, total: seen.append((done, total))))
    assert seen[-1] == (12 + len(phrases.phrases),) * 2
    regions, _, _ = trained.torch_engine.encode_corpus_images(data)
    for image in range(12):
        there = regions[image][regions[image].any(1)]
        assert len(there) == (3 if image % 3 == 0 else 4)
        for text, sentence in enumerate(data.texts):
            own = [phrase.text for phrase in data.phrases[text]] or [sentence]
            distances = torch.cdist(there, trained.torch_engine.text_tensor(own))  # (regions, phrases)
            assert tile[image, text] == pytest.approx(-float(distances.amin(0).mean()), abs=1e-4)


def test_two_runs_with_different_inputs_are_combined():
    data = corpus()
    sentences = replace(data, features=Features([data.features[np.arange(12)].mean(1)]))
    encoded = run(sentences, seed=1).encode_corpus(sentences)
    parts = phrase_score(run(data), data, annotated_phrases(data))
    own = matrix_score(run(sentences, seed=1).matcher.score(encoded.images, encoded.texts))
    result = evaluate_encoded([encoded], score=combined_score(own, parts, 0.5), folds=2)
    mean = matrix_score((whole(own) + whole(parts)) / 2)
    assert result.to_json() == evaluate_encoded([encoded], score=mean, folds=2).to_json()
    assert result.to_json() != evaluate_encoded([encoded], folds=2).to_json()


def test_an_image_that_only_one_run_can_read_is_named():
    data = corpus()
    data.features._parts[0][5] = 0
    with pytest.raises(ScoreError, match=r"the phrase run cannot read 5\.jpg, which .*no regions"):
        phrase_score(run(data), data, annotated_phrases(data))


def test_phrases_come_from_the_annotation_or_the_chunker():
    data = corpus()
    phrases = annotated_phrases(data)
    assert phrases.phrases[phrases.rows[1][0]] == data.texts[1].split(" and ")[0]
    assert phrases.phrases[phrases.rows[0][0]] == data.texts[0]  # a text without a phrase is its own
    with pytest.raises(DataError, match=r"^c: its texts have no annotated phrases; let the chunker find them"):
        annotated_phrases(replace(data, phrases=None))
    named = replace(data, texts=["A man throws a red ball."] * 24, phrases=None)
    chunked = chunked_phrases(named)
    assert [word.lower() for word in chunked.phrases] == ["a man", "a red ball"]
    assert chunked.rows[23].tolist() == [0, 1]
