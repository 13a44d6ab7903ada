"""The rank of every positive pair, not only of each query's best: how many negatives of the query reach its score."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from diptych.data.corpus import Integers
from diptych.evaluation.metrics.scores import Score
from diptych.evaluation.metrics.tiles import GroupedItems, TilePass
from diptych.ranks import Ranks

# Up to this many positives per query, one comparison for each of them is faster than a search among them.
MAX_COMPARISONS = 40


class QueryPositives:
    """The scores of each query's positives, in group order, and how many negatives reach each of them.

    The positives of query q are consecutive on the other side, from position `starts[q]` on. `scores` and `counts`
    are flat, query after query: the entries of query q begin at `offsets[q]`, and there are `sizes[q]` of them.
    """

    def __init__(self, queries: GroupedItems, answers: GroupedItems) -> None:
        first, last = (np.searchsorted(answers.numbers, queries.numbers, side) for side in ("left", "right"))
        self.starts, self.sizes = first, last - first
        self.offsets = np.append(0, np.cumsum(self.sizes))
        self.scores = torch.zeros(int(self.offsets[-1]), dtype=torch.float64)  # holds a score of any precision exactly
        self.counts = torch.zeros(int(self.offsets[-1]), dtype=torch.int64)

    def set_scores(self, queries: Integers, answers: Integers, scores: Tensor) -> None:
        """Store the scores of some positive pairs, given by their positions in group order."""
        self.scores[torch.from_numpy(self.offsets[queries] + answers - self.starts[queries])] = scores

    def exchange_scores(self, ranks: Ranks, span: slice) -> None:
        """Give all ranks the scores of all queries, of which this rank knows those of a span."""
        self.scores = ranks.all_rows(self.scores[self._flat(span)])

    def thresholds(self, span: slice) -> tuple[Tensor, Tensor]:
        """The scores of the positives of a span of queries, padded: (queries, most positives); and which are filled."""
        sizes = torch.from_numpy(self.sizes[span])
        filled = torch.arange(int(sizes.max())) < sizes[:, None]
        thresholds = torch.full(filled.shape, torch.inf, dtype=torch.float64)
        thresholds[filled] = self.scores[self._flat(span)]
        return thresholds, filled

    def add_counts(self, span: slice, counts: Tensor) -> None:
        """Add to the counts of a span of queries, one entry per positive."""
        self.counts[self._flat(span)] += counts

    def _flat(self, span: slice) -> slice:
        return slice(int(self.offsets[span.start]), int(self.offsets[span.stop]))


class PairCounter(TilePass):
    """Counts, for every positive pair and in both directions, the negatives that score at least as high."""

    def __init__(self, score: Score, images: GroupedItems, texts: GroupedItems, block: int) -> None:
        super().__init__(score, images, texts, block)
        self.image_queries, self.text_queries = QueryPositives(images, texts), QueryPositives(texts, images)

    def exchange_positives(self, rows: slice, columns: slice) -> None:
        """Give all ranks the scores of the positive pairs of each."""
        self.image_queries.exchange_scores(self.ranks, rows)
        self.text_queries.exchange_scores(self.ranks, columns)

    def state(self) -> dict[str, Tensor]:
        """The scores of the positive pairs, and the counts of this rank."""
        images, texts = self.image_queries, self.text_queries
        scores = {"image_scores": images.scores, "text_scores": texts.scores}
        return {**scores, "image_counts": images.counts, "text_counts": texts.counts}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Continue from what `state` returned."""
        self.image_queries.scores, self.text_queries.scores = state["image_scores"], state["text_scores"]
        self.image_queries.counts, self.text_queries.counts = state["image_counts"], state["text_counts"]

    def negatives_above(self, queries: QueryPositives) -> Integers:
        """For every positive pair of all ranks, the number of negatives that score at least as high."""
        return self.ranks.sum_(queries.counts.clone()).numpy()

    def collect_positives(self, rows: slice, columns: slice, tile: Tensor, positives: Tensor) -> None:
        """Store the scores of this tile's positive pairs."""
        image, text = (position.cpu().numpy() for position in positives.nonzero(as_tuple=True))
        scores = tile[positives].cpu().double()
        image, text = image + rows.start, text + columns.start
        self.image_queries.set_scores(image, text, scores)
        self.text_queries.set_scores(text, image, scores)

    def collect_negatives(self, rows: slice, columns: slice, tile: Tensor, positives: Tensor | None) -> None:
        """Count the negatives of this tile that score at least as high as each positive of their query."""
        for queries, span, axis in ((self.image_queries, rows, 1), (self.text_queries, columns, 0)):
            thresholds, filled = queries.thresholds(span)
            if thresholds.shape[1] <= MAX_COMPARISONS:
                each = [self.count_at_least(threshold, axis, tile, positives) for threshold in thresholds.unbind(1)]
                counts = torch.stack(each, 1)
            else:
                counts = count_by_search(thresholds, axis, tile, positives)
            queries.add_counts(span, counts[filled])


def count_by_search(thresholds: Tensor, axis: int, tile: Tensor, positives: Tensor | None) -> Tensor:
    """The number of negatives along an axis that reach each threshold of each query: (queries, thresholds)."""
    kind = torch.promote_types(tile.dtype, torch.float32)
    ordered, order = thresholds.to(tile.device, kind).sort(dim=1)
    scores = (tile if axis == 1 else tile.T).to(kind).contiguous()  # (queries, answers)
    reached = torch.searchsorted(ordered, scores, right=True)  # how many thresholds each score reaches: the lowest ones
    if positives is not None:
        reached.masked_fill_(positives if axis == 1 else positives.T, 0)
    queries, most = thresholds.shape
    reached += (most + 1) * torch.arange(queries, device=tile.device)[:, None]
    scores_reaching = torch.bincount(reached.flatten(), minlength=queries * (most + 1)).view(queries, most + 1)
    at_least = scores_reaching.flip(1).cumsum(1).flip(1)[:, 1:]  # those that reach n thresholds or more
    return torch.empty_like(at_least).scatter(1, order, at_least).cpu()
