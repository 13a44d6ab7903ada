"""All ranks compute what a stage reads, so that the first one has nothing left to compute."""

from dataclasses import dataclass, replace

import pytest
import torch
from PIL import Image

from diptych.data.formats.scenes import make_scenes
from diptych.features import extract as extraction
from diptych.training.context import TrainingContext
from diptych.training.distributed.agreement import Agreement
from diptych.training.engine.callbacks import Callbacks
from diptych.training.extract_together import extract_together
from diptych.training.recipe_loader import load_recipe
from diptych.training.start import StartingPoint, settle
from diptych.training.train import prepare
from support.ranks import on_threads

CPU = torch.device("cpu")
SMALL = ["model.joint=16", "model.text.hidden=16", "model.text.word=8", "text.threshold=1", "model.image.side=64"]


@dataclass(frozen=True)
class Drawn:
    """A picture that was drawn once."""

    image: Image.Image

    def load(self):
        return self.image.copy()


@pytest.fixture(scope="module")
def corpus():
    scenes = make_scenes(train=6, val=3, test=2, texts=2)
    return replace(scenes, pictures=[Drawn(picture.load()) for picture in scenes.pictures])


def begun(corpus, stores, agreement, *changes):
    recipe = settle(load_recipe("vsepp", [*SMALL, *changes]), corpus, None)
    start = StartingPoint.checked(recipe, corpus, None, stores, Callbacks())
    return TrainingContext(recipe, corpus, corpus.digest(), stores, 0, Callbacks(), stores, agreement), start


def parts(stores):
    return {path.name: path.read_bytes() for path in stores.rglob("part-*")}


def test_the_first_rank_finds_the_store_that_it_would_have_made_alone(corpus, tmp_path, monkeypatch):
    prepare(*begun(corpus, tmp_path / "alone", Agreement()), CPU, 1, None)
    shares = []
    run = extraction._Extraction.run

    def counted(self, missing, workers, progress):
        shares.append(len(range(len(missing))[self._ranks.share(len(missing))]))
        run(self, missing, workers, progress)

    monkeypatch.setattr(extraction._Extraction, "run", counted)
    on_threads(2, lambda ranks: extract_together(*begun(corpus, tmp_path / "two", Agreement(ranks)), CPU, 1, None))
    assert sorted(shares) == [1, 2, 3, 3]  # of 6 training images, then of 3 of val
    monkeypatch.setattr(extraction._Network, "rows", None)
    prepare(*begun(corpus, tmp_path / "two", Agreement()), CPU, 1, None)
    assert parts(tmp_path / "two") == parts(tmp_path / "alone")
    assert len(parts(tmp_path / "two")) == 4


def test_a_stage_that_reads_random_crops_stores_only_val(corpus, tmp_path):
    changes = ["stage.1.crops='window'"]
    on_threads(2, lambda ranks: extract_together(*begun(corpus, tmp_path, Agreement(ranks), *changes), CPU, 1, None))
    assert len(parts(tmp_path)) == 2


def test_one_process_does_nothing(corpus, tmp_path):
    extract_together(*begun(corpus, tmp_path, Agreement()), CPU, 1, None)
    assert not parts(tmp_path)
