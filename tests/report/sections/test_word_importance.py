from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from diptych.data.formats.scenes import make_scenes
from diptych.model import Model
from diptych.models.explain.word_importance import Explanation, WordImportance
from diptych.models.matchers.vse import VSESettings
from diptych.models.towers.image.cnn import CNNSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.report.sections.word_importance import CaptionWord, caption_words, word_importance_section
from diptych.text.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def trained():
    corpus = make_scenes(train=2, val=2, test=5, texts=2).split("test")
    vocabulary = Vocabulary.from_texts(corpus.texts, 1)
    torch.manual_seed(0)
    image = CNNSettings(pixels=32, width=2)
    matcher = VSESettings(joint=8, text=GRUSettings(hidden=8, word=4), image=image, words=len(vocabulary)).build()
    return Model.from_matcher(matcher.eval(), vocabulary, torch.device("cpu"))


@pytest.fixture(scope="module")
def encoded(trained):
    return trained.encode_corpus(make_scenes(train=2, val=2, test=5, texts=2).split("test"))


def first_caption(encoded, row):
    return encoded.corpus.texts[int(np.argmax(encoded.text_groups == encoded.image_groups[row]))]


def test_each_image_has_the_words_of_its_first_caption(trained, encoded):
    section = word_importance_section(trained, encoded, [3, 1])
    assert [photo.name for photo in section.photos] == [encoded.corpus.image_ids[row] for row in (3, 1)]
    for photo, row in zip(section.photos, (3, 1), strict=True):
        found = trained.explain(encoded.images[row], first_caption(encoded, row))
        assert photo.score == found.score
        assert photo.words == caption_words(found)
        assert photo.picture.startswith("data:image/")


def test_a_caption_without_a_known_word_is_replaced_by_the_next(trained, encoded):
    texts = list(encoded.corpus.texts)
    own = np.flatnonzero(encoded.text_groups == encoded.image_groups[2])
    texts[own[0]] = "zebra unicorn"
    first = word_importance_section(trained, replace(encoded, corpus=replace(encoded.corpus, texts=texts)), [2])
    assert first.photos[0].words == caption_words(trained.explain(encoded.images[2:3], texts[own[1]]))
    for row in own:
        texts[row] = "zebra"
    nothing = replace(encoded, corpus=replace(encoded.corpus, texts=texts))
    assert word_importance_section(trained, nothing, [2]) is None
    assert len(word_importance_section(trained, nothing, [2, 0]).photos) == 1
    assert word_importance_section(trained, replace(encoded, corpus=None), [0]) is None


def test_a_corpus_without_pictures_still_has_words(trained, encoded):
    without = replace(encoded, corpus=replace(encoded.corpus, pictures=None))
    assert word_importance_section(trained, without, [0]).photos[0].picture is None


def of(*importances):
    words = tuple(WordImportance(place, f"w{place}", each) for place, each in enumerate(importances))
    return caption_words(Explanation("-", 0.5, words))


def test_the_three_most_important_words_are_marked():
    found = of(0.1, 0.4, None, -0.8, 0.2, 0.3)
    assert [word.is_top for word in found] == [False, True, False, False, True, True]
    assert [word.relative for word in found] == pytest.approx([0.125, 0.5, None, -1.0, 0.25, 0.375])
    assert found[2] == CaptionWord("w2")
    assert [word.is_top for word in of(0.1, 0.0, -0.2)] == [True, False, False]  # the others do not help
    assert [word.relative for word in of(0.0, 0.0)] == [0.0, 0.0]
