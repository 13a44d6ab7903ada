"""Every packaged recipe of whole photos, and every one that goes on with a run, trains two steps on a few scenes."""

from dataclasses import replace

import pytest

from diptych.data.formats.scenes import make_scenes
from diptych.training.engine.checkpoint import snapshot_path
from diptych.training.recipe_catalogue import catalogue
from diptych.training.recipe_loader import load_recipe
from diptych.training.train import train
from support.callbacks import RecordingCallback

SMALL = ["model.joint=16", "model.text.hidden=16", "stage.1.batches.size=4", "stage.1.epochs=1"]
TINY = [*SMALL, "model.text.word=8", "model.image.width=2", "model.image.pixels=32", "stage.2.epochs=1"]
NAMES = [name for name in catalogue().all_names() if not name.startswith("adapt")]
ON_A_RUN = [name for name in NAMES if "-head" in name or "-alone" in name]
# Trained in test_train_fine_tuning.py, test_adapt.py, test_aoq_training.py, test_two_branch.py and
# test_dual_path_training.py.
ELSEWHERE = {*ON_A_RUN, "vsepp-rc-rv-vgg19-ft", "vsepp-rc-small", "vsepp-curriculum"}
OTHER_MODELS = ("adapt", "scan", "bfan", "vsrn", "two-branch", "similarity", "cca", "phrases", "dual-path")
UNTRAINED = ("classes", "classes-small", "pair", "pair-small")  # made in test_make.py and test_pair.py


def first_of_each_kind():
    """The names of recipes of whole photos, one for each first stage: profiles make several of them the same."""
    found = {}
    for name in catalogue().all_names():
        if name not in {*ELSEWHERE, *UNTRAINED} and not name.startswith(OTHER_MODELS):
            recipe = load_recipe(name).first(1)
            found.setdefault(recipe.model_copy(update={"title": "", "paper": None}).to_toml(), name)
    return list(found.values())


def two_steps(recipe, corpus, into, stores):
    """Train until the second step, and see that it is saved."""
    callback = RecordingCallback((2,))
    with pytest.raises(KeyboardInterrupt):
        train(recipe, corpus, into, device="cpu", workers=0, callbacks=[callback], features=stores)
    assert callback.steps == 2
    assert snapshot_path(into).is_file()


@pytest.fixture(scope="module", autouse=True)
def tiny_backbone(small_backbones):
    """Weights of some backbones come from a hub; test_train_fine_tuning.py and test_images.py train a real one."""
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


@pytest.fixture(scope="module")
def run(few, tmp_path_factory):
    """A run to start from."""
    folder = tmp_path_factory.mktemp("runs") / "scenes"
    return train(load_recipe("scenes", TINY), few, folder, device="cpu", workers=0)


@pytest.mark.parametrize("name", ON_A_RUN)
def test_every_recipe_that_goes_on_with_a_run_trains_two_steps_on_it(name, run, few, tmp_path):
    recipe = load_recipe(name, [f"stage.1.start={str(run)!r}", "stage.1.batches.size=4"])
    two_steps(recipe, few, tmp_path, tmp_path)


@pytest.mark.parametrize("name", first_of_each_kind())
def test_every_recipe_trains_two_steps_on_scenes(name, few, tmp_path, stores):
    model = load_recipe(name).model
    changes = ["model.image.width=2", "model.image.pixels=32"] if model.image.name == "cnn" else []
    words = [] if model.text.name == "sentence" else ["model.text.word=8"]
    recipe = load_recipe(name, [*SMALL, *changes, *words])
    two_steps(recipe.model_copy(update={"stage": recipe.stage[:1]}), few, tmp_path, stores)
