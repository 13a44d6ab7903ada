"""Runs of models that need no training: what a folder holds, that it opens, and what is refused."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from diptych.data.formats.scenes import make_scenes
from diptych.errors import RecipeError, RunError
from diptych.evaluation.runs import evaluate
from diptych.model import Model
from diptych.models.matchers import classes
from diptych.training.make import make
from diptych.training.recipe import parse_recipe
from diptych.training.recipe_loader import load_recipe
from diptych.training.start_run import StartRun

NAMES = ["red circle", "green square", "blue triangle", "yellow star"]
CHANGES = [f"model.names={NAMES}", "model.top=4", "model.image.side=32"]


@pytest.fixture(scope="module", autouse=True)
def tiny(small_backbones):
    with small_backbones(), pytest.MonkeyPatch.context() as patch:
        torch.manual_seed(0)
        layer = torch.nn.Linear(6, len(NAMES))
        patch.setattr(classes, "load_classifier", lambda *_: layer)
        yield layer


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make(load_recipe("classes", CHANGES), tmp_path_factory.mktemp("made") / "classes")


def test_a_made_run_holds_a_model_and_its_recipe(run, tiny):
    files = sorted(path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file())
    # The record of plug-ins is there because the tiny backbone is a class outside of the package.
    assert files == ["best/weights.safetensors", "plugins.json", "recipe.toml", "tokeniser.json"]
    weights = load_file(run / "best/weights.safetensors")
    assert torch.equal(weights["classifier.weight"], tiny.weight)
    torch.testing.assert_close(weights["class_vectors"].norm(dim=1), torch.ones(4))
    assert weights["centre"].any()
    assert load_recipe(str(run / "recipe.toml")) == load_recipe("classes", CHANGES)
    assert json.loads((run / "tokeniser.json").read_text())["tokeniser"]["name"] == "usem3"


def test_a_made_run_is_evaluated_and_encodes_like_any_other(run):
    scenes = make_scenes(train=1, val=1, test=6, texts=2)
    result = evaluate(run, scenes, device="cpu", features=None)
    assert result.images == 6
    model = Model.load(run, "cpu")
    found = model.score([picture.load() for picture in scenes.pictures[:3]], NAMES)
    assert found.shape == (3, 4)
    assert np.abs(found).max() <= 1 + 1e-6
    assert StartRun.find(str(run), 1).settings == model.matcher.settings


def test_a_name_of_a_recipe_is_enough(tmp_path, monkeypatch):
    monkeypatch.setattr(classes, "load_classifier", lambda *_: torch.nn.Linear(6, 1000))
    make("classes-small", tmp_path / "run")
    settings = Model.load(tmp_path / "run", "cpu").matcher.settings
    assert (settings.names, settings.image.crops) == ("imagenet", "1C")


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (load_recipe("scenes"), "the recipe has stages to train: use `diptych train RECIPE DATA`"),
        (parse_recipe({"model": {"name": "vse"}}), "the model 'vse' needs training, and the recipe has no stage"),
        (
            parse_recipe({"model": {"name": "vse", "joint": 8, "text": {"name": "sentence", "hidden": 8}}}),
            "the model 'vse' needs training, and the recipe has no stage; add one",
        ),
    ],
    ids=["stages", "words", "a sentence tower"],
)
def test_models_that_need_training_are_refused(recipe, message, tmp_path):
    if recipe.model.text.name == "sentence":
        image = {"name": "backbone", "side": 32}
        recipe = parse_recipe({"model": {**recipe.model.model_dump(), "image": image}})
    with pytest.raises(RecipeError, match=message):
        make(recipe, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_that_exists_is_refused_first(run):
    with pytest.raises(RunError, match="classes: exists already; choose another folder, or remove it first"):
        make("no such recipe", run)
