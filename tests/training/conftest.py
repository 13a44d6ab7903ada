"""Small runs that several test files look at, and recipes to start from them."""

import pytest

from diptych.data.formats.scenes import make_scenes
from diptych.models.towers.text import cnn
from diptych.training.recipe_loader import load_recipe
from diptych.training.train import train
from support.dual_path import DualPath
from support.recipes import BASE, HEAD, MODEL, TINY


@pytest.fixture(scope="module")
def corpus():
    return make_scenes(train=24, val=6, test=6, texts=2)


@pytest.fixture(scope="module")
def recipe():
    return load_recipe("scenes", TINY)


@pytest.fixture(scope="module")
def whole(corpus, recipe, tmp_path_factory):
    return train(recipe, corpus, tmp_path_factory.mktemp("runs") / "whole", device="cpu", workers=0)


@pytest.fixture(scope="module")
def recipes(tmp_path_factory):
    """Loads a recipe from its text."""
    folder = tmp_path_factory.mktemp("recipes")

    def load(text, *changes):
        (folder / "recipe.toml").write_text(text)
        return load_recipe(str(folder / "recipe.toml"), changes)

    return load


@pytest.fixture(scope="module")
def base(recipes, corpus, tmp_path_factory):
    """A run without a head."""
    return train(recipes(MODEL + BASE), corpus, tmp_path_factory.mktemp("runs") / "base", device="cpu", workers=0)


@pytest.fixture(scope="module")
def head_only(recipes):
    """Loads a recipe without a model, whose only stage adds a head to a run."""

    def load(start, *changes):
        return recipes(HEAD, f"stage.1.start={start}", "stage.1.epochs=1", *changes)

    return load


@pytest.fixture(scope="module")
def dual_path(small_backbones, tmp_path_factory):
    """Trains the two stages of the dual-path model, while every backbone and text CNN is tiny."""
    with small_backbones(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(cnn, "DEPTHS", {"small": ((8, 1), (12, 1))})
        yield DualPath(tmp_path_factory.mktemp("dual_path"))
