"""Stages I and II of the dual-path model on a few small scenes."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import load_file

from diptych.data.corpus import Corpus
from diptych.data.formats.scenes import make_scenes
from diptych.training.engine.checkpoint import snapshot_path
from diptych.training.recipe_loader import load_recipe
from diptych.training.train import train
from support.callbacks import RecordingCallback

GROUPS = 14
STEPS = 4  # per epoch: 28 pairs in batches of 8
STAGE_1 = """
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
STAGE_2 = """
[[stage]]
start = "previous"
crops = "window"
epochs = 2
objective = { name = "instance", rank = 1.0 }
batches = { size = 8 }
optimiser = { name = "sgd", rate = 0.05, momentum = 0.9, clip = 0, parts = { image = 0.01 } }
"""


class StageCallback(RecordingCallback):
    """Also keeps the first snapshot of each stage."""

    def __init__(self, run):
        super().__init__()
        self.run, self.first_snapshots = run, {}

    def on_stage_start(self, stage):
        self.first_snapshots[stage.stage] = load_file(snapshot_path(self.run))

    @property
    def class_messages(self):
        """What was reported about classes and their classifier."""
        return self.messages_with("instance:")


@dataclass(frozen=True)
class Drawn:
    """A small picture that was drawn once."""

    image: Image.Image

    def load(self):
        return self.image.copy()


def small_scenes(seed=0, side=48):
    """Fourteen scenes to train on, with two pictures and two texts each."""
    corpus = make_scenes(train=GROUPS, val=4, test=2, images=2, texts=2, seed=seed)
    return replace(corpus, pictures=[Drawn(picture.load().resize((side, side))) for picture in corpus.pictures])


def without_groups(corpus, side, groups):
    """The corpus without the images, or without the texts, of some groups."""
    rows = {name: np.arange(len(getattr(corpus, f"{name}_groups"))) for name in ("image", "text")}
    rows[side] = np.flatnonzero(~np.isin(getattr(corpus, f"{side}_groups"), groups))
    return corpus.take(rows["image"], rows["text"])


def with_merged_groups(corpus):
    """The same images and texts, with the first two scenes in one group."""
    first, second, *_ = np.unique(corpus.image_groups)
    columns = {name: getattr(corpus, name) for name in ("image_groups", "text_groups")}
    return replace(corpus, **{name: np.where(column == second, first, column) for name, column in columns.items()})


def saved_classifier(run, folder="best"):
    """The classifier that a run keeps beside its weights."""
    return load_file(run / folder / "objective.safetensors")


@dataclass(frozen=True)
class DualPath:
    """Trains the two stages below a folder, with a tiny backbone and a text CNN of two small blocks."""

    folder: Path
    corpus: Corpus = field(default_factory=small_scenes)

    @property
    def stores(self):
        return self.folder / "features"

    def one_stage(self, *changes):
        """A recipe of stage I, with changes."""
        return self._load(STAGE_1, changes)

    def two_stages(self, *changes):
        """A recipe of both stages, with changes."""
        return self._load(STAGE_1 + STAGE_2, changes)

    def _load(self, text, changes):
        (self.folder / "recipe.toml").write_text(text)
        return load_recipe(str(self.folder / "recipe.toml"), changes)

    def train(self, recipe, into, corpus=None, callback=None, **named):
        """The run, and the callback that recorded its training."""
        callback = callback or StageCallback(into)
        corpus = self.corpus if corpus is None else corpus
        named = {"features": self.stores, "workers": 0, **named}
        return train(recipe, corpus, into, device="cpu", callbacks=[callback], **named), callback

    @cached_property
    def trained(self):
        """A run of both stages, and its callback."""
        return self.train(self.two_stages(), self.folder / "trained")

    def assert_refused(self, error, match, recipe, corpus=None):
        """Training raises an error of one line before it writes anything."""
        run = self.folder / "refused"
        with pytest.raises(error, match=match) as caught:
            self.train(recipe, run, corpus)
        assert "\n" not in str(caught.value)
        assert not list(run.rglob("*")), "something was written"
