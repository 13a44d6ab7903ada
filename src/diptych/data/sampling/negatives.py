"""Negatives that are drawn for each pair alone, in addition to the other pairs of the batch."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Integers
from diptych.data.sampling.pairs import PairExtra, Pairs, RowFinder

MOST_DRAWS = 20  # after this many attempts, a pair whose batch hardly has another group goes without


@dataclass(frozen=True)
class DrawnNegatives(PairExtra):
    """The negatives of each pair, (pairs, negatives), -1 for none.

    `images` do not match the pair's text: for a phrase, regions of the same photo that show something else. `texts` do
    not match the pair's image.
    """

    images: Integers | None = None
    texts: Integers | None = None

    def take(self, pairs: slice | NDArray[np.bool_]) -> DrawnNegatives:
        """The negatives of some of the pairs."""
        return DrawnNegatives(*(None if side is None else side[pairs] for side in (self.images, self.texts)))

    def without_unreadable(self, readable: Integers, pairs: Pairs) -> DrawnNegatives:
        """The negatives without unreadable images."""
        if self.images is None:
            return self
        return replace(self, images=np.where(np.isin(self.images, readable), self.images, -1))

    def to_rows(self, image_row: RowFinder, text_row: RowFinder) -> DrawnNegatives:
        """The negatives as rows of the batch."""
        return DrawnNegatives(
            None if self.images is None else image_row(self.images),
            None if self.texts is None else text_row(self.texts),
        )


class NegativeTexts:
    """Draws for each pair a number of texts of the batch that belong to another group."""

    def __init__(self, text_groups: Integers, count: int) -> None:
        self._text_groups, self._count = text_groups, count

    def extend(self, pairs: Pairs, random: np.random.Generator) -> Pairs:
        """The batch with its drawn negatives."""
        return pairs.with_extra(DrawnNegatives(texts=self._draw(pairs.texts, random)))

    def _draw(self, texts: Integers, random: np.random.Generator) -> Integers:
        groups = self._text_groups[texts]
        drawn = random.integers(len(texts), size=(len(texts), self._count))
        for _ in range(MOST_DRAWS):
            same = groups[drawn] == groups[:, None]
            if not same.any():
                break
            drawn[same] = random.integers(len(texts), size=int(same.sum()))
        return np.where(groups[drawn] == groups[:, None], -1, texts[drawn])
