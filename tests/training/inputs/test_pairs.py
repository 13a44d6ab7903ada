"""The data of a stage on images and texts: its batches, what it leaves out, and its validation."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from diptych.data.sampling.negatives import DrawnNegatives
from diptych.data.sampling.neighbours import QueryDirections
from diptych.errors import DataError
from diptych.features.readers import FeatureReader
from diptych.model import Model
from diptych.models.matchers.vse import VSESettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.objectives.hinge import Hinge
from diptych.text.vocabulary import Vocabulary
from diptych.training.inputs.images import StageImages
from diptych.training.inputs.pairs import ImageTextData
from diptych.training.inputs.texts import StageTexts
from diptych.training.recipe import Batches, Stage
from support.corpora import with_features

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def features(corpus):
    return with_features(corpus)


@pytest.fixture
def stage_data(features, tmp_path):
    """Makes the data of a stage with some batches; `known` says which training texts have a known word."""
    vocabulary = Vocabulary.from_texts(features.texts, 1)
    tower = FeatureSettings(shape=(12,))
    matcher = VSESettings(joint=5, text=GRUSettings(hidden=5, word=3), image=tower, words=len(vocabulary)).build()
    model = Model.from_matcher(matcher.eval(), vocabulary, CPU)

    def make(known=None, extensions=(), reader=StageImages, **batches):
        stage = Stage(objective=Hinge(), batches=Batches(size=16, **batches))
        images = reader(model, stage, tmp_path, 0, lambda *_: None, lambda _: None)
        texts = StageTexts(model, tmp_path, lambda *_: None, lambda _: None)
        if known is not None:
            shared = {"table": texts.table, "features": texts.features, "inputs": texts.inputs}
            texts = SimpleNamespace(known=lambda _: np.array(known), **shared)
        return ImageTextData(features, features.split("train"), stage, (0, 1), images, texts, extensions=extensions)

    return make


def test_batches_hold_matching_images_and_texts_of_the_training_data(features, stage_data):
    data, train = stage_data(), features.split("train")
    batches = [data.reader.read(pairs) for pairs in data.sampler.epoch(1)]
    assert len(batches) == len(data.sampler) == 3
    assert sum(map(len, batches)) == len(train.texts)
    rows = train.features[np.arange(len(train.image_ids))]
    for batch in batches:
        for pair, group in enumerate(batch.groups):
            (image,) = np.flatnonzero(train.image_groups == group)
            np.testing.assert_array_equal(batch.images[batch.image_of[pair]], rows[image])
        assert list(batch.extras) == []


def test_batches_are_extended_as_the_recipe_says(stage_data):
    pairs = stage_data(rivals=2).sampler.epoch(1)[0]
    assert pairs.extras[DrawnNegatives].texts.shape == (16, 2)
    pairs = stage_data(neighbours=True).sampler.epoch(1)[0]
    assert len(pairs.texts) > 16
    assert len(pairs.extras[QueryDirections].is_query) == len(pairs.texts)


def test_texts_without_a_known_word_are_left_out(features, stage_data):
    train = features.split("train")
    data = stage_data(known=range(3, len(train.texts)))
    seen = sum(len(data.reader.read(pairs)) for pairs in data.sampler.epoch(1))
    assert seen == len(train.texts) - 3


def test_offline_negatives_cannot_be_combined_with_texts_that_are_left_out(stage_data):
    with pytest.raises(DataError, match="draws from lists of all training texts"):
        stage_data(known=range(5), extensions=[object()])


def test_validation_measures_recall_in_both_directions(stage_data):
    data, calls = stage_data(), []
    metrics = data.validate(lambda *progress: calls.append(progress))
    recalls = [metrics[f"{side}_r{cutoff}"] for side in ("i2t", "t2i") for cutoff in (1, 5, 10)]
    assert metrics["rsum"] == pytest.approx(sum(recalls))
    assert calls
    assert data.describe({"rsum": 301.26, "i2t_r1": 40.04, "t2i_r1": 30.0}) == "rsum 301.3  R@1 40.0 / 30.0"


def test_a_skipped_image_is_named_with_the_reason(features, stage_data):
    train = features.split("train")
    stored = FeatureReader(train.features, np.arange(1, len(train.image_ids)), {0: "broken.jpg: truncated"})

    class Damaged(StageImages):
        def for_training(self, corpus):
            return stored

    assert stage_data(reader=Damaged).why_skipped(0) == (train.image_ids[0], "broken.jpg: truncated")
