"""A small run that several test files look at."""

import pytest

from diptych.data.formats.scenes import make_scenes
from diptych.training.recipe_loader import load_recipe
from diptych.training.train import train

SMALL = ["model.joint=16", "model.text.hidden=16", "model.text.word=8", "stage.1.batches.size=16"]
TINY = [*SMALL, "model.image.width=2", "model.image.pixels=32", "stage.2.batches.size=16", "stage.2.epochs=2"]


@pytest.fixture(scope="module")
def corpus():
    return make_scenes(train=24, val=6, test=6, texts=2)


@pytest.fixture(scope="module")
def recipe():
    return load_recipe("scenes", TINY)


@pytest.fixture(scope="module")
def whole(corpus, recipe, tmp_path_factory):
    return train(recipe, corpus, tmp_path_factory.mktemp("runs") / "whole", device="cpu", workers=0)
