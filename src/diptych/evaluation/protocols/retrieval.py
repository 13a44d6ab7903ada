"""Image-text retrieval under the field's protocols: one gallery, the first N images, or the mean over folds.

COCO's 5K protocol is one gallery of the test split; its 1K protocol is five folds of it. Cuts are made between groups,
in the order of their first image, so that an image and its texts stay together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from diptych.data.corpus import Corpus, Integers
from diptych.errors import ScoreError
from diptych.evaluation.metrics.average_precision import average_precision_applies, ranks_with_precision
from diptych.evaluation.metrics.ranks import Ranks, ranks
from diptych.evaluation.metrics.recall import (
    CUTOFFS,
    IMAGE_TO_TEXT,
    TEXT_TO_IMAGE,
    Metrics,
    check_cutoffs,
    mean_metrics,
    metrics_from_ranks,
)
from diptych.evaluation.metrics.scores import Score
from diptych.evaluation.metrics.significance import Intervals, bootstrap_intervals, check_bootstrap
from diptych.evaluation.metrics.tiles import BLOCK, TilePass, check_positives
from diptych.evaluation.resumable import ResumablePasses
from diptych.evaluation.tabular import TabularResult, TextTable, bootstrap_caption, with_interval
from diptych.progress import ProgressCallback


@dataclass(frozen=True, eq=False, repr=False)
class RetrievalResult(TabularResult):
    """The metrics (the mean over folds), their intervals, and the ranks of each fold.

    `result.metrics.i2t_r1` and `result.intervals.i2t_r1` are a metric and its bounds, and likewise for all names.
    """

    protocol: str
    metrics: Metrics
    intervals: Intervals
    folds: tuple[Ranks, ...]

    @property
    def images(self) -> int:
        """The number of images ranked, over all folds."""
        return sum(len(fold.images) for fold in self.folds)

    @property
    def texts(self) -> int:
        """The number of texts ranked, over all folds."""
        return sum(len(fold.texts) for fold in self.folds)

    def __repr__(self) -> str:
        return f"RetrievalResult({self.table().title}; rsum {self.metrics.rsum:.1f})"

    def to_json(self) -> dict[str, Any]:
        """Protocol, sizes, metrics and intervals under stable names, without the ranks."""
        return {
            "protocol": self.protocol,
            "images": self.images,
            "texts": self.texts,
            "folds": len(self.folds),
            "metrics": self.metrics.to_json(),
            "intervals": self.intervals.to_json(),
        }

    def columns(self) -> dict[str, list[Any]]:
        """One row per metric: its name, its value, and the bounds of its interval; ranks have no interval (NaN)."""
        metrics, no_interval = self.metrics.to_json(), (np.nan, np.nan)
        bounds = [self.intervals.bounds.get(name, no_interval) for name in metrics]
        low, high = map(list, zip(*bounds, strict=True))
        return {"metric": list(metrics), "value": list(metrics.values()), "low": low, "high": high}

    def table(self) -> TextTable:
        """One row per direction: recalls and mAP with their intervals, and ranks; then the sum of the recalls."""
        metrics, intervals, named = self.metrics, self.intervals, self.metrics.to_json()
        recalls = [f"R@{cutoff}" for cutoff in metrics.image_to_text.recalls]
        mean_precision = [] if metrics.image_to_text.mean_average_precision is None else ["mAP"]
        rows = []
        for label, prefix, direction in (
            ("image to text", IMAGE_TO_TEXT, metrics.image_to_text),
            ("text to image", TEXT_TO_IMAGE, metrics.text_to_image),
        ):
            names = [
                *(f"{prefix}_r{cutoff}" for cutoff in direction.recalls),
                *(f"{prefix}_map" for _ in mean_precision),
            ]
            cells = [with_interval(named[name], intervals.bounds[name]) for name in names]
            rows.append([label, *cells, f"{direction.median:g}", f"{direction.mean:.1f}"])
        rows.append(["rsum", with_interval(metrics.rsum, intervals.rsum)])
        return TextTable(
            title=f"{self.protocol}: {self.images:,} images, {self.texts:,} texts",
            header=["", *recalls, *mean_precision, "median", "mean rank"],
            rows=rows,
            caption=bootstrap_caption(intervals.level, intervals.draws),
        )


def evaluate_score(  # noqa: PLR0913 (options, by keyword only)
    score: Score,
    image_groups: Integers,
    text_groups: Integers,
    *,
    folds: int = 1,
    gallery: int | None = None,
    average_precision: bool | None = False,
    cutoffs: Sequence[int] = CUTOFFS,
    level: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
    block: int = BLOCK,
    passes: ResumablePasses | None = None,
    progress: ProgressCallback | None = None,
) -> RetrievalResult:
    """Rank and measure: `gallery` keeps the first images only, `folds` cuts them into that many galleries.

    With `average_precision`, every positive is ranked, not only the best one, and mAP is measured too; with None, if a
    text has several images. With `passes`, what an earlier call has left is continued, and an interrupted call leaves
    what it has done. `progress` receives the number of tiles of scores done and the total.
    """
    check_bootstrap(level, draws, seed)
    check_cutoffs(cutoffs)
    # before anything is cut, so that a text without an image cannot be lost between the folds
    check_positives(np.arange(len(image_groups)), image_groups, np.arange(len(text_groups)), text_groups)
    first_images = _first_images(image_groups)
    if gallery is not None:
        first_images = _first_gallery(image_groups, first_images, gallery)
    if not isinstance(folds, int | np.integer) or not 1 <= folds <= len(first_images):
        groups = len(first_images)
        raise ScoreError(f"{folds} folds of {groups} groups; take between 1 and {groups} folds")
    if average_precision is None:
        average_precision = average_precision_applies(image_groups)
    rank = ranks_with_precision if average_precision else ranks
    ranked = []
    for number, fold in enumerate(np.array_split(image_groups[first_images], folds)):
        rows = [np.flatnonzero(np.isin(column, fold)) for column in (image_groups, text_groups)]
        run = partial(_run, passes, progress, number, folds)
        ranked.append(
            rank(score, image_groups, text_groups, image_rows=rows[0], text_rows=rows[1], block=block, run=run)
        )
    return RetrievalResult(
        protocol=_protocol_name(ranked, gallery),
        metrics=mean_metrics([metrics_from_ranks(fold_ranks, cutoffs) for fold_ranks in ranked]),
        intervals=bootstrap_intervals(ranked, cutoffs=cutoffs, level=level, draws=draws, seed=seed),
        folds=tuple(ranked),
    )


def _run(
    passes: ResumablePasses | None, progress: ProgressCallback | None, fold: int, folds: int, tile_pass: TilePass
) -> None:
    """Go over the tiles of a fold; all folds have about as many."""
    if passes is None and progress is None:
        tile_pass.run()
        return
    report = progress or (lambda _done, _total: None)
    tiles = tile_pass.tiles
    (passes or ResumablePasses()).run(tile_pass, lambda done: report(fold * tiles + done, folds * tiles))


def gallery_subset(corpus: Corpus, gallery: int) -> Corpus:
    """The first `gallery` images of a corpus with all of their texts; raises ScoreError if that would cut a group."""
    first = _first_gallery(corpus.image_groups, _first_images(corpus.image_groups), gallery)
    kept = corpus.image_groups[first]
    return corpus.take(*(np.flatnonzero(np.isin(groups, kept)) for groups in (corpus.image_groups, corpus.text_groups)))


def _first_images(image_groups: Integers) -> Integers:
    """The row of each group's first image, in ascending order."""
    return np.sort(np.unique(image_groups, return_index=True)[1])


def _first_gallery(image_groups: Integers, first_images: Integers, gallery: int) -> Integers:
    """The first images of the groups that make up a gallery of `gallery` images."""
    if not isinstance(gallery, int | np.integer) or not 1 <= gallery <= len(image_groups):
        images = len(image_groups)
        raise ScoreError(f"a gallery of {gallery} from a corpus of {images} images; take between 1 and {images}")
    _, numbers, sizes = np.unique(image_groups, return_inverse=True, return_counts=True)
    ends = np.cumsum(sizes[numbers[first_images]])  # images up to and including each group
    last = int(np.searchsorted(ends, gallery))
    if ends[last] != gallery:
        below = f"{ends[last - 1]} or " if last else ""
        group = image_groups[first_images[last]]
        raise ScoreError(f"a gallery of {gallery} images cuts group {group} apart; take {below}{ends[last]} images")
    return first_images[: last + 1]


def _protocol_name(ranked: Sequence[Ranks], gallery: int | None) -> str:
    """The protocol in words, such as "5 folds of 1,000 images"."""
    if len(ranked) == 1:
        return "one gallery" if gallery is None else f"first {gallery:,} images"
    sizes = sorted({len(fold.images) for fold in ranked})
    size = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
    return f"{len(ranked)} folds of {size}" + (f" of the first {gallery:,} images" if gallery else " images")
