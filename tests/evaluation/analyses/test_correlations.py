from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from diptych.data.corpus import Corpus, Features
from diptych.data.formats.scenes import make_scenes
from diptych.errors import ScoreError
from diptych.evaluation.analyses import correlations as module
from diptych.evaluation.analyses.correlations import correlations, features_before_training, mean_absolute, pearson
from diptych.features.crops import fixed_crops
from diptych.features.readers import StoreOptions, image_reader
from diptych.model import Model
from diptych.models.encoded_corpus import EncodedCorpus
from diptych.models.matchers.dual_path import DualPathSettings
from diptych.models.matchers.scan import SCANSettings
from diptych.models.matchers.vse import VSESettings
from diptych.models.towers.image.backbone import BackboneSettings
from diptych.models.towers.image.cnn import CNNSettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.image.views import ViewsSettings
from diptych.models.towers.region.backbone import RegionBackboneSettings
from diptych.models.towers.text.cnn import TextCNNSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.text.vocabulary import Vocabulary

TEXT = GRUSettings(hidden=8, word=4)


@given(arrays(np.float32, (5, 7), elements=st.integers(-4, 4)))
def test_pearson_equals_that_of_numpy(vectors):
    varied = [row for row in range(5) if len(set(vectors[row])) > 1]
    found = pearson(vectors)
    assert np.allclose(found[np.ix_(varied, varied)], np.corrcoef(vectors[varied]) if varied else 0)
    others = [row for row in range(5) if row not in varied]
    assert not found[others][:, varied].any()
    assert np.diag(found).tolist() == [1] * 5


def with_stores(model, folder):
    return Model.from_matcher(model.matcher, model.vocabulary, model.device, stores=folder)


def test_the_mean_leaves_out_the_diagonal():
    matrix = np.array([[1, 0.5, -0.2], [0.5, 1, 0.1], [-0.2, 0.1, 1]])
    assert mean_absolute(matrix) == pytest.approx((0.5 + 0.2 + 0.1) / 3)


@pytest.fixture(scope="module")
def corpus():
    return make_scenes(train=2, val=2, test=9, texts=2).split("test")


def with_features(corpus: Corpus, shape):
    values = np.random.default_rng(0).normal(size=(len(corpus.image_ids), *shape)).astype(np.float32)
    if len(shape) == 2:
        values[0, 1:] = 0  # an image with one region only
    return replace(corpus, pictures=None, features=Features([values])), values


def trained_on(corpus, settings, stores=None):
    vocabulary = Vocabulary.from_texts(corpus.texts, 1)
    torch.manual_seed(0)
    matcher = settings.model_copy(update={"words": len(vocabulary)}).build().eval()
    return Model.from_matcher(matcher, vocabulary, torch.device("cpu"), stores=stores)


def test_the_features_of_a_corpus_are_those_before_training(corpus):
    stored, values = with_features(corpus, (6,))
    trained = trained_on(stored, VSESettings(joint=8, text=TEXT, image=FeatureSettings(shape=(6,))))
    encoded = trained.encode_corpus(stored)
    found = correlations(trained, encoded, count=5, seed=3)
    rows = [list(stored.image_ids).index(name) for name in found.images]
    assert len(set(rows)) == 5
    assert rows != sorted(rows)
    assert np.allclose(found.before, np.corrcoef(values[rows]), atol=1e-6)
    assert np.allclose(found.after, np.corrcoef(encoded.images[rows].numpy()), atol=1e-6)
    assert found.to_json() == {
        "images": 5,
        "before": mean_absolute(found.before),
        "after": mean_absolute(found.after),
    }
    assert correlations(trained, encoded, count=5, seed=3).images == found.images
    assert correlations(trained, encoded, count=5, seed=4).images != found.images
    assert len(correlations(trained, encoded).images) == 9  # fewer than a hundred: all


def test_sets_are_averaged_without_padding(corpus):
    stored, values = with_features(corpus, (3, 6))
    trained = trained_on(stored, VSESettings(joint=8, text=TEXT, image=FeatureSettings(shape=(3, 6))))
    mean = np.concatenate([values[:1, 0], values[1:].mean(1)])
    assert np.allclose(features_before_training(trained, stored), mean, atol=1e-6)


def test_a_network_trained_from_scratch_has_no_before(corpus):
    trained = trained_on(corpus, VSESettings(joint=8, text=TEXT, image=CNNSettings(pixels=32, width=2)))
    found = correlations(trained, trained.encode_corpus(corpus), count=4)
    assert found.before is None
    assert found.to_json()["before"] is None
    assert found.after.shape == (4, 4)


@pytest.fixture
def tiny(small_regions, corpus, monkeypatch):
    """Every backbone is tiny, and its original weights can be loaded."""
    with small_regions(corpus):
        from diptych.models.towers import pretrained

        monkeypatch.setattr(module, "load_backbone", pretrained.load_backbone)
        yield pretrained.load_backbone()


def new_store(folder):
    return StoreOptions(folder, torch.device("cpu"), workers=0, create=True)


def test_before_is_the_original_backbone_even_if_it_was_fine_tuned(tiny, corpus, tmp_path, monkeypatch):
    trained = trained_on(corpus, VSESettings(joint=8, text=TEXT, image=BackboneSettings(crops="10C")))
    with torch.no_grad():
        trained.matcher.pretrained.scale.neg_()  # fine-tuned
    found = features_before_training(trained, corpus)
    for row in (0, 8):
        squares = fixed_crops(corpus.pictures[row].load(), trained.matcher.image_input.crops, 32)
        assert np.allclose(found[row], tiny(torch.from_numpy(squares)).mean(0).detach(), atol=1e-5)
    image_reader(corpus, trained.matcher.image_input, tiny, store=new_store(tmp_path))
    monkeypatch.setattr(type(tiny), "forward", None)  # nothing is computed again
    assert np.allclose(features_before_training(with_stores(trained, tmp_path), corpus), found, atol=1e-6)


def test_the_mean_of_a_grid_is_the_same_from_pixels_and_from_the_store(tiny, corpus, tmp_path):
    trained = trained_on(corpus, SCANSettings(joint=8, image=RegionBackboneSettings()))
    found = features_before_training(trained, corpus)
    assert found.shape == (9, 6)
    wanted = trained.matcher.image_input
    image_reader(corpus, wanted, tiny, store=new_store(tmp_path))
    stored = features_before_training(with_stores(trained, tmp_path), corpus)
    assert np.allclose(stored, found, atol=2e-3)  # the store keeps half floats
    encoded = trained.encode_corpus(corpus)
    after = correlations(trained, encoded, count=9).after
    assert after.shape == (9, 9)


def test_the_mean_of_views_is_the_same_from_pixels_and_from_the_store(tiny, corpus, tmp_path):
    text = TextCNNSettings(word=4, depth="small", length=8)
    trained = trained_on(corpus, DualPathSettings(image=ViewsSettings(), text=text, hidden=8, joint=8))
    found = features_before_training(trained, corpus)
    assert found.shape == (9, 6)
    image_reader(corpus, trained.matcher.image_input, tiny, store=new_store(tmp_path))
    stored = with_stores(trained, tmp_path)
    assert np.allclose(features_before_training(stored, corpus), found, atol=1e-3)
    assert correlations(stored, trained.encode_corpus(corpus), count=9).before.shape == (9, 9)


def test_refusals(corpus):
    stored, _ = with_features(corpus, (6,))
    trained = trained_on(stored, VSESettings(joint=8, text=TEXT, image=FeatureSettings(shape=(6,))))
    encoded = trained.encode_corpus(stored)
    with pytest.raises(ScoreError, match="at least two images, not 1"):
        correlations(trained, encoded, count=1)
    alone = EncodedCorpus(
        encoded.settings, encoded.images, encoded.texts, encoded.image_groups, encoded.text_groups, "x"
    )
    with pytest.raises(ScoreError, match="need the corpus"):
        correlations(trained, alone)
