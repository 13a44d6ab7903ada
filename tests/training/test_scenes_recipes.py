"""Every packaged recipe of whole photos, and every one of heads, trains two steps on a few scenes."""

import os
import signal
from dataclasses import replace

import pytest

from diptych.data.formats.scenes import make_scenes
from diptych.training.engine.callbacks import Silent
from diptych.training.engine.checkpoint import snapshot_path
from diptych.training.recipe_catalogue import recipe_names
from diptych.training.recipe_loader import load_recipe
from diptych.training.train import train

SMALL = ["model.joint=16", "model.text.hidden=16", "model.text.word=8", "stage.1.batches.size=4", "stage.1.epochs=1"]
HEADS = [name for name in recipe_names() if name.endswith("-head")]
ELSEWHERE = (
    *("vsepp-rc-rv-vgg19-ft", "vsepp-rc-small", "vsepp-curriculum"),  # whole in test_fine_tuning.py
    *HEADS,
    *(name for name in recipe_names() if name.startswith(("scan", "bfan", "vsrn"))),  # in test_region_recipes.py
    *(name for name in recipe_names() if name.startswith(("two-branch", "similarity", "cca", "phrases"))),  # likewise
    *(name for name in recipe_names() if name.startswith("dual-path")),  # in test_dual_path_scenes.py
)
HERE = [name for name in recipe_names() if name not in ELSEWHERE]


class TwoSteps(Silent):
    """Counts the steps, and presses Ctrl-C at the second."""

    count = 0

    def step(self, epoch, loss, pairs_per_second):
        self.count += 1
        if self.count == 2:
            os.kill(os.getpid(), signal.SIGINT)


def two_steps(recipe, corpus, into, stores):
    """Train until the second step, and see that it is saved."""
    steps = TwoSteps()
    with pytest.raises(KeyboardInterrupt):
        train(recipe, corpus, into, device="cpu", workers=0, watcher=steps, features=stores)
    assert steps.count == 2
    assert snapshot_path(into).is_file()


@pytest.fixture(scope="module", autouse=True)
def tiny_backbone(small_backbones):
    """Weights of some backbones come from a hub; test_fine_tuning.py and test_images.py train a real one."""
    with small_backbones():
        yield


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """One folder of feature stores for all: what is computed for a recipe serves the next."""
    return tmp_path_factory.mktemp("features")


@pytest.fixture(scope="module")
def few():
    """A few scenes, with a restval as COCO has it."""
    scenes = make_scenes(train=6, val=2, test=1, texts=2)
    images, texts = scenes.image_splits.astype("<U7"), scenes.text_splits.astype("<U7")
    images[5], texts[10:12] = "restval", "restval"
    return replace(scenes, image_splits=images, text_splits=texts)


@pytest.mark.parametrize("name", HEADS)
def test_every_recipe_of_heads_trains_two_steps_on_a_run(name, whole, corpus, tmp_path):
    recipe = load_recipe(name, [f"stage.1.start={str(whole)!r}", "stage.1.batches.size=8"])
    two_steps(recipe, corpus, tmp_path, tmp_path)


@pytest.mark.parametrize("name", HERE)
def test_every_recipe_trains_two_steps_on_scenes(name, few, tmp_path, stores):
    cnn = load_recipe(name).model.image.name == "cnn"
    recipe = load_recipe(name, [*SMALL, *(["model.image.width=2", "model.image.pixels=32"] if cnn else [])])
    two_steps(recipe.model_copy(update={"stage": recipe.stage[:1]}), few, tmp_path, stores)
