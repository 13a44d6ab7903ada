"""Training that starts from a pretrained pair: heads on stored features, low-rank factors, last blocks, own lists."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from diptych.data.open import open_corpus
from diptych.errors import DiptychError
from diptych.evaluation.runs import evaluate
from diptych.features import extract
from diptych.model import Model
from diptych.report.baselines import compare_with_baselines, open_baselines
from diptych.training.inputs import text_features
from diptych.training.recipe_loader import load_recipe
from diptych.training.train import train
from support.runs import epoch_lines

LESS_USUAL = [pytest.param(kind, marks=pytest.mark.long) for kind in ("siglip", "siglip2")]
FEW = ("stage.1.epochs=1", "stage.1.batches.size=16")
WAYS = {
    "heads": ("adapt-heads", "stage.1.head.hidden=8"),
    "lora": ("adapt-lora", "stage.1.lora.rank=2"),
    "last-blocks": ("adapt-last-blocks",),
}


@pytest.fixture(scope="module")
def corpus():
    return open_corpus("scenes:train=16,val=5,test=5,texts=2")


@pytest.fixture
def adapt(corpus, pair_folder, tmp_path):
    def adapt(kind, way, *changes, into="run"):
        name, *own = WAYS[way]
        recipe = load_recipe(name, [f"stage.1.start={pair_folder(kind)}", *FEW, *own, *changes])
        train(recipe, corpus, tmp_path / into, device="cpu", workers=0, features=tmp_path / "features")
        return tmp_path / into

    return adapt


@pytest.mark.parametrize("kind", ["open_clip", "clip", *LESS_USUAL])
@pytest.mark.parametrize("way", WAYS)
def test_a_pair_can_be_adapted(kind, way, adapt, pair_folder, corpus):
    run = adapt(kind, way, "stage.1.interpolate=[1.0]", "stage.1.include_start=false")
    start, adapted = Model.load(pair_folder(kind), "cpu").matcher, Model.load(run, "cpu").matcher
    base = adapted.base if way == "heads" else adapted
    moved = {name for name, tensor in base.state_dict().items() if not torch.equal(tensor, start.state_dict()[name])}
    if way == "heads":
        assert not moved
        return
    assert any(name.startswith("image.") for name in moved)
    assert any(name.startswith("text.") for name in moved)
    first = [name for name in start.state_dict() if ".0." in name and ("resblocks" in name or "layers" in name)]
    assert first
    assert moved.isdisjoint(first) == (way == "last-blocks")


@pytest.mark.parametrize("kind", ["clip", pytest.param("open_clip", marks=pytest.mark.long), *LESS_USUAL])
def test_a_pair_is_adapted_in_half_precision(kind, adapt):
    plain = epoch_lines(adapt(kind, "lora"))[-1]
    rounded = epoch_lines(adapt(kind, "lora", "stage.1.precision=float16", into="half"))[-1]
    assert rounded["loss"] == pytest.approx(plain["loss"], rel=0.03)
    assert rounded["loss"] != plain["loss"]


def test_heads_read_features_that_are_computed_once(adapt, tmp_path, monkeypatch):
    first = adapt("siglip", "heads")
    assert [folder.name for folder in (tmp_path / "features").glob("pair-*")] == ["pair-siglip-whole-bicubic-full"]
    assert list((tmp_path / "features" / "texts").glob("pairtexttower-*.npy"))
    monkeypatch.setattr(extract._Network, "rows", None)
    monkeypatch.setattr(text_features, "put_features", None)
    again = adapt("siglip", "heads", into="again")
    weights = [Model.load(run, "cpu").matcher.state_dict() for run in (first, again)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_the_start_is_measured_first_and_beside_the_run(adapt, pair_folder, corpus, tmp_path):
    run = adapt("clip", "heads")
    start = evaluate(pair_folder("clip"), corpus, "test", device="cpu", features=None, workers=0)
    shutil.rmtree(tmp_path / "features")
    encoded = Model.load(run, "cpu").encode_corpus(corpus.split("test"), 0)
    result = evaluate(run, corpus, "test", device="cpu", features=None, workers=0)
    baselines = open_baselines(run, "cpu")
    compared = compare_with_baselines(run, encoded, result, baselines, workers=0)
    (baseline,) = [each for each in compared.baselines if "start" in each.roles]
    assert baseline.name == "clip"
    assert baseline.result.metrics.to_json() == start.metrics.to_json()


def test_a_pair_mines_the_negatives_that_it_then_trains_on(adapt, tmp_path):
    objective = '{ name = "quintuplet", adaptive = "offline", alpha = 0.3, beta = 1.5 }'
    lists = ("stage.1.offline.lists=start", "stage.1.offline.top_texts=8", "stage.1.offline.top_images=4")
    run = adapt("open_clip", "heads", f"stage.1.objective={objective}", *lists)
    assert Model.load(run, "cpu").embedding_dim == 16


def test_the_run_needs_the_pair_no_longer(pairs, corpus, tmp_path):
    folder = pairs.clip_folder(tmp_path / "pair")
    recipe = load_recipe("adapt-last-blocks", [f"stage.1.start={folder}", *FEW])
    train(recipe, corpus, tmp_path / "run", device="cpu", workers=0, features=tmp_path / "features")
    shutil.rmtree(folder)
    vectors = Model.load(tmp_path / "run", "cpu").encode_texts(["a red circle"])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_a_recipe_may_have_the_pair_as_its_model(pair_folder, corpus, tmp_path):
    file = tmp_path / "own.toml"
    stage = (
        '[[stage]]\nepochs = 1\ntrainable = ["last:1"]\nobjective = { name = "contrastive" }\nbatches = { size = 16 }\n'
    )
    file.write_text(f'[model]\nname = "pair"\nmodel = "{pair_folder("siglip")}"\n\n{stage}')
    train(load_recipe(str(file)), corpus, tmp_path / "run", device="cpu", workers=0, features=tmp_path / "features")
    assert Model.load(tmp_path / "run", "cpu").matcher.settings.name == "pair"


def test_a_start_that_cannot_be_used_is_one_sentence(corpus, tmp_path):
    (tmp_path / "model.pt").touch()
    for start, words in ((tmp_path, "a pickled checkpoint"), ("open_clip:ViT-B-3", "no model 'ViT-B-3'")):
        recipe = load_recipe("adapt-heads", [f"stage.1.start={start}"])
        with pytest.raises(DiptychError, match=words):
            train(recipe, corpus, tmp_path / "run", device="cpu", workers=0, features=Path(tmp_path, "features"))
    assert not (tmp_path / "run").exists()
