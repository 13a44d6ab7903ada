from __future__ import annotations

import base64
import io
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from diptych.data.corpus import Features
from diptych.data.formats.scenes import make_scenes
from diptych.errors import DiptychError
from diptych.evaluation.analyses.correlations import correlations, mean_absolute
from diptych.model import Model
from diptych.models.matchers.vse import VSESettings
from diptych.models.towers.image.cnn import CNNSettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.report.sections import correlations as module
from diptych.report.sections.correlations import correlation_section, heat_map_uri
from diptych.text.vocabulary import Vocabulary


def pixels(uri):
    image = Image.open(io.BytesIO(base64.b64decode(uri.removeprefix("data:image/png;base64,"))))
    return np.asarray(image.convert("RGB")).astype(int)


def test_colours_range_from_minus_one_over_zero_to_one():
    found = pixels(heat_map_uri(np.array([[1.0, 0.0], [-1.0, 0.5]])))
    assert found.shape == (2, 2, 3)
    assert found[0].tolist() == [[178, 62, 12], [250, 249, 247]]
    assert found[1, 0].tolist() == [33, 82, 158]
    assert abs(found[1, 1] - (found[0, 0] + found[0, 1]) / 2).max() <= 2  # half way


@pytest.fixture(scope="module")
def corpus():
    made = make_scenes(train=2, val=2, test=7, texts=2).split("test")
    values = np.random.default_rng(0).normal(size=(7, 6)).astype(np.float32)
    return replace(made, features=Features([values]))


def trained_on(corpus, image):
    vocabulary = Vocabulary.from_texts(corpus.texts, 1)
    torch.manual_seed(0)
    settings = VSESettings(joint=8, text=GRUSettings(hidden=8, word=4), image=image, words=len(vocabulary))
    return Model.from_matcher(settings.build().eval(), vocabulary, torch.device("cpu"))


def test_both_maps_show_the_measured_correlations(corpus):
    trained = trained_on(corpus, FeatureSettings(shape=(6,)))
    encoded = trained.encode_corpus(corpus)
    found = correlations(trained, encoded)
    section = correlation_section(trained, encoded)
    assert [one.name for one in section.maps] == ["Before", "After"]
    assert [one.mean for one in section.maps] == [mean_absolute(found.before), mean_absolute(found.after)]
    assert pixels(section.maps[0].picture).tolist() == pixels(heat_map_uri(found.before)).tolist()
    assert "every two of 7 images, computed from the features of the corpus" in section.note


def test_without_features_before_training_there_is_no_section(corpus):
    trained = trained_on(corpus, CNNSettings(pixels=32, width=2))
    assert correlation_section(trained, trained.encode_corpus(corpus)) is None
    stored = trained_on(corpus, FeatureSettings(shape=(6,)))
    one = corpus.take(np.arange(1), np.flatnonzero(corpus.text_groups == corpus.image_groups[0]))
    assert correlation_section(stored, stored.encode_corpus(one)) is None


def test_missing_weights_are_explained_in_the_section(corpus, monkeypatch):
    def fails(*_):
        raise DiptychError("backbone 'resnet152': its pretrained weights cannot be loaded")

    monkeypatch.setattr(module, "correlations", fails)
    trained = trained_on(corpus, FeatureSettings(shape=(6,)))
    section = correlation_section(trained, trained.encode_corpus(corpus))
    assert not section.maps
    assert section.note.endswith("not available: backbone 'resnet152': its pretrained weights cannot be loaded")
