"""Every kind of recipe of a model of regions trains a few steps: SCAN, BFAN and VSRN, online and with mined lists."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from diptych.data.corpus import Features
from diptych.data.formats.scenes import make_scenes
from diptych.errors import RunError
from diptych.mining.lists import lists_file, weights_digest
from diptych.mining.mine import mine
from diptych.model import Model
from diptych.training.recipe_catalogue import catalogue
from diptych.training.recipe_loader import load_recipe
from diptych.training.train import train


def kind(settings):
    """Settings without their numbers, but for zeros, which leave something out."""
    if isinstance(settings, dict):
        return tuple((name, kind(value)) for name, value in settings.items())
    if isinstance(settings, tuple | list):
        return tuple(map(kind, settings))
    return type(settings) if type(settings) in (int, float) and settings else settings


def kinds():
    """A recipe of each kind: those that differ in numbers alone do the same with this little data."""
    found = {}
    for name in catalogue().all_names():
        if name.startswith(("scan", "bfan", "vsrn")):
            content = load_recipe(name).model_dump(exclude={"title": True, "paper": True, "model": {"image"}})
            for stage in content["stage"]:
                del stage["splits"]
                if stage["offline"] is not None and stage["offline"]["lists"] != "previous":
                    stage["offline"]["lists"] = "a run"
            found.setdefault(kind(content), name)
    return list(found.values())


def small(name):
    """The recipe with the smallest model, an epoch a stage."""
    recipe = load_recipe(name)
    changes = ["model.joint=4", "model.text.word=3", "text.threshold=1"]
    if recipe.model.name == "vsrn":
        changes += ["model.text.hidden=4", "model.generation.hidden=3", "model.generation.word=3"]
    for number in range(1, len(recipe.stage) + 1):
        changes += [f"stage.{number}.{change}" for change in ("epochs=1", "batches.size=8", "splits=['train']")]
    return recipe, changes


@pytest.fixture(scope="module")
def corpus():
    """A few scenes with four regions an image; the third lacks its last."""
    scenes = make_scenes(train=8, val=3, test=3, texts=2)
    rows = np.stack([np.asarray(picture.load().resize((2, 2)), np.float32) for picture in scenes.pictures])
    regions = np.repeat(rows.reshape(len(rows), 4, 3) / 255, 2, axis=2)  # (images, 4, 6)
    regions[2, 3] = 0
    return replace(scenes, pictures=None, features=Features([regions]))


@pytest.fixture(scope="module")
def teacher(corpus, tmp_path_factory):
    run = tmp_path_factory.mktemp("teacher") / "vsrn"
    train(load_recipe("vsrn", small("vsrn")[1]), corpus, run, device="cpu")
    trained = Model.load(run, "cpu")
    mine(trained, corpus.split("train"), lists_file(run), weights=weights_digest(run))
    return run


@pytest.mark.parametrize("name", kinds())
def test_every_kind_of_recipe_of_regions_trains(name, corpus, teacher, tmp_path):
    recipe, changes = small(name)
    for number, stage in enumerate(recipe.stage, 1):
        if stage.offline is not None and stage.offline.lists != "previous":
            changes.append(f"stage.{number}.offline.lists={str(teacher)!r}")
    run = train(load_recipe(name, changes), corpus, tmp_path / "run", device="cpu", workers=0)
    encoded = Model.load(run, "cpu").encode_corpus(corpus.split("test"))
    scores = encoded.matcher().score(encoded.images, encoded.texts)
    assert scores.shape == (3, 6)
    assert scores.isfinite().all()


def test_the_teacher_of_coco_mines_train_and_restval(corpus, teacher, tmp_path):
    """As `diptych mine RUN DATA --split train --split restval` does; lists of train alone are those of other data."""
    images, texts = corpus.image_splits.astype("<U7"), corpus.text_splits.astype("<U7")
    images[7], texts[14:16] = "restval", "restval"
    coco = replace(corpus, image_splits=images, text_splits=texts)
    for mined in (("train",), ("train", "restval")):
        run = tmp_path / f"vsrn-{len(mined)}"
        shutil.copytree(teacher, run)
        lists_file(run).unlink()
        mine(Model.load(run, "cpu"), coco.split(*mined), lists_file(run), weights=weights_digest(run))
        changes = [f"stage.1.offline.lists={str(run)!r}", "stage.1.splits=['train', 'restval']"]
        recipe = load_recipe("bfan-equal-coco-offtri", [*small("bfan-equal-coco-offtri")[1], *changes])
        if mined == ("train",):
            with pytest.raises(RunError, match="mined on other data"):
                train(recipe, coco, tmp_path / "refused", device="cpu", workers=0)
        else:
            assert train(recipe, coco, tmp_path / "run", device="cpu", workers=0).is_dir()
