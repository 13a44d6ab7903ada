"""One pass over all scores of a corpus, tile by tile; each tile fills the lists of both directions."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from diptych.data.corpus import Floats, Integers
from diptych.errors import ScoreError
from diptych.evaluation.metrics.scores import Score
from diptych.evaluation.metrics.tiles import ROW_MULTIPLE
from diptych.mining.exclusions import Exclusions
from diptych.mining.top_scores import TopScores
from diptych.ranks import Ranks


@dataclass(frozen=True)
class Tiles:
    """The tiles of a matrix of images and texts, or those of one rank, which are some of the columns.

    A tile has about `block` scores and the proportions of the whole matrix.
    """

    texts: int  # in all columns
    rows: list[slice]
    columns: list[slice]

    @classmethod
    def of(cls, images: int, texts: int, block: int) -> Tiles:
        """The tiles of a whole matrix."""
        height = min(block, max(1, int((block * images / texts) ** 0.5)))
        height -= height % ROW_MULTIPLE if height > ROW_MULTIPLE else 0
        return cls(texts, _spans(images, height), _spans(texts, max(1, block // height)))

    def share(self, ranks: Ranks) -> Tiles:
        """The tiles of this rank; tiles are the same whatever the number of ranks, and so are their scores."""
        return Tiles(self.texts, self.rows, self.columns[ranks.share(len(self.columns))])

    @property
    def own_texts(self) -> slice:
        """The texts of these columns."""
        return slice(self.columns[0].start, self.columns[-1].stop) if self.columns else slice(0, 0)


class ScorePass:
    """A pass that fills the top lists of images and texts; it can stop after any tile and continue later.

    `score` compares all images with the texts of the tiles, which may be those of one rank; `exclusions` are those of
    all texts. The lists of images have numbers of all texts.
    """

    def __init__(
        self, score: Score, exclusions: Exclusions, top_texts: int, top_images: int, tiles: int | Tiles
    ) -> None:
        """`tiles` may be given as the size of a block."""
        self.tiles = Tiles.of(score.images, score.texts, tiles) if isinstance(tiles, int) else tiles
        self.score, self.exclusions = score, exclusions
        self.rows, self.columns = self.tiles.rows, self.tiles.columns
        self.texts_of_images = TopScores(score.images, min(top_texts, self.tiles.texts))
        self.images_of_texts = TopScores(score.texts, min(top_images, score.images))
        self.done = 0  # finished tiles, counted through all images for the first texts, then for the next texts

    @property
    def shape(self) -> list[int]:
        """The numbers of tiles, by which passes over other tiles are told apart."""
        return [len(self.rows), len(self.columns)]

    def state(self) -> dict[str, Tensor]:
        """The best keys so far."""
        best = {"texts": self.texts_of_images.best(), "images": self.images_of_texts.best()}
        return {name: torch.from_numpy(keys) for name, keys in best.items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Continue from what `state` returned."""
        self.texts_of_images.restore(state["texts"].numpy())
        self.images_of_texts.restore(state["images"].numpy())

    def remaining(self) -> Generator[int, None, None]:
        """Process the remaining tiles; yields, after each, the number of texts compared so far."""
        with ThreadPoolExecutor(1) as second_thread:
            while self.done < len(self.rows) * len(self.columns):
                column, row = divmod(self.done, len(self.rows))
                columns, first = self.columns[column], self.tiles.own_texts.start
                own = slice(columns.start - first, columns.stop - first)
                against, excluded = self.score.against(own), self.exclusions.against(columns)
                for rows in self.rows[row:]:
                    with torch.inference_mode():
                        scores = _checked(against(rows), rows, columns)  # (images, texts)
                    scores = _exclude(scores, excluded(rows))
                    # the two directions share only the scores, which they read
                    images_done = second_thread.submit(self.images_of_texts.offer, scores.T, own, rows)
                    self.texts_of_images.offer(scores, rows, columns)
                    images_done.result()
                    self.done += 1
                    yield own.start + (own.stop - own.start) * rows.stop // self.score.images


def _exclude(scores: Floats, excluded: tuple[Integers, Integers]) -> Floats:
    """The scores, with minus infinity for excluded pairs."""
    if len(excluded[0]):
        scores = scores.copy()  # it may be a view of the caller's matrix
        scores[excluded] = -np.inf
    return scores


def _spans(count: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def _checked(tile: Tensor, rows: slice, columns: slice) -> Floats:
    """The tile as a C-contiguous array; raises ScoreError if it has a NaN."""
    # the sum is NaN if any score is, or if infinities cancel: only then is it worth looking at each
    if tile.sum().isnan() and len(wrong := tile.isnan().nonzero()):
        image, text = rows.start + int(wrong[0, 0]), columns.start + int(wrong[0, 1])
        raise ScoreError(f"image {image} and text {text}: their score is not a number (rows count from 0)")
    return np.ascontiguousarray(tile.float().cpu().numpy())
