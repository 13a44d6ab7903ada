from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import normalize

from diptych.data.corpus import Corpus, Features
from diptych.errors import ScoreError
from diptych.evaluation.protocols import batch_statistics
from diptych.evaluation.protocols.batch_statistics import encode_with_batch_statistics
from diptych.model import Model
from diptych.models.matchers.vse import VSESettings
from diptych.models.matchers.vsrn import VSRNSettings
from diptych.models.tower import Tokens
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.region.features import RegionFeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.text.vocabulary import Vocabulary

IMAGES, SIZE, JOINT = 37, 6, 5


def corpus(shape=(SIZE,)):
    random = np.random.default_rng(0)
    groups = np.repeat(np.arange(IMAGES), 2)
    words = ["red", "blue", "round", "small", "box", "ball"]
    texts = [" ".join(random.choice(words, random.integers(1, 7))) for _ in groups]
    values = random.normal(3, 2, (IMAGES, *shape)).astype(np.float32)
    splits = np.full(IMAGES, "test"), np.full(len(groups), "test")
    ids = [f"{number}.jpg" for number in range(IMAGES)]
    return Corpus("c", ids, np.arange(IMAGES), splits[0], texts, groups, splits[1], features=Features([values]))


def normalised(inputs, *layers):
    """Layers of a branch with running statistics that are no good."""
    made = []
    for layer in layers:
        made += [nn.Linear(inputs, layer), nn.BatchNorm1d(layer), nn.ReLU()]
        made[-2].running_mean.fill_(7)
        made[-2].running_var.fill_(3)
        inputs = layer
    return nn.Sequential(*made[:-1])


def run(image_layers=(JOINT,), text_layers=(JOINT,)):
    torch.manual_seed(0)
    vocabulary = Vocabulary.from_texts(corpus().texts, 1)
    text = GRUSettings(hidden=8, word=4)
    settings = VSESettings(
        joint=JOINT, text=text, image=FeatureSettings(shape=(SIZE,)), text_projection=True, words=len(vocabulary)
    )
    matcher = settings.build()
    matcher.project = normalised(matcher.image.size, *image_layers)
    matcher.project_text = normalised(8, *text_layers)
    return Model.from_matcher(matcher.eval(), vocabulary, torch.device("cpu"))


DEEPEST = ((8, 7, JOINT), (6, JOINT))


@pytest.mark.parametrize(
    ("layers", "chunks"),
    [
        (((JOINT,), (JOINT,)), (5, 7)),
        (((JOINT,), (JOINT,)), (1, 1)),
        (((7, JOINT), (JOINT,)), (5, 7)),
        (DEEPEST, (5, 7)),
        (DEEPEST, (64, 512)),
    ],
)
def test_encodings_are_those_of_one_batch_whatever_the_chunks(monkeypatch, chunks, layers):
    monkeypatch.setattr("diptych.models.engines.torch_engine.IMAGES_AT_ONCE", chunks[0])
    monkeypatch.setattr("diptych.models.engines.torch_engine.TEXTS_AT_ONCE", chunks[1])
    data, trained = corpus(), run(*layers)
    encoded = encode_with_batch_statistics(trained, data)
    matcher = run(*layers).matcher  # the same weights; in training mode it normalises by the batch itself
    with torch.no_grad():
        images = matcher.image(torch.from_numpy(data.features[np.arange(IMAGES)]))
        ids, lengths = trained.vocabulary.encode_all(data.texts).batch(np.arange(len(data.texts)))
        texts = matcher.text(Tokens(torch.from_numpy(ids), torch.from_numpy(lengths)))
        matcher.train()
        torch.testing.assert_close(encoded.images, normalize(matcher.project(images)), atol=5e-5, rtol=0)
        torch.testing.assert_close(encoded.texts, normalize(matcher.project_text(texts)), atol=5e-5, rtol=0)


def test_the_run_is_not_changed_and_the_copy_scores():
    trained = run()
    before = {name: value.clone() for name, value in trained.matcher.state_dict().items()}
    encoded = encode_with_batch_statistics(trained, corpus())
    for name, value in trained.matcher.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert not trained.matcher.training
    assert encoded.encoded_by is not trained.matcher
    assert not torch.allclose(encoded.images, trained.encode_corpus(corpus()).images, atol=0.1)
    layer = encoded.encoded_by.project[1]
    inputs = trained.matcher.project[0](torch.from_numpy(corpus().features[np.arange(IMAGES)])).detach()
    torch.testing.assert_close(layer.running_mean, inputs.mean(0))
    torch.testing.assert_close(layer.running_var, inputs.var(0, unbiased=False))
    assert not encoded.encoded_by.project[1]._forward_pre_hooks


def test_two_passes_suffice_if_no_layer_lies_behind_another(monkeypatch):
    passes = []
    encode = Model.encode_corpus
    monkeypatch.setattr(Model, "encode_corpus", lambda *given: passes.append(1) or encode(*given))
    encode_with_batch_statistics(run(), corpus())
    assert len(passes) == 2
    encode_with_batch_statistics(run((7, JOINT)), corpus())
    assert len(passes) == 2 + 3


def test_padding_is_not_part_of_the_batch():
    data = corpus((3, SIZE))
    data.features._parts[0][::4, 1:] = 0  # some images have one region only
    vocabulary = Vocabulary.from_texts(data.texts, 1)
    torch.manual_seed(0)
    image = RegionFeatureSettings(shape=(3, SIZE))
    text = GRUSettings(hidden=4, word=4)
    matcher = VSRNSettings(joint=4, image=image, text=text, words=len(vocabulary)).build().eval()
    layers = [layer for layer in matcher.modules() if isinstance(layer, nn.BatchNorm1d)]
    for layer in layers:
        nn.init.ones_(layer.weight)
    encoded = encode_with_batch_statistics(Model.from_matcher(matcher, vocabulary, torch.device("cpu")), data)
    copied = [layer for layer in encoded.encoded_by.modules() if isinstance(layer, nn.BatchNorm1d)]
    counts = []
    for layer in copied:
        layer.register_forward_pre_hook(lambda layer, given: counts.append((layer, given[0])))
    with torch.no_grad():
        encoded.encoded_by.encode_images(torch.from_numpy(data.features[np.arange(IMAGES)]))
    assert len(counts) >= 2
    for layer, rows in counts:
        assert len(rows) == 3 * IMAGES - 2 * len(range(0, IMAGES, 4))
        torch.testing.assert_close(layer.running_mean, rows.mean(0), atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(layer.running_var, rows.var(0, unbiased=False), atol=1e-5, rtol=1e-4)


def test_a_model_without_batch_normalisation_is_refused():
    trained = run()
    trained.matcher.project = trained.matcher.project[0]
    trained.matcher.project_text = trained.matcher.project_text[0]
    with pytest.raises(ScoreError, match=r"^a model 'vse' has no batch normalisation; use the running statistics"):
        encode_with_batch_statistics(trained, corpus())


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.booleans(), st.floats(-1e6, 1e6))
def test_parts_give_the_statistics_of_all_rows(sizes, places, offset):
    shape = (3, 2) if places else (3,)
    rows = torch.randn(sum(sizes) + 2, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) + offset
    record = batch_statistics.RunningStatistics()
    for part in torch.split(rows, [*sizes, 2]):
        record.add(part)
    axes = [0, 2] if places else [0]
    torch.testing.assert_close(record.mean, rows.mean(axes))
    torch.testing.assert_close(record.squares / record.count, rows.var(axes, unbiased=False), rtol=1e-9, atol=1e-9)
