"""The scores of all images with all texts, computed tile by tile when they are needed.

The full (images, texts) matrix never has to fit in memory. Everything that ranks, mines or analyses takes a `Score`,
whether it comes from encodings, from a stored matrix or from an ensemble.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

import torch
from torch import Tensor

from diptych.errors import ScoreError
from diptych.models.spread_rows import SpreadRows
from diptych.ranks import ALONE, Ranks

Index: TypeAlias = slice | Tensor

# With fewer rows or columns, a matrix product may round equal sums differently from one position to the next, and
# equal embeddings would not tie.
MIN_PRODUCT_SIZE = 8

Part_co = TypeVar("Part_co", covariant=True)


class Rows(Protocol[Part_co]):
    """Encoded images or texts that can be indexed by rows, as a tensor can."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Index, /) -> Part_co: ...


@dataclass(frozen=True)
class Score:
    """The scores of every image with every text; higher is better.

    `against(texts)` prepares some texts once and returns a function from images to their (images, texts) scores.
    `spread` has the images and the texts of each model whose encodings are spread over ranks, if any: a rank can then
    score only those that were placed on it or are shown to it.

    >>> score = matrix_score(torch.tensor([[0.9, 0.1, 0.2], [0.3, 0.8, 0.7]]))
    >>> score.images, score.texts
    (2, 3)
    >>> score.against(slice(1, 3))(slice(0, 1))
    tensor([[0.1000, 0.2000]])
    """

    images: int
    texts: int
    against: Callable[[Index], Callable[[Index], Tensor]]
    spread: tuple[tuple[SpreadRows, SpreadRows], ...] = ()

    @property
    def ranks(self) -> Ranks:
        """The ranks that encodings are spread over, or this process alone."""
        return self.spread[0][0].ranks if self.spread else ALONE


def embedding_score(score: Callable[[Part_co, Part_co], Tensor], images: Rows[Part_co], texts: Rows[Part_co]) -> Score:
    """Score encoded images and texts with a matcher's `score`; the texts of a tile are gathered only once."""

    def against(columns: Index) -> Callable[[Index], Tensor]:
        width, columns = _pad_index(columns, len(texts))
        tile_texts = texts[columns]

        def tile(rows: Index) -> Tensor:
            height, rows = _pad_index(rows, len(images))
            return score(images[rows], tile_texts)[:height, :width]

        return tile

    if isinstance(images, SpreadRows) and isinstance(texts, SpreadRows):
        return Score(len(images), len(texts), against, ((images, texts),))
    return Score(len(images), len(texts), against)


def matrix_score(matrix: Tensor) -> Score:
    """Read the scores from an (images, texts) matrix, which may be memory-mapped and is never written to."""
    images, texts = matrix.shape
    return Score(images, texts, lambda columns: lambda rows: matrix[rows][:, columns])


def mean_score(scores: Sequence[Score]) -> Score:
    """The score of an ensemble: the mean of several scores of the same images and texts."""
    sizes = {(score.images, score.texts) for score in scores}
    if len(sizes) != 1:
        listed = ", ".join(f"{images} x {texts}" for images, texts in sorted(sizes)) or "none"
        raise ScoreError(f"an ensemble needs scores of the same images and texts, not {listed}")

    def against(columns: Index) -> Callable[[Index], Tensor]:
        members = [score.against(columns) for score in scores]
        return lambda rows: torch.stack([member(rows) for member in members]).mean(0)

    return Score(scores[0].images, scores[0].texts, against, tuple(pair for score in scores for pair in score.spread))


def _pad_index(index: Index, length: int) -> tuple[int, Index]:
    """The number of rows that an index selects, and the index, with rows repeated up to MIN_PRODUCT_SIZE."""
    rows = range(length)[index] if isinstance(index, slice) else index
    if len(rows) >= MIN_PRODUCT_SIZE:
        return len(rows), index
    return len(rows), torch.tensor([int(rows[position % len(rows)]) for position in range(MIN_PRODUCT_SIZE)])
