"""Runs that are small and quick to train, for the comparisons of several."""

from __future__ import annotations

import pytest

from diptych.data.formats.scenes import make_scenes
from diptych.report.comparison.compare import compare
from diptych.training.recipe_loader import load_recipe
from diptych.training.train import train

SMALL = ["model.joint=16", "model.text.hidden=16", "model.text.word=8", "model.image.width=2"]


@pytest.fixture(scope="session")
def compared_corpus():
    return make_scenes(train=24, val=6, test=14, texts=2)


@pytest.fixture(scope="session")
def compared_runs(compared_corpus, tmp_path_factory):
    """Runs that differ in their seed, their vocabulary, the size of their images and their number of epochs."""
    folder = tmp_path_factory.mktemp("runs")
    for name, more in (
        ("plain", ["model.image.pixels=32", "stage.2.epochs=2"]),
        ("<b>other", ["model.image.pixels=16", "stage.2.epochs=1", "text.threshold=1", "seed=5"]),
        ("third|run", ["model.image.pixels=16", "stage.2.epochs=1", "seed=6"]),
    ):
        train(load_recipe("scenes", [*SMALL, *more]), compared_corpus, folder / name, device="cpu", workers=0)
    return [folder / name for name in ("plain", "<b>other", "third|run")]


@pytest.fixture(scope="session")
def three(compared_runs, compared_corpus):
    """The comparison of all three."""
    return compare(compared_runs, compared_corpus, device="cpu")


@pytest.fixture(scope="session")
def two(compared_runs, compared_corpus):
    """The comparison of the first two."""
    return compare(compared_runs[:2], compared_corpus, device="cpu")
