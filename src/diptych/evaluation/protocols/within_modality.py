"""Retrieval within one modality: a text looks for the other texts of its group, an image for the other images.

The query itself is neither an answer nor a rival. Everything else is as between the modalities (`ranks`): the rank is
1 + the number of negatives that score at least as high as the best positive, counted in tiles. Two texts are scored
as an image and a text are, by the matcher's own score; where that is not symmetric, a query keeps the place that it has
between the modalities, a text the text's and an image the image's.

Reference: two-branch networks, section 5.5 and Table 4 (sentence-to-sentence retrieval).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from diptych.data.corpus import Integers
from diptych.errors import ScoreError
from diptych.evaluation.metrics.ranks import BLOCK, Ranks, Score, Tally, embedding_score, mean_score, sides
from diptych.evaluation.metrics.recall import CUTOFFS, IMAGE_TO_TEXT, DirectionMetrics, direction_metrics
from diptych.evaluation.metrics.significance import Intervals, bootstrap_intervals
from diptych.evaluation.runs import ensemble_score
from diptych.models.encoded_corpus import EncodedCorpus

Modality = Literal["texts", "images"]

# How a metric's name begins: "t2t_r1" is recall at 1 of texts looking for the other texts of their group.
PREFIXES: dict[Modality, str] = {"texts": "t2t", "images": "i2i"}


@dataclass(frozen=True, eq=False)
class WithinModalityRanks:
    """1-based ranks of the queries, beside each query's group and its row; `alone` had no other of their group."""

    ranks: Integers
    groups: Integers
    rows: Integers
    alone: int


@dataclass(frozen=True, eq=False)
class WithinModalityResult:
    """How well the items of one modality find the others of their group, with intervals and the rank of each query."""

    modality: Modality
    metrics: DirectionMetrics
    intervals: Intervals
    found: WithinModalityRanks

    @property
    def size(self) -> int:
        """All that was searched: the queries, and those that are alone in their group."""
        return len(self.found.ranks) + self.found.alone

    def to_json(self) -> dict[str, Any]:
        """Sizes, metrics and intervals under lasting names (t2t_r1, ..., or i2i_r1, ...); ranks are left out."""
        prefix = PREFIXES[self.modality]
        recalls = {f"{prefix}_r{cutoff}": recall for cutoff, recall in self.metrics.recalls.items()}
        return {
            "protocol": f"{self.modality} among {self.modality}",
            self.modality: self.size,
            "queries": len(self.found.ranks),
            "alone": self.found.alone,
            "metrics": {**recalls, f"{prefix}_median": self.metrics.median, f"{prefix}_mean": self.metrics.mean},
            "intervals": self.intervals.to_json(),
        }


def evaluate_within_modality(
    encoded: Sequence[EncodedCorpus],
    modality: Modality,
    *,
    cutoffs: Sequence[int] = CUTOFFS,
    level: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> WithinModalityResult:
    """Measure the texts or the images of encodings among themselves; several encodings are an ensemble."""
    groups = encoded[0].text_groups if modality == "texts" else encoded[0].image_groups
    found = within_ranks(within_score(encoded, modality), groups, modality)
    # the draws of groups are those of a two-sided measurement of which both sides are this one
    both = Ranks(found.ranks, found.ranks, found.groups, found.groups, found.rows, found.rows)
    drawn = bootstrap_intervals([both], cutoffs=cutoffs, level=level, draws=draws, seed=seed)
    bounds = {f"{PREFIXES[modality]}_r{cutoff}": drawn.bounds[f"{IMAGE_TO_TEXT}_r{cutoff}"] for cutoff in cutoffs}
    return WithinModalityResult(
        modality, direction_metrics(found.ranks, cutoffs), Intervals(bounds, level, draws, seed), found
    )


def within_score(encoded: Sequence[EncodedCorpus], modality: Modality) -> Score:
    """The score of one modality's items with each other, the mean over an ensemble; only embedding models have one."""
    for each in encoded:
        if each.matcher().embedding_dim is None:
            raise ScoreError(
                f"a model {each.settings.name!r} scores images with texts only; "
                f"{modality} among {modality} need an embedding model, such as two_branch or vse"
            )
    ensemble_score(encoded)  # refuses those of different corpora
    items = [each.texts if modality == "texts" else each.images for each in encoded]
    scores = [embedding_score(each.matcher().score, rows, rows) for each, rows in zip(encoded, items, strict=True)]
    return mean_score(scores) if len(scores) > 1 else scores[0]


@torch.no_grad()
def within_ranks(
    score: Score, groups: Integers, modality: Modality = "texts", *, block: int = BLOCK
) -> WithinModalityRanks:
    """Rank the others of its group for each item; items alone in their group are no queries, only rivals.

    A NaN score is a ScoreError, and so are groups that all have one item.
    """
    rows = np.arange(len(groups))
    images, texts = sides(score, groups, groups, rows, rows)
    _, places, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    asking = np.flatnonzero(sizes[places] > 1)
    if not len(asking):
        raise ScoreError(f"no group has two {modality}; there is nothing to find among the {modality} themselves")
    _OthersTally(score, images, texts).run(block)
    ranks = (texts if modality == "texts" else images).ranks()
    return WithinModalityRanks(ranks[asking], groups[asking], asking, len(groups) - len(asking))


class _OthersTally(Tally):
    """Looks for the best of the others: an item is not its own answer. It is of its group, so it is no rival either."""

    def learn(self, rows: slice, columns: slice, tile: Tensor, positives: Tensor) -> None:
        """Raise the best positives to those of this tile, the item itself left out."""
        itself = self.images.rows[rows, None] == self.texts.rows[columns]
        super().learn(rows, columns, tile, positives & torch.from_numpy(~itself).to(tile.device))
