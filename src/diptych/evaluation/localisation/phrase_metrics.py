"""Metrics of phrase localisation: the rank of the first correct region of each mention among its photo's regions.

A region is correct if its overlap (intersection over union) with the box of the phrase is large enough; exactly large
enough, too. The rank of a
mention is 1 + the number of incorrect regions that score at least as high as its best correct one: ties are
pessimistic. A mention without a correct region is a miss at every cutoff; the percentage of the other mentions is the
ceiling that no model can pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from diptych.data.boxes import upper_iou
from diptych.data.corpus import Floats, Integers
from diptych.errors import ScoreError
from diptych.evaluation.metrics.paired_difference import PairedDifferences, named_differences
from diptych.evaluation.metrics.ranks import Ranks
from diptych.evaluation.metrics.recall import CUTOFFS
from diptych.evaluation.metrics.significance import Intervals, bootstrap_recalls, percentile_bounds

MIN_OVERLAP = 0.5  # intersection over union from which a region is correct: Flickr30K Entities
LEVEL, DRAWS, SEED = 0.95, 1000, 0

PHRASE = "phrase"  # the prefix of these metrics' names
# The metrics that a snapshot can be chosen by.
PHRASE_SELECTION_METRICS = (*(f"{PHRASE}_r{cutoff}" for cutoff in CUTOFFS), f"{PHRASE}_sum")

RegionRanks: TypeAlias = NDArray[np.float64]  # 1-based, infinite if no region is correct


def correct_regions(regions: Floats, boxes: Floats, overlap: float = MIN_OVERLAP) -> NDArray[np.bool_]:
    """Whether each region is correct for each box: (regions, boxes).

    >>> correct_regions(np.array([[0, 0, 1, 1], [0, 0, 1, 0.4]]), np.array([[0, 0, 1, 0.8]]))
    array([[ True],
           [ True]])
    """
    return np.asarray(upper_iou(regions, boxes) >= overlap)


def phrase_ranks(scores: Floats, correct: NDArray[np.bool_]) -> RegionRanks:
    """The rank of the first correct region of each phrase, from (regions, phrases) scores.

    >>> phrase_ranks(np.array([[3.0], [2.0], [2.0]]), np.array([[False], [True], [False]]))
    array([3.])
    """
    if np.isnan(scores).any():
        raise ScoreError("a region's score with a phrase is not a number; was the learning rate too high?")
    best = np.where(correct, scores, -np.inf).max(0, initial=-np.inf)
    before = ((scores >= best) & ~correct).sum(0)
    return np.where(correct.any(0), 1.0 + before, np.inf)


@dataclass(frozen=True, eq=False)
class GroundingResult:
    """The result of a phrase localisation, one row per mention; mentions in unreadable photos are left out.

    `rows` are the rows of the measured mentions among all, `boxes` their highest-scoring regions, zeros if the photo
    has no region. `skipped` maps the ids of unreadable images to the reason, `empty` lists images without a region.
    """

    ranks: RegionRanks  # (mentions,)
    images: Integers  # (mentions,)
    kinds: Sequence[tuple[str, ...]]  # (mentions,)
    rows: Integers  # (mentions,)
    boxes: Floats  # (mentions, 4), relative to the photo
    overlap: float = MIN_OVERLAP
    skipped: dict[str, str] = field(default_factory=dict)
    empty: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not len(self.ranks):
            first = next(iter(self.skipped.values()), "there is none")
            raise ScoreError(f"no phrase could be measured; first reason: {first}")

    def __len__(self) -> int:
        return len(self.ranks)

    @property
    def is_found(self) -> NDArray[np.bool_]:
        """Whether the highest-scoring region is correct, one entry per mention."""
        return np.asarray(self.ranks == 1)

    @cached_property
    def metrics(self) -> dict[str, float]:
        """Percentages under stable names: phrase_r1, phrase_r5, phrase_r10, their sum phrase_sum, and the ceiling."""
        return _metrics(self.ranks)

    @cached_property
    def by_kind(self) -> dict[str, dict[str, float]]:
        """The same metrics and the `count` of mentions for each kind of phrase, the most frequent kind first.

        A mention of several kinds counts in each.
        """
        rows: dict[str, list[int]] = {}
        for row, names in enumerate(self.kinds):
            for name in dict.fromkeys(names):
                rows.setdefault(name, []).append(row)
        ordered = sorted(rows.items(), key=lambda kind: (-len(kind[1]), kind[0]))
        return {name: {"count": len(mentions), **_metrics(self.ranks[mentions])} for name, mentions in ordered}

    @cached_property
    def intervals(self) -> Intervals:
        """The 95% interval of each metric; a draw takes photos with replacement, each with all of its mentions."""
        return Intervals(percentile_bounds(list(self.metrics), self.bootstrap_metrics, LEVEL), LEVEL, DRAWS, SEED)

    @cached_property
    def bootstrap_metrics(self) -> NDArray[np.float64]:
        """The metrics of each draw, (draws, metrics); results on the same photos share the draws."""
        # a photo is a group, and its mentions are the queries of the group
        never = np.iinfo(np.int64).max
        ranks = np.full(len(self), never)
        ranks[np.isfinite(self.ranks)] = self.ranks[np.isfinite(self.ranks)]
        photos = np.unique(self.images)
        rows = np.arange(len(photos)), np.arange(len(self))
        queries = Ranks(np.ones_like(photos), ranks, photos, self.images, *rows)
        cutoffs = (*CUTOFFS, never - 1)  # the last one counts every mention that has a correct region: the ceiling
        recalls = bootstrap_recalls(queries, cutoffs, DRAWS, np.random.default_rng(SEED))[:, len(cutoffs) :]
        return np.column_stack([recalls[:, :-1], recalls[:, :-1].sum(1), recalls[:, -1]])

    def subset(self, rows: Integers) -> GroundingResult:
        """The result for the mentions with these `rows`."""
        kept = np.flatnonzero(np.isin(self.rows, rows))
        return replace(
            self,
            ranks=self.ranks[kept],
            images=self.images[kept],
            kinds=[self.kinds[row] for row in kept.tolist()],
            rows=self.rows[kept],
            boxes=self.boxes[kept],
        )

    def to_json(self) -> dict[str, Any]:
        """Sizes, metrics, intervals and the metrics of each kind under stable names, without the ranks."""
        return {
            "mentions": len(self),
            "images": len(np.unique(self.images)),
            "overlap": self.overlap,
            "metrics": self.metrics,
            "intervals": self.intervals.to_json(),
            "kinds": self.by_kind,
            "skipped": self.skipped,
            "empty": list(self.empty),
        }


def paired_phrase_difference(first: GroundingResult, second: GroundingResult) -> PairedDifferences:
    """The second model minus the first on the same phrases, with percentile intervals over shared draws of photos."""
    if not np.array_equal(first.rows, second.rows) or not np.array_equal(first.images, second.images):
        raise ScoreError("a paired difference needs the ranks of the same phrases in the same order")
    drawn = second.bootstrap_metrics - first.bootstrap_metrics
    bounds = percentile_bounds(list(second.metrics), drawn, LEVEL)
    return PairedDifferences(named_differences(first.metrics, second.metrics, bounds), LEVEL, DRAWS, SEED)


def _metrics(ranks: RegionRanks) -> dict[str, float]:
    recalls = {f"{PHRASE}_r{cutoff}": float(np.mean(ranks <= cutoff) * 100) for cutoff in CUTOFFS}
    return recalls | {f"{PHRASE}_sum": sum(recalls.values()), "ceiling": float(np.isfinite(ranks).mean() * 100)}
