"""Ranks of the right answers: for each image among the texts, for each text among the images.

The rank of a query is 1 + the number of negatives that score at least as high as its best positive: equal
scores rank worse, and other positives never count. Nothing is sorted. Two comparisons a score, counted tile by
tile, give both directions from one product, and memory is that of a tile however large the corpus.
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

# Scores in a tile: enough for a fast product, few enough to stay in the cache while they are counted.
BLOCK = 512 * 2560

# Products are fastest at multiples of this many rows, by up to a sixth.
STEP = 64

# With fewer rows or columns a product rounds equal sums differently from place to place, and equal embeddings
# would not tie.
NARROWEST = 8

Part = TypeVar("Part", covariant=True)


class Rows(Protocol[Part]):
    """Encoded images or texts that can be had in part, as a tensor can."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Index, /) -> Part: ...


@dataclass(frozen=True)
class Score:
    """The scores of every image with every text, higher is better, made in tiles when they are asked for.

    `against(texts)` prepares some texts once, and gives a function from images to (images, texts) scores.
    """

    images: int
    texts: int
    against: Callable[[Index], Callable[[Index], Tensor]]


def embedding_score(score: Callable[[Part, Part], Tensor], images: Rows[Part], texts: Rows[Part]) -> Score:
    """Score encoded images and texts with a matcher's `score`, gathering a tile's texts only once."""

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
    block: int = BLOCK,
) -> Ranks:
    """Rank every image among the texts and every text among the images, or only these rows among each other.

    A NaN score, or a query without a positive, is a ScoreError that names the image or text by its row.
    """
    image_rows = np.arange(score.images) if image_rows is None else image_rows
    text_rows = np.arange(score.texts) if text_rows is None else text_rows
    images, texts = sides(score, image_groups, text_groups, image_rows, text_rows)
    Tally(score, images, texts).run(block)
    groups = image_groups[image_rows], text_groups[text_rows]
    return Ranks(images.ranks(), texts.ranks(), *groups, image_rows, text_rows)


def sides(
    score: Score, image_groups: Integers, text_groups: Integers, image_rows: Integers, text_rows: Integers
) -> tuple[Side, Side]:
    """These images and these texts in group order, after a check that groups and scores fit and all have a positive."""
    if (score.images, score.texts) != (len(image_groups), len(text_groups)):
        given = f"{score.images} images and {score.texts} texts"
        wanted = f"{len(image_groups)} images and {len(text_groups)} texts"
        raise ScoreError(f"scores of {given} for groups of {wanted}; make both from the same corpus and split")
    image_groups, text_groups = image_groups[image_rows], text_groups[text_rows]
    check_positives(image_rows, image_groups, text_rows, text_groups)
    image_numbers, text_numbers = _numbered(image_groups, text_groups)
    return Side(image_rows, image_numbers), Side(text_rows, text_numbers)


def _widened(index: Index, length: int) -> tuple[int, Index]:
    """How many rows an index names, and the index, with rows repeated where a product would be too narrow."""
    rows = range(length)[index] if isinstance(index, slice) else index
    if len(rows) >= NARROWEST:
        return len(rows), index
    return len(rows), torch.tensor([int(rows[place % len(rows)]) for place in range(NARROWEST)])


def check_positives(image_rows: Integers, image_groups: Integers, text_rows: Integers, text_groups: Integers) -> None:
    """Raise a ScoreError that names the first image without a text, or the first text without an image."""
    _need_positives("image", image_rows, image_groups, "text", text_groups)
    _need_positives("text", text_rows, text_groups, "image", image_groups)


def _need_positives(query: str, rows: Integers, groups: Integers, answer: str, answer_groups: Integers) -> None:
    if not len(rows):
        raise ScoreError(f"no {query} to rank; is the split empty?")
    alone = np.flatnonzero(~np.isin(groups, answer_groups))
    if len(alone):
        first = alone[0]
        others = f" (and {len(alone) - 1} more)" if len(alone) > 1 else ""
        wrong = f"{query} {rows[first]}{others}: no {answer} of its group {groups[first]} to find"
        raise ScoreError(f"{wrong}; rank the corpus without it (Corpus.matched)")


def _numbered(image_groups: Integers, text_groups: Integers) -> tuple[Integers, Integers]:
    """The groups numbered by their first image: images in the usual order are in group order already."""
    known, first, image_places = np.unique(image_groups, return_index=True, return_inverse=True)
    numbers = np.argsort(np.argsort(first))
    return numbers[image_places], numbers[np.searchsorted(known, text_groups)]


@dataclass(frozen=True)
class _Panel:
    """Some whole groups: their images and texts, in spans that make tiles of at most a block.

    All positives of a panel's images and texts are inside it, and nearly always in one tile: only a single group that
    is larger than a block makes more.
    """

    images: list[slice]
    texts: list[slice]


def _panels(image_numbers: Integers, text_numbers: Integers, block: int) -> list[_Panel]:
    """Cut images and texts, both in group order, between groups, into panels shaped like the whole."""
    height = min(block, max(1, int((block * len(image_numbers) / len(text_numbers)) ** 0.5)))
    height -= height % STEP if height > STEP else 0
    width = block // height
    image_ends = np.append(np.flatnonzero(np.diff(image_numbers)) + 1, len(image_numbers))  # a group's end
    text_ends = np.append(np.flatnonzero(np.diff(text_numbers)) + 1, len(text_numbers))
    panels, image, text, group = [], 0, 0, 0
    while group < len(image_ends):
        fitting = min(
            np.searchsorted(image_ends, image + height, "right"),
            np.searchsorted(text_ends, text + width, "right"),
        )
        group = max(int(fitting), group + 1)
        next_image, next_text = int(image_ends[group - 1]), int(text_ends[group - 1])
        panels.append(_Panel(_spans(image, next_image, height), _spans(text, next_text, width)))
        image, text = next_image, next_text
    return panels


def _spans(start: int, stop: int, size: int) -> list[slice]:
    return [slice(begin, min(begin + size, stop)) for begin in range(start, stop, size)]


class Side:
    """The images or the texts in group order: the best positive of each, and its negatives that are no worse."""

    def __init__(self, rows: Integers, numbers: Integers) -> None:
        self.order = np.argsort(numbers, kind="stable")
        self.rows, self.numbers = rows[self.order], numbers[self.order]
        self.best = torch.full((len(rows),), -torch.inf, dtype=torch.float64)  # holds any score exactly
        self.counts = torch.zeros(len(rows), dtype=torch.int64)

    def index(self, span: slice) -> Index:
        """The rows of a span: a slice where they follow each other, because a slice copies nothing."""
        rows = self.rows[span]
        if (np.diff(rows) == 1).all():
            return slice(int(rows[0]), int(rows[-1]) + 1)
        return torch.from_numpy(rows)

    def ranks(self) -> Integers:
        """The ranks in the order of the rows that were given."""
        ranks = np.empty(len(self.order), np.int64)
        ranks[self.order] = self.counts.numpy() + 1
        return ranks


class Tally:
    """Goes over the tiles, each once, first those with positives, and keeps count on both sides."""

    def __init__(self, score: Score, images: Side, texts: Side) -> None:
        self.score, self.images, self.texts = score, images, texts
        self.buffer = torch.empty(0)

    def run(self, block: int) -> None:
        """Learn and count with tiles of at most a block."""
        panels = _panels(self.images.numbers, self.texts.numbers, block)
        for panel in panels:
            for rows, columns, tile in self.tiles([panel], panel):
                positives = self.positives(rows, columns, tile)
                self.learn(rows, columns, tile, positives)
                # a panel of several tiles is one group, without negatives: no count can come too early
                self.count(rows, columns, tile, positives)
        for panel in panels:
            others = [other for other in panels if other is not panel]
            for rows, columns, tile in self.tiles(others, panel):
                self.count(rows, columns, tile, None)

    def tiles(self, image_panels: list[_Panel], text_panel: _Panel) -> Iterator[tuple[slice, slice, Tensor]]:
        """The scores of some panels' images with one panel's texts, which are the outer loop: prepared once."""
        spans = [rows for panel in image_panels for rows in panel.images]
        for columns in text_panel.texts if spans else []:
            against = self.score.against(self.texts.index(columns))
            for rows in spans:
                yield rows, columns, self.checked(against(self.images.index(rows)), rows, columns)

    def positives(self, rows: slice, columns: slice, tile: Tensor) -> Tensor:
        """Which pairs of a tile share their group."""
        same = self.images.numbers[rows, None] == self.texts.numbers[columns]
        return torch.from_numpy(same).to(tile.device)  # (images, texts)

    def learn(self, rows: slice, columns: slice, tile: Tensor, positives: Tensor) -> None:
        """Raise the best positives to those of this tile.

        A sum in another order differs in its last bit and would break ties, so the best positive comes from the
        product that is counted, not from a product of each pair.
        """
        scores = tile.masked_fill(~positives, -torch.inf)
        for side, span, axis in ((self.images, rows, 1), (self.texts, columns, 0)):
            side.best[span] = torch.maximum(side.best[span], scores.amax(axis).cpu().double())

    def count(self, rows: slice, columns: slice, tile: Tensor, positives: Tensor | None) -> None:
        """Count the negatives of this tile that score at least as high as the best positive."""
        for side, span, axis in ((self.images, rows, 1), (self.texts, columns, 0)):
            side.counts[span] += self.at_least(side.best[span], axis, tile, positives)

    def at_least(self, thresholds: Tensor, axis: int, tile: Tensor, positives: Tensor | None) -> Tensor:
        """How many negatives along an axis reach the threshold of each query."""
        if self.buffer.numel() < tile.numel() or self.buffer.device != tile.device:
            self.buffer = torch.empty(tile.numel(), device=tile.device)
        above = self.buffer[: tile.numel()].view(tile.shape)
        # ones and zeros as floats: several times faster to make and to sum than booleans
        torch.ge(tile, thresholds.to(tile.dtype).to(tile.device).unsqueeze(axis), out=above)
        if positives is not None:
            above.masked_fill_(positives, 0)
        return above.sum(axis).cpu().long()

    def checked(self, tile: Tensor, rows: slice, columns: slice) -> Tensor:
        """The tile, if it is scores and has no NaN."""
        shape = (rows.stop - rows.start, columns.stop - columns.start)
        if tile.shape != shape or not tile.is_floating_point():
            raise ScoreError(
                f"a score gave {tuple(tile.shape)} {tile.dtype} for {shape[0]} images and {shape[1]} texts; "
                "it must give (images, texts) floating point numbers"
            )
        # the sum is NaN if any score is, or if infinities cancel: only then is it worth looking at each
        if tile.sum().isnan() and len(wrong := tile.isnan().nonzero()):
            image, text = self.images.rows[rows][wrong[0, 0]], self.texts.rows[columns][wrong[0, 1]]
            raise ScoreError(f"image {image} and text {text}: their score is not a number (rows count from 0)")
        return tile
