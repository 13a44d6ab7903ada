"""Stages I and II of the dual-path model on a few small scenes: recipes, data, a backbone, and who watches."""

import json
import os
import signal
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from diptych.data.formats.scenes import make_scenes
from diptych.features.backbone import Backbone
from diptych.models.towers import pretrained
from diptych.models.towers.text import cnn
from diptych.training.engine.callbacks import NoCallback
from diptych.training.engine.checkpoint import snapshot_path
from diptych.training.recipe_loader import load_recipe
from diptych.training.train import train

FIRST = """
[model]
name = "dual_path"
hidden = 8
joint = 6
dropout = 0.5
image = { name = "views", side = 32 }
text = { name = "cnn", depth = "small", word = 4, length = 16 }

[text]
threshold = 1

[[stage]]
trainable = ["image_head", "text", "text_head"]
epochs = 2
objective = { name = "instance" }
batches = { size = 8 }
optimiser = { name = "sgd", rate = 0.05, momentum = 0.9, nesterov = true, decay = 0.001, clip = 0 }
"""
SECOND = """
[[stage]]
start = "previous"
crops = "window"
epochs = 2
objective = { name = "instance", rank = 1.0 }
batches = { size = 8 }
optimiser = { name = "sgd", rate = 0.05, momentum = 0.9, clip = 0, parts = { image = 0.01 } }
"""


class Colours(Backbone):
    """Mean and largest value of each colour, in the left half of a photo."""

    name, side, size, grid, any_side = "colours", 32, 6, (1, 6), True

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(1 / 256))

    def regions(self, pixels):
        half = (pixels.float() * self.scale)[..., : pixels.shape[-1] // 2].flatten(2)
        return torch.cat([half.mean(2), half.amax(2)], 1)[:, None]

    def forward(self, pixels):
        return self.regions(pixels)[:, 0]


@pytest.fixture(scope="module", autouse=True)
def tiny():
    """Every backbone has one weight, and the text CNN two small blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cnn, "DEPTHS", {"small": ((8, 1), (12, 1))})
        for name in ("build_backbone", "load_backbone"):
            patch.setattr(pretrained, name, lambda *_: Colours().eval())
        yield


class Watched(NoCallback):
    """Keeps what is said, what is prepared and each stage's first snapshot, and presses Ctrl-C at some steps."""

    def __init__(self, run=None, stops=()):
        self.said, self.prepared, self.firsts, self.count = [], [], {}, 0
        self.run, self.stops = run, stops

    def message(self, message, style=""):
        self.said.append(message)

    def on_preparation(self, what, done, total):
        self.prepared.append((what, done, total))

    def on_stage(self, number, of, steps, done):
        if self.run is not None:
            self.firsts[number] = load_file(snapshot_path(self.run))

    def on_step(self, epoch, loss, pairs_per_second):
        self.count += 1
        if self.count in self.stops:
            os.kill(os.getpid(), signal.SIGINT)

    def of_classes(self):
        return [line for line in self.said if line.startswith("instance:")]


@pytest.fixture(scope="session")
def watching():
    return Watched


@dataclass(frozen=True)
class Drawn:
    """A picture that was drawn once, and small."""

    image: Image.Image

    def load(self):
        return self.image.copy()


@pytest.fixture(scope="session")
def scenes():
    """Makes fourteen scenes to train on, two pictures and two texts each."""

    def make(seed=0, side=48):
        made = make_scenes(train=14, val=4, test=2, images=2, texts=2, seed=seed)
        return replace(made, pictures=[Drawn(picture.load().resize((side, side))) for picture in made.pictures])

    return make


@pytest.fixture(scope="module")
def corpus(scenes):
    return scenes()


@pytest.fixture(scope="session")
def regrouped():
    """Makes of a corpus one with the same images and texts, the first two scenes being one group."""

    def make(corpus):
        groups = np.unique(corpus.image_groups)
        columns = {name: getattr(corpus, name).copy() for name in ("image_groups", "text_groups")}
        for column in columns.values():
            column[column == groups[1]] = groups[0]
        return replace(corpus, **columns)

    return make


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    return tmp_path_factory.mktemp("features")


@pytest.fixture(scope="module")
def recipes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recipes")

    def load(text, changes):
        (folder / "recipe.toml").write_text(text)
        return load_recipe(str(folder / "recipe.toml"), changes)

    return load


@pytest.fixture(scope="module")
def one_stage(recipes):
    """Stage I, with changes."""
    return lambda *changes: recipes(FIRST, changes)


@pytest.fixture(scope="module")
def two_stages(recipes):
    """Both stages, with changes."""
    return lambda *changes: recipes(FIRST + SECOND, changes)


@pytest.fixture(scope="module")
def trained(corpus, stores):
    """Trains; the run, and what was said."""

    def run(recipe, into, corpus=corpus, **named):
        watcher = Watched(into)
        named = {"features": stores, **named}
        return train(recipe, corpus, into, device="cpu", workers=0, callback=watcher, **named), watcher

    return run


@pytest.fixture(scope="module")
def both(two_stages, trained, tmp_path_factory):
    """A run of both stages, and what was said."""
    return trained(two_stages(), tmp_path_factory.mktemp("runs") / "both")


@pytest.fixture
def refused(corpus, stores, tmp_path):
    def check(error, match, recipe, corpus=corpus):
        with pytest.raises(error, match=match) as caught:
            train(recipe, corpus, tmp_path / "run", device="cpu", workers=0, features=stores)
        assert "\n" not in str(caught.value)
        assert not list((tmp_path / "run").rglob("*")), "something was written"

    return check


@pytest.fixture(scope="session")
def epochs_of():
    """The lines of a run's journal that end an epoch."""

    def read(run):
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        return [line for line in lines if line["event"] == "epoch"]

    return read


@pytest.fixture(scope="session")
def classifier():
    """The classifier that a run keeps."""
    return lambda run, folder="best": load_file(run / folder / "objective.safetensors")
