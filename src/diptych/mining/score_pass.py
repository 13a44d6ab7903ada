"""One pass over all scores of a corpus, tile by tile; each tile fills the lists of both directions."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from diptych.data.corpus import Floats, Integers
from diptych.errors import ScoreError
from diptych.evaluation.metrics.scores import Score
from diptych.evaluation.metrics.tiles import ROW_MULTIPLE
from diptych.mining.exclusions import Exclusions
from diptych.mining.top_scores import TopScores


class ScorePass:
    """A pass that fills the top lists of images and texts; it can stop after any tile and continue later.

    A tile has about `block` scores and the proportions of the whole matrix.
    """

    def __init__(self, score: Score, exclusions: Exclusions, top_texts: int, top_images: int, block: int) -> None:
        self.score, self.exclusions = score, exclusions
        self.texts_of_images = TopScores(score.images, min(top_texts, score.texts))
        self.images_of_texts = TopScores(score.texts, min(top_images, score.images))
        height = min(block, max(1, int((block * score.images / score.texts) ** 0.5)))
        height -= height % ROW_MULTIPLE if height > ROW_MULTIPLE else 0
        self.rows = _spans(score.images, height)
        self.columns = _spans(score.texts, max(1, block // height))
        self.done = 0  # finished tiles, counted through all images for the first texts, then for the next texts

    def remaining(self) -> Generator[int, None, None]:
        """Process the remaining tiles; yields, after each, the number of texts compared so far."""
        with ThreadPoolExecutor(1) as second_thread:
            while self.done < len(self.rows) * len(self.columns):
                column, row = divmod(self.done, len(self.rows))
                columns = self.columns[column]
                against, excluded = self.score.against(columns), self.exclusions.against(columns)
                for rows in self.rows[row:]:
                    with torch.inference_mode():
                        scores = _checked(against(rows), rows, columns)  # (images, texts)
                    scores = _exclude(scores, excluded(rows))
                    # the two directions share only the scores, which they read
                    images_done = second_thread.submit(self.images_of_texts.offer, scores.T, columns, rows)
                    self.texts_of_images.offer(scores, rows, columns)
                    images_done.result()
                    self.done += 1
                    yield columns.start + (columns.stop - columns.start) * rows.stop // self.score.images


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
