"""All packaged recipes: the names that the command line has always known, and the small version of every recipe."""

import hashlib
import json
from pathlib import Path

import pytest
import torch

from diptych.training.engine.trainable import set_trainable
from diptych.training.recipe_catalogue import catalogue
from diptych.training.recipe_loader import load_recipe

DIGESTS = json.loads(Path(__file__).with_name("digests.json").read_text())


def digest(name):
    """A digest of what a recipe sets, all but its title."""
    content = load_recipe(name).model_dump(mode="json", exclude={"title"}, exclude_defaults=True)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def test_recipes_stay_as_they_are():
    """A shared line changes many recipes: change a digest only for a recipe that was meant to change."""
    changed = {name: found for name in DIGESTS if (found := digest(name)) != DIGESTS[name]}
    assert changed == {}
    assert set(catalogue().definitions) <= set(DIGESTS)


# Rows of the VSE++ paper whose training set is not called rV
TRAIN_ALONE = {"vsepp-1c-vgg19", "vsepp-rc-vgg19", "vse0-1c-vgg19", "vse0-rc-vgg19"}


def test_every_row_of_coco_trains_on_restval_where_the_paper_does_and_no_other_row():
    """113,287 images (113,283 in the AOQ paper) of which 30,504 are restval; one recipe is never for both data sets."""
    trained = {}
    for name in catalogue().definitions:
        recipe = load_recipe(name)
        rows = recipe.paper.row if recipe.paper else ()
        if rows:
            [is_coco] = {row.data.startswith("COCO") for row in rows if name not in TRAIN_ALONE} or {False}
            trained[name] = (is_coco, {stage.splits for stage in recipe.stage})
    splits = {False: {("train",)}, True: {("train", "restval")}}
    assert {name: found for name, (is_coco, found) in trained.items() if found != splits[is_coco]} == {}
    assert sum(is_coco for is_coco, _ in trained.values()) > 50


@pytest.mark.parametrize("name", [name for name in catalogue().definitions if not name.endswith("-small")])
def test_any_recipe_can_be_asked_for_in_small(name):
    recipe, small = load_recipe(name), load_recipe(name, profile="small")
    assert small == load_recipe(f"{name}-small")
    assert (small.model is None) == (recipe.model is None)
    assert small.model is None or small.model.name == recipe.model.name
    assert small.paper is None or small.paper.row == ()
    trained, trained_small = (sum(stage.epochs for stage in each.stage) for each in (recipe, small))
    assert trained_small < trained or "cca" in name or not recipe.stage
    for stage in small.stage:
        assert stage.splits == ("train",)
    if "small" not in small.title:
        pytest.fail(f"{small.title}: does not say that it is small")


SMALL = [
    name
    for name in catalogue().all_names()
    if name.endswith("-small") and load_recipe(name).model is not None and name != "pair-small"  # which needs files
]


@pytest.mark.parametrize("name", SMALL)
def test_the_parts_that_the_stages_of_a_small_recipe_train_exist(name):
    recipe = load_recipe(name)
    with torch.device("meta"):
        matcher = recipe.model.for_data(100, None).build()
    for stage in recipe.stage:
        if stage.head is None:
            set_trainable(matcher, stage.trainable)
            assert any(weights.requires_grad for weights in matcher.parameters())
