"""One pass over all scores, tile by tile, each tile computed once and used for both directions.

Images and texts are put in group order and cut into panels of complete groups. The tiles on the diagonal hold all
positive pairs and come first, so that the negatives of every later tile can be compared with the positives at once.

If the encodings are spread over ranks, each rank holds the images and the texts of some panels. It scores its texts
with all images, which the ranks show each other tile by tile; besides, only thresholds and counts are exchanged.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from diptych.data.corpus import Integers
from diptych.errors import ScoreError
from diptych.evaluation.metrics.scores import Index, Score

# Scores per tile: enough for a fast product, few enough to stay in the cache while they are counted.
BLOCK = 512 * 2560

# Scoring sets of vectors takes a few hundred times the time and memory of scoring vectors: smaller tiles.
BLOCK_OF_SETS = BLOCK // 64

# Products are fastest, by up to a sixth, if the number of rows is a multiple of this.
ROW_MULTIPLE = 64


class GroupedItems:
    """The images or the texts in group order, with their rows in the score and the numbers of their groups."""

    def __init__(self, rows: Integers, numbers: Integers) -> None:
        self.order = np.argsort(numbers, kind="stable")
        self.rows, self.numbers = rows[self.order], numbers[self.order]

    def __len__(self) -> int:
        return len(self.order)

    def index(self, span: slice) -> Index:
        """The rows of a span, as a slice if they are consecutive, because a slice copies nothing."""
        rows = self.rows[span]
        if (np.diff(rows) == 1).all():
            return slice(int(rows[0]), int(rows[-1]) + 1)
        return torch.from_numpy(rows)


def group_items(
    score: Score, image_groups: Integers, text_groups: Integers, image_rows: Integers, text_rows: Integers
) -> tuple[GroupedItems, GroupedItems]:
    """The selected images and texts in group order.

    Raises ScoreError if scores and groups differ in number, or if an image or text has no positive.
    """
    if (score.images, score.texts) != (len(image_groups), len(text_groups)):
        actual = f"{score.images} images and {score.texts} texts"
        expected = f"{len(image_groups)} images and {len(text_groups)} texts"
        raise ScoreError(f"scores of {actual} for groups of {expected}; make both from the same corpus and split")
    image_groups, text_groups = image_groups[image_rows], text_groups[text_rows]
    check_positives(image_rows, image_groups, text_rows, text_groups)
    image_numbers, text_numbers = _number_groups(image_groups, text_groups)
    return GroupedItems(image_rows, image_numbers), GroupedItems(text_rows, text_numbers)


def check_positives(image_rows: Integers, image_groups: Integers, text_rows: Integers, text_groups: Integers) -> None:
    """Raise a ScoreError that names the first image without a text, or the first text without an image."""
    _check_queries("image", image_rows, image_groups, "text", text_groups)
    _check_queries("text", text_rows, text_groups, "image", image_groups)


def _check_queries(query: str, rows: Integers, groups: Integers, answer: str, answer_groups: Integers) -> None:
    if not len(rows):
        raise ScoreError(f"no {query} to rank; is the split empty?")
    unmatched = np.flatnonzero(~np.isin(groups, answer_groups))
    if len(unmatched):
        first = unmatched[0]
        others = f" (and {len(unmatched) - 1} more)" if len(unmatched) > 1 else ""
        problem = f"{query} {rows[first]}{others}: no {answer} of its group {groups[first]} to find"
        raise ScoreError(f"{problem}; leave it out (Corpus.matched does)")


def _number_groups(image_groups: Integers, text_groups: Integers) -> tuple[Integers, Integers]:
    """Number the groups by their first image, so that images in the usual order are in group order already."""
    names, first, image_names = np.unique(image_groups, return_index=True, return_inverse=True)
    numbers = np.argsort(np.argsort(first))
    return numbers[image_names], numbers[np.searchsorted(names, text_groups)]


@dataclass(frozen=True)
class _Panel:
    """Some complete groups: their images and texts, in spans that make tiles of at most one block.

    All positives of a panel's images and texts are inside the panel, and nearly always in one tile: only a single
    group that is larger than a block makes more.
    """

    images: list[slice]
    texts: list[slice]


class _Tile(NamedTuple):
    """Some images, some texts, and whether any of their pairs can be positive."""

    rows: slice
    columns: slice
    on_diagonal: bool


class TilePass(ABC):
    """Goes over all tiles, those with positives first; a subclass collects what it needs from each.

    A tile has at most `block` scores. `done` counts the tiles that were collected; each of several ranks has its own.
    """

    def __init__(self, score: Score, images: GroupedItems, texts: GroupedItems, block: int) -> None:
        self.score, self.images, self.texts = score, images, texts
        self.ranks = score.ranks
        self.done = 0
        self._panels = _cut_panels(images.numbers, texts.numbers, block)
        self._buffer = torch.empty(0)

    @abstractmethod
    def collect_positives(self, rows: slice, columns: slice, tile: Tensor, positives: Tensor) -> None:
        """Use the positive pairs of a tile; called before any tile with negatives of these rows and columns."""

    @abstractmethod
    def collect_negatives(self, rows: slice, columns: slice, tile: Tensor, positives: Tensor | None) -> None:
        """Use the negative pairs of a tile; `positives` marks the pairs to leave out, and is None if there are none."""

    def exchange_positives(self, rows: slice, columns: slice) -> None:
        """Give all ranks what each has collected of positive pairs, here of these rows and columns."""
        raise NotImplementedError(f"{type(self).__name__} needs all encodings in one process")

    def state(self) -> dict[str, Tensor]:
        """What was collected so far."""
        raise NotImplementedError(f"{type(self).__name__} starts again when it is interrupted")

    def restore(self, state: dict[str, Tensor]) -> None:
        """Continue from what `state` returned."""
        raise NotImplementedError(f"{type(self).__name__} starts again when it is interrupted")

    @property
    def shape(self) -> list[int]:
        """The numbers of images, texts, and tiles, by which passes over other tiles are told apart."""
        return [len(self.images), len(self.texts), self.tiles]

    @property
    def tiles(self) -> int:
        """The number of tiles, done or not; each of several ranks has its own."""
        own = self._panels[self.ranks.share(len(self._panels))]
        return sum(len(panel.texts) for panel in own) * sum(len(panel.images) for panel in self._panels)

    def run(self) -> None:
        """Go over all tiles."""
        for _ in self.remaining():
            pass

    def remaining(self) -> Generator[int, None, None]:
        """Go over the tiles that are not done; yields the number of those that are after each."""
        visited = 0
        for tiles in self._steps_on_ranks() if self.score.spread else self._steps():
            with self.ranks.all_or_none():
                for _ in self._collect(tiles[max(0, self.done - visited) :]):
                    self.done += 1
                    yield self.done
            visited += len(tiles)

    def count_at_least(self, thresholds: Tensor, axis: int, tile: Tensor, positives: Tensor | None) -> Tensor:
        """The number of negatives along an axis that reach the threshold of each query."""
        if self._buffer.numel() < tile.numel() or self._buffer.device != tile.device:
            self._buffer = torch.empty(tile.numel(), device=tile.device)
        reached = self._buffer[: tile.numel()].view(tile.shape)
        # ones and zeros as floats: several times faster to make and to sum than booleans
        torch.ge(tile, thresholds.to(tile.dtype).to(tile.device).unsqueeze(axis), out=reached)
        if positives is not None:
            reached.masked_fill_(positives, 0)
        return reached.sum(axis).cpu().long()

    def _steps(self) -> Iterator[list[_Tile]]:
        """All tiles, those of the diagonal first; the tiles of a step have the same texts, which are prepared once."""
        for panel in self._panels:
            yield from _by_texts([panel], panel, on_diagonal=True)
        for panel in self._panels:
            yield from _by_texts([other for other in self._panels if other is not panel], panel)

    def _steps_on_ranks(self) -> Iterator[list[_Tile]]:
        """The tiles of this rank; before each step, the ranks exchange what it needs."""
        ranks, panels = self.ranks, self._panels
        shares = [panels[ranks.share(len(panels), rank)] for rank in range(ranks.count)]
        rows_of_ranks = [_whole(panel.images for panel in share) for share in shares]
        columns_of_ranks = [_whole(panel.texts for panel in share) for share in shares]
        for images, texts in self.score.spread:
            images.place([self.images.rows[rows] for rows in rows_of_ranks])
            texts.place([self.texts.rows[columns] for columns in columns_of_ranks])
        own = shares[ranks.rank]
        diagonal = (_by_texts([panel], panel, on_diagonal=True) for panel in own)
        yield [tile for tiles in diagonal for step in tiles for tile in step]
        self.exchange_positives(rows_of_ranks[ranks.rank], columns_of_ranks[ranks.rank])
        for rank, share in enumerate(shares):
            for panel in share:
                others = [other for other in own if other is not panel]
                for rows in panel.images:
                    for images, _ in self.score.spread:
                        images.show(self.images.index(rows), rank)
                    yield [_Tile(rows, columns, on_diagonal=False) for other in others for columns in other.texts]

    def _collect(self, tiles: Sequence[_Tile]) -> Iterator[None]:
        """Collect some tiles; those in a row with the same texts share what is prepared of these."""
        prepared = None
        for rows, columns, on_diagonal in tiles:
            if columns is not prepared:
                against, prepared = self.score.against(self.texts.index(columns)), columns
            tile = self._tile(against, rows, columns)
            positives = self._positives(rows, columns, tile) if on_diagonal else None
            if positives is not None:
                self.collect_positives(rows, columns, tile, positives)
            # a panel of several tiles is a single group, without negatives: nothing is counted too early
            self.collect_negatives(rows, columns, tile, positives)
            yield

    def _tile(self, against: Callable[[Index], Tensor], rows: slice, columns: slice) -> Tensor:
        """The scores of some images with some texts; raises ScoreError if they are no scores."""
        tile = against(self.images.index(rows))
        self._check(tile, rows, columns)
        return tile

    def _positives(self, rows: slice, columns: slice, tile: Tensor) -> Tensor:
        same_group = self.images.numbers[rows, None] == self.texts.numbers[columns]
        return torch.from_numpy(same_group).to(tile.device)  # (images, texts)

    def _check(self, tile: Tensor, rows: slice, columns: slice) -> None:
        """Raise a ScoreError unless the tile holds floating point scores of the right shape without a NaN."""
        shape = (rows.stop - rows.start, columns.stop - columns.start)
        if tile.shape != shape or not tile.is_floating_point():
            raise ScoreError(
                f"a score returned {tuple(tile.shape)} {tile.dtype} for {shape[0]} images and {shape[1]} texts; "
                "it must return (images, texts) floating point numbers"
            )
        # the sum is NaN if any score is, or if infinities cancel: only then is it worth looking at each
        if tile.sum().isnan() and len(wrong := tile.isnan().nonzero()):
            image, text = self.images.rows[rows][wrong[0, 0]], self.texts.rows[columns][wrong[0, 1]]
            raise ScoreError(f"image {image} and text {text}: their score is not a number (rows count from 0)")


def _cut_panels(image_numbers: Integers, text_numbers: Integers, block: int) -> list[_Panel]:
    """Cut images and texts, both in group order, between groups, into panels with the proportions of the matrix."""
    height = min(block, max(1, int((block * len(image_numbers) / len(text_numbers)) ** 0.5)))
    height -= height % ROW_MULTIPLE if height > ROW_MULTIPLE else 0
    width = block // height
    image_ends = np.append(np.flatnonzero(np.diff(image_numbers)) + 1, len(image_numbers))  # the end of each group
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


def _by_texts(image_panels: Sequence[_Panel], text_panel: _Panel, *, on_diagonal: bool = False) -> list[list[_Tile]]:
    """The tiles of some panels' images with one panel's texts, by their texts."""
    spans = [rows for panel in image_panels for rows in panel.images]
    return [[_Tile(rows, columns, on_diagonal) for rows in spans] for columns in text_panel.texts]


def _whole(spans_of_panels: Iterable[Sequence[slice]]) -> slice:
    """The span of consecutive panels."""
    spans = [span for spans in spans_of_panels for span in spans]
    return slice(spans[0].start, spans[-1].stop) if spans else slice(0, 0)


def _spans(start: int, stop: int, size: int) -> list[slice]:
    return [slice(begin, min(begin + size, stop)) for begin in range(start, stop, size)]
