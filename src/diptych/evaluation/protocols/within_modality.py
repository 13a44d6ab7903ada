"""Retrieval within one modality: a text as a query for the other texts of its group, or an image for other images.

The query itself is neither a positive nor a negative. Otherwise ranks are those of retrieval between the modalities:
1 + the number of negatives that score at least as high as the best positive. Two texts are scored as an image and a
text are, by the matcher's `score`; if that is not symmetric, the query keeps its argument: a text query is the second
argument, an image query the first.

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
from diptych.evaluation.metrics.ranks import RankCounter, Ranks
from diptych.evaluation.metrics.recall import CUTOFFS, IMAGE_TO_TEXT, DirectionMetrics, direction_metrics
from diptych.evaluation.metrics.scores import Score, embedding_score, mean_score
from diptych.evaluation.metrics.significance import Intervals, bootstrap_intervals
from diptych.evaluation.metrics.tiles import BLOCK, group_items
from diptych.evaluation.runs import ensemble_score
from diptych.models.encoded_corpus import EncodedCorpus

Modality = Literal["texts", "images"]

# Prefixes of metric names: "t2t_r1" is recall at 1 of texts as queries for the other texts of their group.
PREFIXES: dict[Modality, str] = {"texts": "t2t", "images": "i2i"}


@dataclass(frozen=True, eq=False)
class WithinModalityRanks:
    """1-based ranks of the queries, with each query's group and row.

    `singletons` is the number of items that are alone in their group: negatives of others, but no queries.
    """

    ranks: Integers
    groups: Integers
    rows: Integers
    singletons: int


@dataclass(frozen=True, eq=False)
class WithinModalityResult:
    """The metrics of one modality's retrieval, their intervals, and the rank of each query."""

    modality: Modality
    metrics: DirectionMetrics
    intervals: Intervals
    ranks: WithinModalityRanks

    @property
    def size(self) -> int:
        """The number of items searched: the queries and the singletons."""
        return len(self.ranks.ranks) + self.ranks.singletons

    def to_json(self) -> dict[str, Any]:
        """Sizes, metrics and intervals under stable names (t2t_r1, ..., or i2i_r1, ...), without the ranks."""
        prefix = PREFIXES[self.modality]
        recalls = {f"{prefix}_r{cutoff}": recall for cutoff, recall in self.metrics.recalls.items()}
        return {
            "protocol": f"{self.modality} among {self.modality}",
            self.modality: self.size,
            "queries": len(self.ranks.ranks),
            "alone": self.ranks.singletons,
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
    """Measure retrieval among the texts, or among the images, of encodings; several encodings are an ensemble."""
    groups = encoded[0].text_groups if modality == "texts" else encoded[0].image_groups
    found = within_ranks(within_score(encoded, modality), groups, modality)
    # the bootstrap takes two directions: these queries stand for both, and only the first is reported
    both = Ranks(found.ranks, found.ranks, found.groups, found.groups, found.rows, found.rows)
    drawn = bootstrap_intervals([both], cutoffs=cutoffs, level=level, draws=draws, seed=seed)
    bounds = {f"{PREFIXES[modality]}_r{cutoff}": drawn.bounds[f"{IMAGE_TO_TEXT}_r{cutoff}"] for cutoff in cutoffs}
    metrics = direction_metrics(found.ranks, cutoffs)
    return WithinModalityResult(modality, metrics, Intervals(bounds, level, draws, seed), found)


def within_score(encoded: Sequence[EncodedCorpus], modality: Modality) -> Score:
    """The score of one modality's items with each other; raises ScoreError unless all are from embedding models."""
    for each in encoded:
        if each.matcher().embedding_dim is None:
            raise ScoreError(
                f"a model {each.settings.name!r} scores images with texts only; "
                f"{modality} among {modality} need an embedding model, such as two_branch or vse"
            )
    ensemble_score(encoded)  # refuses encodings of different corpora
    items = [each.texts if modality == "texts" else each.images for each in encoded]
    scores = [embedding_score(each.matcher().score, rows, rows) for each, rows in zip(encoded, items, strict=True)]
    return mean_score(scores) if len(scores) > 1 else scores[0]


@torch.no_grad()
def within_ranks(
    score: Score, groups: Integers, modality: Modality = "texts", *, block: int = BLOCK
) -> WithinModalityRanks:
    """The rank of the best other item of its group, for each item that is not alone in its group.

    Raises ScoreError if a score is NaN, or if every item is alone in its group.
    """
    rows = np.arange(len(groups))
    _, numbers, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    counter = _OthersCounter(score, *group_items(score, groups, groups, rows, rows), block)
    queries = np.flatnonzero(sizes[numbers] > 1)
    if not len(queries):
        raise ScoreError(f"no group has two {modality}; there is nothing to find among the {modality} themselves")
    counter.run()
    ranks = counter.text_ranks() if modality == "texts" else counter.image_ranks()
    return WithinModalityRanks(ranks[queries], groups[queries], queries, len(groups) - len(queries))


class _OthersCounter(RankCounter):
    """Leaves the query out of its own positives; being of the same group, it is no negative either."""

    def collect_positives(self, rows: slice, columns: slice, tile: Tensor, positives: Tensor) -> None:
        """Raise the best positive scores to those of this tile, without the query itself."""
        itself = self.images.rows[rows, None] == self.texts.rows[columns]
        super().collect_positives(rows, columns, tile, positives & torch.from_numpy(~itself).to(tile.device))
