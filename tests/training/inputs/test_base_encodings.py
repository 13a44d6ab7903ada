"""What a frozen base computes once per stage: when it is, for which images and texts, and with the same result."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from diptych.data.formats.scenes import make_scenes
from diptych.features.readers import FeatureReader
from diptych.model import Model
from diptych.models.lora import LoRASettings
from diptych.models.matchers.projected import Head, Projected
from diptych.models.matchers.vse import VSE, VSESettings
from diptych.models.matchers.vsrn import VSRNSettings
from diptych.models.text_inputs import TextInputs
from diptych.models.towers import pretrained
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.region.features import RegionFeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.text.vocabulary import Vocabulary
from diptych.training.engine.trainable import set_trainable
from diptych.training.inputs import base_encodings
from diptych.training.inputs.base_encodings import BaseEncodings
from diptych.training.train import train
from support.backbones import LayeredBackbone
from support.callbacks import RecordingCallback
from support.corpora import with_features
from support.recipes import BASE
from support.runs import assert_same_run, epoch_lines, last_weights, load_weights

CPU = torch.device("cpu")
HEADS = ("head_images", "head_texts")
TEXT = GRUSettings(hidden=5, word=3)
FEATURES = FeatureSettings(shape=(12,))
REGIONS = RegionFeatureSettings(shape=(3, 12))


@pytest.fixture(scope="module")
def scenes():
    return make_scenes(train=12, val=4, test=1, texts=2)


@pytest.fixture(scope="module")
def corpus(scenes):
    return with_features(scenes)


@pytest.fixture(scope="module")
def vocabulary(corpus):
    return Vocabulary.from_texts(corpus.texts, 1)


@pytest.fixture
def encodings(vocabulary):
    """Those of a stage that trains some parts of a model."""

    def make(parts=HEADS, base=VSESettings, image=FEATURES, lora=None, items=10, heads=True, raw=False, **stage):
        torch.manual_seed(0)
        matcher = base(joint=5, text=TEXT, image=image, words=len(vocabulary)).build()
        matcher = Projected(matcher, Head(hidden=7, output=4, normalise_input=not raw)) if heads else matcher
        set_trainable(matcher, parts, lora)
        model = Model.from_matcher(matcher, vocabulary, CPU)
        settings = SimpleNamespace(**{"crops": None, "phrases": None, **stage})
        return BaseEncodings.for_stage(model, settings, items, 0, lambda *_: None)

    return make


def test_heads_alone_are_trained_on_them(encodings):
    made = encodings()
    assert isinstance(made.base, VSE)
    assert made.encoder.embedding_dim == 4
    assert encodings(parts=(), lora=LoRASettings(rank=2, parts=("head_texts",))) is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"parts": ("all",)},
        {"parts": (*HEADS, "base.project")},
        {"parts": HEADS, "lora": LoRASettings(rank=2, parts=("base.project",))},
        {"crops": "RC"},
        {"phrases": object()},
        {"heads": False, "parts": ("project",)},
        {"base": VSRNSettings, "image": REGIONS},
        {"items": base_encodings.MAX_BYTES // (5 * 4) + 1},
    ],
    ids=["all", "projection", "factors", "random crops", "phrases", "no heads", "terms of the base", "memory"],
)
def test_what_may_change_or_does_not_fit_is_computed_at_every_step(changes, encodings):
    assert encodings(**changes) is None


def test_as_much_as_fits(encodings):
    assert encodings(items=base_encodings.MAX_BYTES // (5 * 4)) is not None


def test_images_are_those_of_the_base_and_unreadable_ones_stay_skipped(corpus, encodings):
    made, count = encodings(), len(corpus.image_ids)
    reader = made.images(corpus, FeatureReader(corpus.features, np.arange(1, count), {0: "broken.jpg: truncated"}))
    rows = np.array([3, 0, 5, 1])
    values, readable = reader.read(rows)
    assert readable.tolist() == [True, False, True, True]
    assert reader.skipped == {0: "broken.jpg: truncated"}
    # Row k of the features belongs to the readable image k + 1.
    expected = made.base.encode_images(torch.from_numpy(corpus.features[rows[readable] - 1]))
    torch.testing.assert_close(torch.from_numpy(values), expected.detach(), rtol=0, atol=1e-6)


def test_heads_that_read_unnormalised_embeddings_get_them(corpus, vocabulary, encodings):
    made = encodings(raw=True)
    vse = made.model.matcher.base
    values, _ = made.images(corpus, FeatureReader(corpus.features)).read(np.array([3, 0]))
    rows = torch.from_numpy(corpus.features[np.array([3, 0])])
    torch.testing.assert_close(torch.from_numpy(values), vse.project(vse.image(rows)).detach(), rtol=0, atol=1e-6)
    texts = TextInputs(vocabulary.encode_all(corpus.texts[:2]))
    expected = vse.text(texts.tokens(np.arange(2), CPU)).detach()
    torch.testing.assert_close(torch.from_numpy(made.texts(texts)[np.arange(2)]), expected, rtol=0, atol=1e-6)


def test_each_distinct_text_is_encoded_once(corpus, vocabulary, encodings, monkeypatch):
    made, encoded = encodings(), []
    monkeypatch.setattr(base_encodings, "TEXTS_AT_ONCE", 4)
    encode = made.base.encode_texts
    monkeypatch.setattr(made.base, "encode_texts", lambda tokens: encoded.append(len(tokens.ids)) or encode(tokens))
    texts = [*corpus.texts[:9], *corpus.texts[:3]]
    features = made.texts(TextInputs(vocabulary.encode_all(texts)))
    assert sum(encoded) == len(set(texts)) < len(texts)
    monkeypatch.undo()
    for number, text in enumerate(texts):
        tokens = TextInputs(vocabulary.encode_all([text])).tokens(np.array([0]), CPU)
        expected = made.base.encode_texts(tokens).detach()
        torch.testing.assert_close(torch.from_numpy(features[np.array([number])]), expected, rtol=0, atol=1e-6)


# The same training with them and without them

MODELS = {
    "features": """
[model]
name = "vse"
joint = 16
dropout = 0.5
image = { name = "features" }
text = { name = "words", word = 8, hidden = 16, dropout = 0.5 }
""",
    "photos": """
[model]
name = "vse"
joint = 16
image = { name = "backbone" }
text = { name = "gru", word = 8, hidden = 16 }
""",
    "pixels": """
[model]
name = "vse"
joint = 16
image = { name = "cnn", pixels = 32, width = 2 }
text = { name = "words", word = 8, hidden = 16 }
""",
}
# Not Adam, which turns the rounding errors of a gradient near zero into steps as large as any other.
STAGE = """
[[stage]]
start = "START"
include_start = true
head = { hidden = 12, residual = true }
trainable = ["head_images", "head_texts"]
epochs = 2
objective = { name = "contrastive", temperature = 0.1 }
batches = { size = 16 }
optimiser = { name = "sgd", rate = 0.5 }
"""
SHARES = ("stage.1.interpolate=[0.0, 0.5, 1.0]",)
PLAIN = ("stage.1.head={hidden=12, output=8, bias=false}", "stage.1.objective={name='mvn', temperature=0.2}")
OFFLINE = ("stage.1.objective={name='quintuplet'}", "stage.1.offline={lists='start', top_texts=6, top_images=3}")


@pytest.fixture(scope="module", autouse=True)
def small_layers():
    with pytest.MonkeyPatch.context() as patch:
        for name in ("build_backbone", "load_backbone"):
            patch.setattr(pretrained, name, lambda *_: LayeredBackbone().eval())
        yield


@pytest.fixture(scope="module")
def start(recipes, scenes, corpus, tmp_path_factory):
    """Data and a run to start from, by what its model reads; trained when first asked for."""
    folder, runs = tmp_path_factory.mktemp("starts"), {}

    def trained(name):
        if name not in runs:
            options = {"device": "cpu", "workers": 0, "features": folder / "features"}
            parts = "stage.1.trainable=['project', 'text']"
            data = corpus if name == "features" else scenes
            run = train(recipes(MODELS[name] + BASE, parts), data, folder / name, **options)
            runs[name] = data, run
        return runs[name]

    return trained


@pytest.fixture
def encoded_sizes(monkeypatch):
    """How many texts the base has encoded at each call."""
    sizes, encode = [], VSE.unnormalised_texts

    def encode_texts(self, tokens):
        sizes.append(len(tokens.ids))
        return encode(self, tokens)

    monkeypatch.setattr(VSE, "unnormalised_texts", encode_texts)
    return sizes


@pytest.mark.parametrize(
    ("reads", "changes"),
    [
        *((name, ()) for name in MODELS),
        ("features", ("stage.1.batches.chunk=5",)),
        ("features", SHARES),
        ("features", PLAIN),
        ("features", ("stage.1.head.normalise_input=false",)),
        ("features", OFFLINE),
        ("photos", ("stage.1.lora={rank=2, parts=['head_texts']}", "stage.1.trainable=['head_images']")),
    ],
    ids=[*MODELS, "chunks", "interpolated", "plain heads", "before normalisation", "offline", "factors of a head"],
)
def test_training_on_them_ends_with_the_same_weights(
    reads, changes, start, recipes, tmp_path, monkeypatch, encoded_sizes
):
    data, base = start(reads)
    recipe = recipes(STAGE.replace("START", str(base)), *changes)
    runs, calls = {}, {}
    for name, most in (("once", base_encodings.MAX_BYTES), ("each step", 0)):
        monkeypatch.setattr(base_encodings, "MAX_BYTES", most)
        options = {"device": "cpu", "workers": 0, "features": tmp_path / "features"}
        callback = RecordingCallback()
        encoded_sizes.clear()
        runs[name] = train(recipe, data, tmp_path / name.replace(" ", "-"), callbacks=[callback], **options)
        calls[name] = sum(encoded_sizes)
        assert any(what == "encodings" for what, _, _ in callback.preparations) == (name == "once")
    assert calls["once"] < calls["each step"]
    assert last_weights(runs["once"])["head_images.2.bias"].any(), "nothing was trained: this test would prove nothing"
    for load in (load_weights, last_weights):
        ours, expected = load(runs["once"]), load(runs["each step"])
        assert ours.keys() == expected.keys()
        for name, value in expected.items():
            assert (ours[name] - value).abs().max() <= 1e-5, name
    for ours, expected in zip(*(epoch_lines(run) for run in runs.values()), strict=True):
        assert ours["val"] == pytest.approx(expected["val"])
        assert ours.get("loss") == pytest.approx(expected.get("loss"), abs=1e-5, nan_ok=True)


def test_a_resumed_run_computes_them_again_and_ends_bit_for_bit_the_same(start, recipes, tmp_path):
    data, base = start("photos")
    recipe = recipes(STAGE.replace("START", str(base)), *SHARES, "stage.1.optimiser={name='adam', rate=0.005}")
    options = {"device": "cpu", "workers": 0, "features": tmp_path / "features"}
    whole = train(recipe, data, tmp_path / "whole", **options)
    with pytest.raises(KeyboardInterrupt):
        train(recipe, data, tmp_path / "run", callbacks=[RecordingCallback((3,))], **options)
    callback = RecordingCallback()
    train(recipe, data, tmp_path / "run", resume=True, callbacks=[callback], **options)
    assert any(what == "encodings" for what, _, _ in callback.preparations)
    assert_same_run(whole, tmp_path / "run")


def test_ctrl_c_while_they_are_computed_and_again(start, recipes, tmp_path):
    data, base = start("features")
    recipe = recipes(STAGE.replace("START", str(base)))
    options = {"device": "cpu", "workers": 0, "features": tmp_path / "features"}
    with pytest.raises(KeyboardInterrupt):
        train(recipe, data, tmp_path / "run", callbacks=[RecordingCallback(preparation="encodings")], **options)
    again, whole = (train(recipe, data, tmp_path / name, **options) for name in ("run", "whole"))
    assert all(torch.equal(value, load_weights(whole)[name]) for name, value in load_weights(again).items())
