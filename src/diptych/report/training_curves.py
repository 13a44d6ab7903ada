"""The epochs that a run's journal tells of, counted on through the stages, as charts need them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from diptych.report.svg_charts import Mark, Point
from diptych.training.engine.journal import Journal
from diptych.training.recipe import Recipe

Epoch = dict[str, Any]


def read_epochs(run: Path) -> list[Epoch]:
    """The run's finished epochs, in order."""
    return [line for line in Journal(run).lines() if line["event"] == "epoch"]


def last_round(epochs: Sequence[Epoch], recipe: Recipe) -> list[Epoch]:
    """The epochs since training last began from scratch: of a recipe of two rounds, the second."""
    first = max((number for number, stage in enumerate(recipe.stage, 1) if stage.start == "scratch"), default=1)
    return [epoch for epoch in epochs if epoch["stage"] >= first] or list(epochs)


def recall_line(epochs: Sequence[Epoch], name: str) -> list[Point]:
    """A metric on val against the epoch, from 1 on."""
    return [(number, epoch["val"][name]) for number, epoch in enumerate(epochs, 1)]


def class_error_lines(epochs: Sequence[Epoch]) -> dict[str, list[Point]]:
    """How many images and texts were put into a wrong class in training, in percent; none where none were classified.

    An epoch of a stage that does not classify is a gap.
    """
    told = [epoch.get("class_error") or {} for epoch in epochs]
    sides = {"images": "visual", "texts": "textual"}
    return {
        title: [(number, errors.get(name)) for number, errors in enumerate(told, 1)]
        for title, name in sides.items()
        if any(name in errors for errors in told)
    }


def stage_marks(epochs: Sequence[Epoch], line: int = 0) -> list[Mark]:
    """Where each stage after the first begins: between its first epoch and the one before."""
    return [
        Mark(number + 0.5, f"stage {later['stage']}", line)
        for number, (earlier, later) in enumerate(pairwise(epochs), 1)
        if later["stage"] != earlier["stage"]
    ]
