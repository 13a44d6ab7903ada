"""Objectives that compute the loss of each query by itself, in the same way for both directions.

So they can be computed for a few queries at a time, without holding all scores of a batch.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol

import torch
from torch import Tensor

from diptych.objectives.extras import WithinScores
from diptych.objectives.objective import Loss, Objective, ScoredPairs

Direction = Literal["image_to_text", "text_to_image"]
DIRECTIONS: tuple[Direction, Direction] = ("image_to_text", "text_to_image")


@dataclass(frozen=True)
class Queries:
    """Some images or texts of a batch, each looking for its counterpart among all items of the other side.

    `scores` is (queries, pairs), `positive_column` the column of each query's own pair, `positives` as in
    `ScoredPairs`; `within` scores the queries against all items of their own side.
    """

    scores: Tensor
    positive_column: Tensor
    positives: Tensor
    within: Tensor | None = None
    parameters: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def positive_scores(self) -> Tensor:
        """The score of each query with its own counterpart: (queries, 1)."""
        return self.scores.gather(1, self.positive_column[:, None])

    @property
    def is_positive_column(self) -> Tensor:
        """Marks each query's own pair: (queries, pairs), true once per row."""
        columns = torch.arange(self.scores.shape[1], device=self.positive_column.device)
        return self.positive_column[:, None] == columns


class QuerySource(Protocol):
    """A batch that yields its queries, a few or all at a time."""

    def __len__(self) -> int:
        """The number of pairs."""
        ...

    def queries(self, direction: Direction, rows: Tensor) -> Queries:
        """The queries of these pairs in one direction."""
        ...


class Ranking(Objective):
    """An objective that computes the loss of each query by itself."""

    supports_chunks: ClassVar[bool] = True
    is_mean: ClassVar[bool] = False  # whether the loss is the mean over the pairs rather than the sum

    @abstractmethod
    def per_query_loss(self, queries: Queries) -> Tensor:
        """The loss of each query: (queries,)."""

    def loss(self, batch: ScoredPairs) -> Loss:
        """The two directions as terms; the whole batch is one chunk."""
        rows = torch.arange(len(batch.scores), device=batch.scores.device)
        return self.chunked_loss(_ScoredQueries(batch), [rows], lambda loss: loss)

    def chunked_loss(self, source: QuerySource, chunks: Sequence[Tensor], on_share: Callable[[Tensor], Tensor]) -> Loss:
        """The loss over chunks of rows that cover the batch; `on_share` may run backward on a chunk's share."""
        weight = 1 / len(source) if self.is_mean else 1
        terms: dict[str, Tensor] = {}
        for direction in DIRECTIONS:
            shares = [on_share(self.per_query_loss(source.queries(direction, rows)).sum() * weight) for rows in chunks]
            terms[direction] = sum(shares[1:], shares[0])
        return Loss(terms, self.is_mean)


@dataclass(frozen=True)
class _ScoredQueries:
    """The queries of a batch whose scores are all known; they are asked for all at once."""

    batch: ScoredPairs

    def __len__(self) -> int:
        return len(self.batch.scores)

    def queries(self, direction: Direction, rows: Tensor) -> Queries:
        batch, within = self.batch, self.batch.extras.get(WithinScores)
        assert len(rows) == len(batch.scores), "the queries of a scored batch are asked for all at once"
        if direction == "image_to_text":
            same_side = None if within is None else within.images
            return Queries(batch.scores, rows, batch.positives, same_side, batch.parameters)
        same_side = None if within is None else within.texts
        return Queries(batch.scores.t(), rows, batch.positives.t(), same_side, batch.parameters)
