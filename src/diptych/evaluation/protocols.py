"""Protocols: one gallery, the first images of it, or the mean over consecutive folds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from diptych.data.corpus import Integers
from diptych.errors import ScoreError
from diptych.evaluation.ranks import Ranks, Score, ranks
from diptych.evaluation.recall import CUTOFFS, Metrics
from diptych.evaluation.significance import Interval, bootstrap


@dataclass(frozen=True)
class Result:
    """What a protocol measured: the metrics, their intervals, and the ranks that they come from, a fold each."""

    metrics: Metrics
    intervals: dict[str, Interval]
    folds: Sequence[Ranks]

    @property
    def protocol(self) -> str:
        """The protocol in words."""
        images, texts = len(self.folds[0].images), len(self.folds[0].texts)
        if len(self.folds) == 1:
            return f"{images:,} images, {texts:,} texts"
        return f"mean of {len(self.folds)} folds of about {images:,} images, {texts:,} texts"

    def to_json(self) -> dict[str, Any]:
        """Metrics by name, intervals by name, and the protocol."""
        return {
            "protocol": self.protocol,
            "folds": len(self.folds),
            "images": sum(len(fold.images) for fold in self.folds),
            "texts": sum(len(fold.texts) for fold in self.folds),
            "metrics": self.metrics.to_json(),
            "intervals": {name: [interval.low, interval.high] for name, interval in self.intervals.items()},
        }

    def render(self) -> Table:
        """The result as a table for a terminal."""
        table = Table(title=self.protocol, caption="95% intervals by bootstrap over groups", box=SIMPLE_HEAD)
        table.add_column("", no_wrap=True)
        for k in CUTOFFS:
            table.add_column(f"R@{k}", justify="right")
        for name in ("median", "mean rank"):
            table.add_column(name, justify="right")
        for title, direction in (("image to text", "i2t"), ("text to image", "t2i")):
            recalls = [self._with_interval(f"{direction}_r{k}") for k in CUTOFFS]
            table.add_row(
                title, *recalls, f"{self.metrics[f'{direction}_median']:.1f}", f"{self.metrics[f'{direction}_mean']:.1f}"
            )
        table.add_section()
        table.add_row("rsum", self._with_interval("rsum"))
        return table

    def _with_interval(self, name: str) -> str:
        interval = self.intervals[name]
        return f"{self.metrics[name]:.1f}\n[dim]{interval.low:.1f}–{interval.high:.1f}[/]"


def measure(
    score: Score, image_groups: Integers, text_groups: Integers, *, folds: int = 1, gallery: int | None = None
) -> Result:
    """Rank and measure: all images and texts, the first `gallery` images with their texts, or `folds` galleries.

    Folds are consecutive and never cut a group apart; metrics are the means over them.
    """
    places = _group_places(image_groups)
    if gallery is not None:
        if gallery > len(image_groups):
            raise ScoreError(f"a gallery of {gallery} images, and there are {len(image_groups)}; choose fewer")
        places = places[:gallery]
    count = int(places.max()) + 1
    if folds > count:
        raise ScoreError(f"{folds} folds of {count} groups; choose fewer folds")
    measured = []
    for fold in np.array_split(np.arange(count), folds):
        image_rows = np.flatnonzero((places >= fold[0]) & (places <= fold[-1]))
        text_rows = np.flatnonzero(np.isin(text_groups, image_groups[image_rows]))
        measured.append(ranks(score, image_groups, text_groups, image_rows=image_rows, text_rows=text_rows))
    return Result(Metrics.mean([Metrics.of(fold) for fold in measured]), bootstrap(measured), measured)


def _group_places(groups: Integers) -> Integers:
    """Each image's group, numbered in the order in which the groups first appear."""
    _, first, places = np.unique(groups, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[places]
