"""The recipes that adapt a trained model: what they train, and any objective of the papers with each of them."""

import json

import pytest
from safetensors.torch import load_file

from diptych.data.formats.scenes import make_scenes
from diptych.errors import RecipeError
from diptych.model import Model
from diptych.models.towers import pretrained
from diptych.training.engine.checkpoint import snapshot_path
from diptych.training.recipe_loader import load_recipe
from diptych.training.train import train
from support.backbones import LayeredBackbone
from support.runs import epoch_lines

BASE = """
[model]
name = "vse"
joint = 12
image = { name = "backbone" }
text = { name = "words", word = 8, hidden = 12 }

[text]
threshold = 1

[[stage]]
epochs = 1
trainable = ["project", "text"]
objective = { name = "hinge", negatives = "sum" }
"""
RECIPES = ("adapt-heads", "adapt-lora", "adapt-last-blocks")
LAYERS = {"text.layers.0", "text.layers.3", "project"}
TRAINED = {
    "adapt-heads": {f"{side}.{layer}" for side in ("head_images", "head_texts") for layer in (0, 2)},
    "adapt-lora": {*(f"blocks.{block}.{layer}" for block in range(3) for layer in (0, 2)), *LAYERS},
    "adapt-last-blocks": {
        *(f"blocks.{block}.{layer}" for block in (1, 2) for layer in (0, 2)),
        *("norm", "text.words", *LAYERS),
    },
}
OBJECTIVES = {
    "contrastive": (),
    "max of hinges": ("stage.1.objective={name='hinge', negatives='max', margin=0.2}",),
    "ConVSE++": ("stage.1.objective={name='contrastive', negatives='max', temperature=0.1, margin=0.2}",),
    "AOQ": ("stage.1.objective={name='quintuplet'}", "stage.1.offline={lists='start', top_texts=6, top_images=3}"),
}


@pytest.fixture(scope="module", autouse=True)
def small_layers():
    with pytest.MonkeyPatch.context() as patch:
        for name in ("build_backbone", "load_backbone"):
            patch.setattr(pretrained, name, lambda *_: LayeredBackbone().eval())
        yield


@pytest.fixture(scope="module")
def corpus():
    return make_scenes(train=8, val=3, test=1, texts=2)


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    return tmp_path_factory.mktemp("features")


@pytest.fixture(scope="module")
def start(corpus, stores, tmp_path_factory):
    """A run to start from."""
    folder = tmp_path_factory.mktemp("start")
    (folder / "recipe.toml").write_text(BASE)
    recipe = load_recipe(str(folder / "recipe.toml"))
    return train(recipe, corpus, folder / "run", device="cpu", workers=0, features=stores)


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_each_recipe_takes_each_objective(name, objective, start, corpus, stores, tmp_path):
    changes = [f"stage.1.start={str(start)!r}", "stage.1.epochs=2", "stage.1.batches.size=8", *OBJECTIVES[objective]]
    changes += ["stage.1.lora.rank=2"] if name == "adapt-lora" else []  # the matrices are small
    recipe = load_recipe(name, changes)
    run = train(recipe, corpus, tmp_path / "run", device="cpu", workers=0, features=stores)
    lines = epoch_lines(run)
    assert [line["epoch"] for line in lines] == [0, 1, 2]
    assert lines[0]["val"] == pytest.approx(epoch_lines(start)[-1]["val"])  # zero-shot
    assert all(line["loss"] > 0 for line in lines[1:])
    assert json.loads((run / "best" / "metrics.json").read_text())["val"]["rsum"] >= lines[0]["val"]["rsum"]
    encoded = Model.load(run, "cpu").encode_corpus(corpus.split("test"))
    assert encoded.images.shape == (1, 12)
    assert trained_parts(run) == TRAINED[name]


def trained_parts(run):
    """The parts that the optimiser has a state for; factors of a matrix by its name."""
    names = (name.removeprefix("optimiser.") for name in load_file(snapshot_path(run)) if name.endswith(".exp_avg"))
    owners = {name.partition(".parametrizations")[0].partition(".weight")[0].partition(".bias")[0] for name in names}
    return {owner.removesuffix(".exp_avg").removeprefix("image.backbone.") for owner in owners}


@pytest.mark.parametrize("name", RECIPES)
def test_without_a_start_there_is_nothing_to_adapt(name, corpus, tmp_path):
    with pytest.raises(RecipeError, match=r"no model: name the run to start from, such as --set stage\.1\.start"):
        train(load_recipe(name), corpus, tmp_path / "run", device="cpu")
