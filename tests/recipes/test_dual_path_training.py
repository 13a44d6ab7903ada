"""The dual-path recipes at work: which parts they train, and those for two cores trained on a few scenes.

The model is the smallest: every part of the backbone and the text CNN is there, and has hardly any weights.
"""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from diptych.data.formats.scenes import make_scenes
from diptych.evaluation.runs import evaluate
from diptych.features.backbone import Backbone
from diptych.features.backbones.registry import build_backbone
from diptych.model import Model
from diptych.models.towers import pretrained
from diptych.models.towers.text import cnn
from diptych.training.engine.checkpoint import snapshot_path
from diptych.training.engine.trainable import set_trainable
from diptych.training.recipe_catalogue import catalogue
from diptych.training.recipe_loader import load_recipe
from diptych.training.train import train

NAMES = [name for name in catalogue().all_names() if name.startswith("dual-path")]
SMALL = [name for name in NAMES if name.endswith("-small")]


class Parts(Backbone):
    """The mean colour through as many parts, of the same names, as lite0 has."""

    name, side, size, grid, any_side = "parts", 32, 3, (1, 3), True

    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Linear(3, 3), nn.Linear(3, 3)
        self.blocks = nn.ModuleList(nn.Linear(3, 3) for _ in range(16))
        for layer in (self.stem, *self.blocks, self.head):
            nn.init.eye_(layer.weight)
            nn.init.zeros_(layer.bias)

    def regions(self, pixels):
        return self(pixels)[:, None]

    def forward(self, pixels):
        colours = self.stem(pixels.float().mean((2, 3)) / 256)
        for block in self.blocks:
            colours = block(colours)
        return self.head(colours)


@pytest.fixture(scope="module", autouse=True)
def tiny_towers():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cnn, "DEPTHS", dict.fromkeys(cnn.DEPTHS, ((4, 1), (6, 1))))
        for name in ("build_backbone", "load_backbone"):
            patch.setattr(pretrained, name, lambda *_: Parts().eval())
        yield


@pytest.fixture(scope="module")
def corpus():
    return make_scenes(train=6, val=2, test=2, images=2, texts=2)


@pytest.fixture(scope="module")
def stores(corpus, write_vectors, tmp_path_factory):
    """The features of all recipes, and in `vectors.txt` a vector of most words."""
    folder = tmp_path_factory.mktemp("features")
    write_vectors(corpus.texts, folder / "vectors.txt")
    return folder


def tiny(name, stores):
    """The recipe with the smallest model, an epoch a stage."""
    changes = ["model.hidden=6", "model.joint=4", "model.image.side=32", "model.text.word=4"]
    changes.append(f"text.vectors={str(stores / 'vectors.txt')!r}")
    recipe = load_recipe(name)
    for number, stage in enumerate(recipe.stage, 1):
        changes += [f"stage.{number}.epochs=1", f"stage.{number}.batches.size=8"]
        if stage.objective.clusters is not None:
            changes.append(f"stage.{number}.objective.clusters=3")
    return load_recipe(name, changes)


LAST = {"image.blocks.13", "image.blocks.14", "image.blocks.15", "image.head"}


def parts(names):
    """The parts that weights belong to: heads and text, and in the backbone its blocks."""
    for name in names:
        steps = name.replace(".backbone", "").split(".")
        yield ".".join(steps[: 3 if steps[1] == "blocks" else 2]) if steps[0] == "image" else steps[0]


@pytest.mark.parametrize("name", NAMES)
def test_the_stages_train_everything_but_the_backbone_then_all_of_it_or_its_end(name, stores):
    recipe = tiny(name, stores)
    matcher = recipe.model.for_data(100, None).build()
    everything = set(parts(dict(matcher.named_parameters())))
    assert everything >= LAST | {"image.stem", "image.blocks.0", "image_head", "text", "text_head"}
    backbone = {part for part in everything if part.startswith("image.")}
    for number, stage in enumerate(recipe.stage):
        set_trainable(matcher, stage.trainable)
        frozen = {weights for weights, values in matcher.named_parameters() if not values.requires_grad}
        expected = backbone if number == 0 else backbone - LAST if name in SMALL else set()
        assert set(parts(frozen)) == expected


def test_the_last_parts_are_those_of_the_small_recipes_backbone():
    names = {name for name, _ in build_backbone("lite0").named_modules()}
    assert {part.removeprefix("image.") for part in LAST} <= names
    assert "blocks.16" not in names


@pytest.mark.parametrize("name", [*(name for name in SMALL if "-coco" not in name), "dual-path-public"])
def test_it_trains_on_scenes(name, corpus, stores, tmp_path):
    recipe = tiny(name, stores)
    run = train(recipe, corpus, tmp_path, device="cpu", workers=0, features=stores)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    epochs = [line for line in lines if line["event"] == "epoch"]
    assert [line["stage"] for line in epochs] == list(range(1, len(recipe.stage) + 1))
    for line, stage in zip(epochs, recipe.stage, strict=True):
        assert np.isfinite(line["loss"])
        terms = {"visual": stage.objective.visual, "textual": stage.objective.textual}
        ranked = ["image_to_text", "text_to_image"] if stage.objective.rank else []
        assert sorted(line["terms"]) == sorted([*ranked, *(term for term, weight in terms.items() if weight)])
    trained = Model.load(run, "cpu", stores=stores)
    result = evaluate(trained, corpus, average_precision="-pedes" in name)
    assert (result.images, result.texts) == (4, 4)
    last = load_file(snapshot_path(run))
    for part, stays in (("stem", name in SMALL), ("head", len(recipe.stage) == 1)):
        assert torch.equal(last[f"model.image.backbone.{part}.weight"], torch.eye(3)) == stays
