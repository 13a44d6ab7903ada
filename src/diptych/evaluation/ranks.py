"""Ranks of the right answers: for each image among the texts, for each text among the images.

The rank of a query is 1 + the number of negatives that score at least as high as its best positive, so equal scores
rank worse and other positives never count. Nothing is sorted: two comparisons a score, counted tile by tile, give both
directions from one product, and memory is that of a tile however many images and texts there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from diptych.data.corpus import Integers
from diptych.errors import ScoreError

Index: TypeAlias = slice | Tensor
Block: TypeAlias = tuple[int, int]

# Images and texts of a tile: large enough for a fast product, small enough to stay in the cache while it is counted.
BLOCK: Block = (512, 2560)

# A product with fewer rows or columns rounds equal sums differently from place to place: equal embeddings do not tie.
NARROWEST = 8

Part = TypeVar("Part", covariant=True)


class Rows(Protocol[Part]):
    """Encoded images or texts that can be had in part, as a tensor can."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Index, /) -> Part: ...


@dataclass(frozen=True)
class Score:
    """The scores of every image with every text, higher is better, made in tiles when they are asked for.

    `against(texts)` prepares some texts once and gives a function from images to their (images, texts) scores.
    """

    images: int
    texts: int
    against: Callable[[Index], Callable[[Index], Tensor]]


def embedding_score(score: Callable[[Part, Part], Tensor], images: Rows[Part], texts: Rows[Part]) -> Score:
    """Score encoded images and texts with a matcher's `score`, gathering a tile's texts once for all images."""

    def against(columns: Index) -> Callable[[Index], Tensor]:
        count, columns = _widened(columns, len(texts))
        part = texts[columns]

        def tile(rows: Index) -> Tensor:
            height, rows = _widened(rows, len(images))
            return score(images[rows], part)[:height, :count]

        return tile

    return Score(len(images), len(texts), against)


def matrix_score(matrix: Tensor) -> Score:
    """Take the scores from an (images, texts) matrix, which may be memory-mapped; it is only read."""
    images, texts = matrix.shape
    return Score(images, texts, lambda columns: lambda rows: matrix[rows][:, columns])


def mean_score(scores: Sequence[Score]) -> Score:
    """Score with an ensemble: the mean of several scores of the same images and texts."""
    sizes = {(score.images, score.texts) for score in scores}
    if len(sizes) != 1:
        listed = ", ".join(f"{images} x {texts}" for images, texts in sorted(sizes)) or "none"
        raise ScoreError(f"an ensemble needs scores of the same images and texts; these are {listed}")

    def against(columns: Index) -> Callable[[Index], Tensor]:
        parts = [score.against(columns) for score in scores]
        return lambda rows: torch.stack([part(rows) for part in parts]).mean(0)

    return Score(scores[0].images, scores[0].texts, against)


@dataclass(frozen=True, eq=False)
class Ranks:
    """1-based ranks, an entry a query, beside the query's group and its row in the corpus."""

    images: Integers
    texts: Integers
    image_groups: Integers
    text_groups: Integers
    image_rows: Integers
    text_rows: Integers


@torch.no_grad()
def ranks(
    score: Score,
    image_groups: Integers,
    text_groups: Integers,
    *,
    image_rows: Integers | None = None,
    text_rows: Integers | None = None,
    block: Block = BLOCK,
) -> Ranks:
    """Rank every image among the texts and every text among the images, or only these rows among each other.

    A NaN score, or a query without a positive, is a ScoreError that names the image and the text by their rows.
    """
    if (score.images, score.texts) != (len(image_groups), len(text_groups)):
        given = f"{score.images} images and {score.texts} texts"
        wanted = f"{len(image_groups)} images and {len(text_groups)} texts"
        raise ScoreError(f"scores of {given} for groups of {wanted}; were they made from the same corpus and split?")
    image_rows = np.arange(score.images) if image_rows is None else image_rows
    text_rows = np.arange(score.texts) if text_rows is None else text_rows
    image_groups, text_groups = image_groups[image_rows], text_groups[text_rows]
    _need_positives("image", image_rows, image_groups, "text", text_groups)
    _need_positives("text", text_rows, text_groups, "image", image_groups)

    image_numbers, text_numbers = _numbered(image_groups, text_groups)
    grid = _Grid(score, _Side(image_rows, image_numbers, block[0]), _Side(text_rows, text_numbers, block[1]))
    images, texts = grid.count(*grid.best_positives())
    return Ranks(images + 1, texts + 1, image_groups, text_groups, image_rows, text_rows)


def _widened(index: Index, length: int) -> tuple[int, Index]:
    """The number of rows that an index names, and the index, repeating rows where they make a product too narrow."""
    rows = torch.arange(length)[index] if isinstance(index, slice) else index
    if len(rows) >= NARROWEST:
        return len(rows), index
    return len(rows), rows[torch.arange(NARROWEST) % len(rows)]


def _need_positives(query: str, rows: Integers, groups: Integers, answer: str, answer_groups: Integers) -> None:
    if not len(rows):
        raise ScoreError(f"no {query} to rank; is the split empty?")
    alone = np.flatnonzero(~np.isin(groups, answer_groups))
    if len(alone):
        first = alone[0]
        others = f" (and {len(alone) - 1} more)" if len(alone) > 1 else ""
        raise ScoreError(
            f"{query} {rows[first]}{others}: no {answer} of its group {groups[first]} to find; leave such {query}s out"
        )


def _numbered(image_groups: Integers, text_groups: Integers) -> tuple[Integers, Integers]:
    """The groups numbered by their first image, so that images in the usual order are already in group order."""
    known, first, image_places = np.unique(image_groups, return_index=True, return_inverse=True)
    numbers = np.argsort(np.argsort(first))
    return numbers[image_places], numbers[np.searchsorted(known, text_groups)]


@dataclass(frozen=True)
class _Span:
    """One side of a tile: rows `start` to `stop` are scored, of which those before `fresh` were in the span before.

    The last span overlaps instead of being shorter: in products of one shape, equal embeddings score equal to the bit.
    """

    start: int
    fresh: int
    stop: int

    @property
    def counted(self) -> slice:
        return slice(self.fresh, self.stop)

    @property
    def inside(self) -> slice:
        return slice(self.fresh - self.start, self.stop - self.start)


class _Side:
    """The images or the texts of a grid, ordered by group and cut into spans of one size."""

    def __init__(self, rows: Integers, numbers: Integers, block: int) -> None:
        self.order = np.argsort(numbers, kind="stable")
        self.rows = rows[self.order]
        self.numbers = torch.from_numpy(numbers[self.order].astype(np.int32))
        count = len(rows)
        size = -(-count // -(-count // block))  # as even as can be, and at most a block
        self.spans = [
            _Span(min(start, count - size), start, min(start + size, count)) for start in range(0, count, size)
        ]

    def index(self, span: _Span) -> Index:
        """The rows of a span: a slice where they follow each other, because a slice copies nothing."""
        rows = self.rows[span.start : span.stop]
        if (np.diff(rows) == 1).all():
            return slice(int(rows[0]), int(rows[-1]) + 1)
        return torch.from_numpy(rows)

    def restored(self, values: Tensor) -> Integers:
        """Values in group order, put back into the order of the rows that were given."""
        restored = np.empty(len(self.order), np.int64)
        restored[self.order] = values.numpy()
        return restored


class _Grid:
    """The tiles of images by texts. Both sides are in group order, so the positives lie along the diagonal."""

    def __init__(self, score: Score, images: _Side, texts: _Side) -> None:
        self.score, self.images, self.texts = score, images, texts

    def best_positives(self) -> tuple[Tensor, Tensor]:
        """The best positive score of each image and each text, from the tiles on the diagonal alone.

        A sum in another order differs in its last bit and would break ties, so these scores come from the very
        products that `count` makes again, not from a product of each pair.
        """
        lowest = -torch.inf  # float64 holds any score exactly
        images = torch.full((len(self.images.rows),), lowest, dtype=torch.float64)
        texts = torch.full((len(self.texts.rows),), lowest, dtype=torch.float64)
        for row, column, tile, positives in self._tiles(diagonal_only=True):
            if positives is not None:
                scores = tile.masked_fill(~positives, lowest)
                images[row] = torch.maximum(images[row], scores.amax(1).to(images))
                texts[column] = torch.maximum(texts[column], scores.amax(0).to(texts))
        return images, texts

    def count(self, best_images: Tensor, best_texts: Tensor) -> tuple[Integers, Integers]:
        """How many negatives of each image and each text score at least as high as its best positive."""
        images = torch.zeros(len(self.images.rows), dtype=torch.int64)
        texts = torch.zeros(len(self.texts.rows), dtype=torch.int64)
        buffer = torch.empty(0)
        for row, column, tile, positives in self._tiles():
            if buffer.shape != tile.shape or buffer.device != tile.device:
                buffer = torch.empty(tile.shape, device=tile.device)
            for counts, place, thresholds, axis in (
                (images, row, best_images[row, None], 1),
                (texts, column, best_texts[column], 0),
            ):
                # ones and zeros as floats: several times faster to make and to sum than booleans
                torch.ge(tile, thresholds.to(tile), out=buffer)
                if positives is not None:
                    buffer.masked_fill_(positives, 0)
                counts[place] += buffer.sum(axis).to(counts)
        return self.images.restored(images), self.texts.restored(texts)

    def _tiles(self, *, diagonal_only: bool = False) -> Iterator[tuple[slice, slice, Tensor, Tensor | None]]:
        """The places of each tile's images and texts, its scores, and its positives where it may have any."""
        for column in self.texts.spans:
            against = self.score.against(self.texts.index(column))
            text_numbers = self.texts.numbers[column.counted]
            for row in self.images.spans:
                image_numbers = self.images.numbers[row.counted]
                positives = None
                if image_numbers[0] <= text_numbers[-1] and text_numbers[0] <= image_numbers[-1]:
                    positives = image_numbers[:, None] == text_numbers
                elif diagonal_only:
                    continue
                tile = self._checked(against(self.images.index(row)), row, column)
                positives = None if positives is None else positives.to(tile.device)
                yield row.counted, column.counted, tile[row.inside, column.inside], positives

    def _checked(self, tile: Tensor, row: _Span, column: _Span) -> Tensor:
        shape = (row.stop - row.start, column.stop - column.start)
        if tile.shape != shape or not tile.is_floating_point():
            raise ScoreError(
                f"a score gave {tuple(tile.shape)} {tile.dtype} for {shape[0]} images and {shape[1]} texts; "
                "it must give (images, texts) floating point numbers"
            )
        # the sum is NaN if any score is, or if infinities cancel: only then is it worth looking at each
        if tile.sum().isnan() and len(wrong := tile.isnan().nonzero()):
            image, text = self.images.rows[row.start + wrong[0, 0]], self.texts.rows[column.start + wrong[0, 1]]
            raise ScoreError(f"image {image} and text {text}: their score is not a number; did training diverge?")
        return tile
