"""Phrase localisation, measured: where the first right region of each phrase stands among its photo's regions.

A region is right where it shares enough of what it and the phrase's box cover. The rank of a mention is 1 + the number
of wrong regions that score at least as high as its best right one: equal scores rank worse. Where no region is right it
is a miss at every cutoff; the share of the other mentions is the ceiling that no model can pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from diptych.data.boxes import box_iou
from diptych.data.corpus import Floats, Integers
from diptych.errors import ScoreError
from diptych.evaluation.metrics.ranks import Ranks
from diptych.evaluation.metrics.recall import CUTOFFS
from diptych.evaluation.metrics.significance import Intervals, bootstrap_recalls

MIN_OVERLAP = 0.5  # of what both cover, from which on a region is right: Flickr30K Entities
LEVEL, DRAWS, SEED = 0.95, 1000, 0

PHRASE = "phrase"  # how the names of these metrics begin
# The metrics a snapshot can be chosen by.
SELECTABLE = (*(f"{PHRASE}_r{cutoff}" for cutoff in CUTOFFS), f"{PHRASE}_sum")

_ROUNDING = 1e-6  # boxes are kept in single precision, and one that shares exactly enough is right

Places: TypeAlias = NDArray[np.float64]  # ranks from 1 on, infinite where no candidate is right


def correct_regions(candidates: Floats, boxes: Floats, overlap: float = MIN_OVERLAP) -> NDArray[np.bool_]:
    """Whether each candidate is right for each box: (candidates, boxes)."""
    shared = box_iou(candidates.astype(np.float64), boxes.astype(np.float64))
    return np.asarray(shared >= overlap - _ROUNDING)


def phrase_ranks(scores: Floats, right: NDArray[np.bool_]) -> Places:
    """The rank of the first right candidate of each phrase, from (candidates, phrases) scores.

    >>> phrase_ranks(np.array([[3.0], [2.0], [2.0]]), np.array([[False], [True], [False]]))
    array([3.])
    """
    if np.isnan(scores).any():
        raise ScoreError("a region's score with a phrase is not a number; was the training rate too high?")
    best = np.where(right, scores, -np.inf).max(0, initial=-np.inf)
    before = ((scores >= best) & ~right).sum(0)
    return np.where(right.any(0), 1.0 + before, np.inf)


@dataclass(frozen=True, eq=False)
class GroundingResult:
    """What an evaluation of phrase localisation found, a row a mention; photos that cannot be read are left out.

    `rows` are the measured mentions among all, `boxes` the regions that scored highest for them, zeros where the photo
    has none. `skipped` says by the image's id why a photo was left out, `empty` names those without any region.
    """

    ranks: Places  # (mentions,)
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
    def found(self) -> NDArray[np.bool_]:
        """Whether the region that scored highest is right, a mention."""
        return np.asarray(self.ranks == 1)

    @cached_property
    def metrics(self) -> dict[str, float]:
        """In percent under lasting names: phrase_r1, phrase_r5, phrase_r10, their sum phrase_sum, and the ceiling."""
        return _measured(self.ranks)

    @cached_property
    def by_kind(self) -> dict[str, dict[str, float]]:
        """The same metrics and the `count` of mentions of each kind, the most frequent first.

        A mention of several kinds counts in each.
        """
        rows: dict[str, list[int]] = {}
        for row, names in enumerate(self.kinds):
            for name in dict.fromkeys(names):
                rows.setdefault(name, []).append(row)
        ordered = sorted(rows.items(), key=lambda each: (-len(each[1]), each[0]))
        return {name: {"count": len(own), **_measured(self.ranks[own])} for name, own in ordered}

    @cached_property
    def intervals(self) -> Intervals:
        """The 95% interval of each metric; a draw takes photos with replacement, each with all of its mentions."""
        lows, highs = np.quantile(self.drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
        bounds = {name: (float(low), float(high)) for name, low, high in zip(self.metrics, lows, highs, strict=True)}
        return Intervals(bounds, LEVEL, DRAWS, SEED)

    @cached_property
    def drawn(self) -> NDArray[np.float64]:
        """The metrics of each draw, (draws, metrics); what was measured on the same photos has the same draws."""
        # a photo is a group, and its mentions are the group's queries
        never = np.iinfo(np.int64).max
        ranks = np.full(len(self), never)
        ranks[np.isfinite(self.ranks)] = self.ranks[np.isfinite(self.ranks)]
        photos = np.unique(self.images)
        rows = np.arange(len(photos)), np.arange(len(self))
        queries = Ranks(np.ones_like(photos), ranks, photos, self.images, *rows)
        cutoffs = (*CUTOFFS, never - 1)
        shares = bootstrap_recalls(queries, cutoffs, DRAWS, np.random.default_rng(SEED))[:, len(cutoffs) :]
        return np.column_stack([shares[:, :-1], shares[:, :-1].sum(1), shares[:, -1]])

    def only(self, rows: Integers) -> GroundingResult:
        """What was found of these mentions, named by their `rows`."""
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
        """Sizes, metrics, intervals and the metrics of each kind under lasting names; ranks are left out."""
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


def _measured(ranks: Places) -> dict[str, float]:
    recalls = {f"{PHRASE}_r{cutoff}": float(np.mean(ranks <= cutoff) * 100) for cutoff in CUTOFFS}
    return recalls | {f"{PHRASE}_sum": sum(recalls.values()), "ceiling": float(np.isfinite(ranks).mean() * 100)}
