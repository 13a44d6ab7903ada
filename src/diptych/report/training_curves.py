"""Curves of a training, read from the run's journal; epochs are counted through all stages.

What a stage starts from may have been measured as its epoch 0. It stands where the epochs before it end.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from markupsafe import Markup

from diptych.report.svg_charts import Mark, Point, line_chart
from diptych.training.engine.journal import Journal
from diptych.training.recipe import Recipe

Epoch = dict[str, Any]

_RECALLS = {"image to text R@1": "i2t_r1", "text to image R@1": "t2i_r1", "phrases R@1": "phrase_r1"}


def read_epochs(run: Path) -> list[Epoch]:
    """The run's finished epochs, in order, and epoch 0 of a stage whose start was measured."""
    return [line for line in Journal(run).lines() if line["event"] == "epoch"]


def trained_epochs(epochs: Sequence[Epoch]) -> int:
    """How many epochs were trained."""
    return sum(epoch["epoch"] > 0 for epoch in epochs)


def epochs_since_scratch(epochs: Sequence[Epoch], recipe: Recipe) -> list[Epoch]:
    """The epochs since the last stage that starts from scratch: for recipes that train twice, the second training."""
    first = max((number for number, stage in enumerate(recipe.stage, 1) if stage.start == "scratch"), default=1)
    return [epoch for epoch in epochs if epoch["stage"] >= first] or list(epochs)


def training_charts(epochs: Sequence[Epoch]) -> list[Markup]:
    """Charts of recall on val, of the loss per stage and, if any, of the class errors."""
    measured = {name for epoch in epochs for name in epoch["val"]}
    recalls = {title: val_curve(epochs, name) for title, name in _RECALLS.items() if name in measured}
    marks = stage_marks(epochs)
    charts = [line_chart(recalls, title="Recall on val", x_label="epoch", y_label="R@1, percent", marks=marks)]
    for stage in sorted({epoch["stage"] for epoch in epochs}):  # losses of different objectives are not comparable
        trained = ((number, epoch) for number, epoch in _numbered(epochs) if epoch["epoch"] and epoch["stage"] == stage)
        losses = [(number, epoch["loss"]) for number, epoch in trained]
        if len(losses) > 1:
            title = f"Training loss, stage {stage}"
            charts.append(line_chart({"loss": losses}, title=title, x_label="epoch", y_label="loss per pair"))
    if errors := class_error_curves(epochs):
        title, label = "Class error in training", "error, percent"
        charts.append(line_chart(errors, title=title, x_label="epoch", y_label=label, marks=marks))
    return charts


def val_curve(epochs: Sequence[Epoch], name: str) -> list[Point]:
    """A metric on val against the epoch; epochs that did not measure it are omitted."""
    return [(number, epoch["val"][name]) for number, epoch in _numbered(epochs) if name in epoch["val"]]


def class_error_curves(epochs: Sequence[Epoch]) -> dict[str, list[Point]]:
    """The percentage of training images and texts that were misclassified; empty if no stage classifies.

    An epoch of a stage that does not classify is a gap in the curve.
    """
    class_errors = [(number, epoch.get("class_error") or {}) for number, epoch in _numbered(epochs) if epoch["epoch"]]
    sides = {"images": "visual", "texts": "textual"}
    return {
        title: [(number, errors.get(name)) for number, errors in class_errors]
        for title, name in sides.items()
        if any(name in errors for _, errors in class_errors)
    }


def stage_marks(epochs: Sequence[Epoch], line: int = 0) -> list[Mark]:
    """Where each stage after the first starts: half way between its first epoch and the previous one."""
    return [
        Mark(number + 0.5, f"stage {later['stage']}", line)
        for (number, earlier), (_, later) in pairwise(_numbered(epochs))
        if later["stage"] != earlier["stage"]
    ]


def _numbered(epochs: Sequence[Epoch]) -> list[tuple[int, Epoch]]:
    """Each epoch with the number of epochs that were trained until then."""
    return list(zip(accumulate(int(epoch["epoch"] > 0) for epoch in epochs), epochs, strict=True))
