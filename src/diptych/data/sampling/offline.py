"""Offline negatives: hard negatives of each pair, drawn from lists that were mined over the whole training set.

Every image has a list of texts and every text a list of images, hardest first. For a pair (i, t), a text is drawn from
the list of i and an image from the list of t; two more follow from them, an image of the drawn text's group and a text
of the drawn image's group (Chen et al. 2020, AOQ, section 3.2).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Corpus, Integers
from diptych.data.sampling.pairs import PairExtra, Pairs, RowFinder
from diptych.data.shared_texts import SharedTexts
from diptych.settings import Count, Flag, Settings

MOST_DRAWS = 50  # after this many attempts, a drawn image and text that match each other are left as they are


class OfflineSettings(Settings):
    """A stage's `offline` table: whose lists to use, how much of them, and how to draw from them.

    `lists` is the path of a run that has mined (a teacher, if it is another model); an earlier stage, `stage-2` or
    `previous`, whose best snapshot mines before this stage begins; or `start`, and then what the stage starts from
    mines. Draws are `uniform` from the first `top_texts` and
    `top_images`, or `normal` with mean h / 2 and standard deviation h / 6 for lists of length h, which spares the very
    hardest: they are often positives that nobody annotated. `single_draw` uses one draw for both lists of a pair, as
    the authors' public code does.
    """

    lists: str
    top_texts: Count = 300
    top_images: Count = 60
    draw: Literal["uniform", "normal"] = "uniform"
    single_draw: Flag = False

    @property
    def by_start(self) -> bool:
        """Whether the model that the stage starts from mines the lists."""
        return self.lists == "start"

    def mining_stage(self, number: int) -> int | None:
        """The number of the stage that mines for the stage of this number; None if it is a run, or the start."""
        if self.lists == "previous":
            return number - 1
        named = re.fullmatch(r"stage-(\d+)", self.lists)
        return int(named[1]) if named else None


@dataclass(frozen=True)
class OfflineNegatives(PairExtra):
    """The offline negatives of some pairs.

    `images` are the drawn image and an image of the drawn text's group, `texts` the drawn text and a text of the drawn
    image's group. Where a list was empty, `is_drawn` is false and all four are the pair's own. `is_negative` says that
    something was drawn and that neither the drawn image and text nor the derived ones match each other.
    """

    images: Integers  # (pairs, 2)
    texts: Integers  # (pairs, 2)
    is_drawn: NDArray[np.bool_]  # (pairs,)
    is_negative: NDArray[np.bool_]  # (pairs,)

    def take(self, pairs: slice | NDArray[np.bool_]) -> OfflineNegatives:
        """The negatives of some of the pairs."""
        return OfflineNegatives(self.images[pairs], self.texts[pairs], self.is_drawn[pairs], self.is_negative[pairs])

    def without_unreadable(self, readable: Integers, pairs: Pairs) -> OfflineNegatives:
        """The negatives as if a pair with an unreadable one had an empty list; the pair itself is still trained on."""
        keep = np.isin(self.images, readable).min(1)
        return OfflineNegatives(
            np.where(keep[:, None], self.images, pairs.images[:, None]),
            np.where(keep[:, None], self.texts, pairs.texts[:, None]),
            self.is_drawn & keep,
            self.is_negative & keep,
        )

    def to_rows(self, image_row: RowFinder, text_row: RowFinder) -> OfflineNegatives:
        """The negatives as rows of the batch."""
        return replace(self, images=image_row(self.images), texts=text_row(self.texts))


class OfflineSampler:
    """Draws offline negatives for the pairs of a corpus from mined lists; -1 marks the end of a shorter list."""

    def __init__(
        self,
        corpus: Corpus,
        texts_of_images: NDArray[np.integer],  # (images, texts)
        images_of_texts: NDArray[np.integer],  # (texts, images)
        settings: OfflineSettings,
    ) -> None:
        self._corpus, self._settings = corpus, settings
        self._texts_of = texts_of_images[:, : settings.top_texts]
        self._images_of = images_of_texts[:, : settings.top_images]
        self._image_lengths = (self._texts_of >= 0).sum(1)
        self._text_lengths = (self._images_of >= 0).sum(1)
        self._shared_texts = SharedTexts(corpus.text_groups, corpus.texts)
        self._image_groups = _GroupMembers(corpus.image_groups)
        self._text_groups = _GroupMembers(corpus.text_groups)

    def draw(self, images: Integers, texts: Integers, random: np.random.Generator) -> OfflineNegatives:
        """Draw for each pair of an image and a text; a drawn image and text that match each other are drawn again."""
        is_drawn = (self._image_lengths[images] > 0) & (self._text_lengths[texts] > 0)
        drawn_text, drawn_image = texts.copy(), images.copy()
        remaining = np.flatnonzero(is_drawn)
        for _ in range(MOST_DRAWS):
            shares = self._shares(len(remaining), random)
            drawn_text[remaining] = _pick(self._texts_of, self._image_lengths, images[remaining], shares[0])
            drawn_image[remaining] = _pick(self._images_of, self._text_lengths, texts[remaining], shares[1])
            remaining = remaining[self._match(drawn_image[remaining], drawn_text[remaining])]
            if not len(remaining):
                break
        # The derived pair: an image of the drawn text's group and a text of the drawn image's group.
        image_of_text = self._image_groups.draw_member(self._corpus.text_groups[drawn_text], random)
        text_of_image = self._text_groups.draw_member(self._corpus.image_groups[drawn_image], random)
        image_of_text = np.where(is_drawn, image_of_text, images)
        text_of_image = np.where(is_drawn, text_of_image, texts)
        is_negative = is_drawn & ~self._match(drawn_image, drawn_text) & ~self._match(image_of_text, text_of_image)
        return OfflineNegatives(
            np.stack([drawn_image, image_of_text], 1), np.stack([drawn_text, text_of_image], 1), is_drawn, is_negative
        )

    def _match(self, images: Integers, texts: Integers) -> NDArray[np.bool_]:
        """Whether each text, or one with the same words, belongs to the image's group."""
        return self._shared_texts.group_has_text(self._corpus.image_groups[images], texts)

    def _shares(self, count: int, random: np.random.Generator) -> NDArray[np.float64]:
        """The positions to draw from in the two lists, as shares of their length from 0 to 1: (2, count)."""
        shape = (1 if self._settings.single_draw else 2, count)
        shares = random.random(shape) if self._settings.draw == "uniform" else _truncated_normal(shape, random)
        return np.broadcast_to(shares, (2, count))


class _GroupMembers:
    """The images or the texts of each group."""

    def __init__(self, groups: Integers) -> None:
        self._order = np.argsort(groups, kind="stable")
        self._sorted = groups[self._order]

    def draw_member(self, groups: Integers, random: np.random.Generator) -> Integers:
        """A random member of each of these groups."""
        first = np.searchsorted(self._sorted, groups, side="left")
        count = np.searchsorted(self._sorted, groups, side="right") - first
        return self._order[first + (random.random(len(groups)) * count).astype(np.int64)]


def _pick(lists: NDArray[np.integer], lengths: Integers, rows: Integers, shares: NDArray[np.float64]) -> Integers:
    """The entry at a given share of each row's list."""
    return lists[rows, (shares * lengths[rows]).astype(np.int64)].astype(np.int64)


def _truncated_normal(shape: tuple[int, int], random: np.random.Generator) -> NDArray[np.float64]:
    """Normal shares with mean 1/2 and standard deviation 1/6, drawn again while outside of [0, 1)."""
    shares = random.normal(0.5, 1 / 6, shape)
    while (outside := (shares < 0) | (shares >= 1)).any():
        shares[outside] = random.normal(0.5, 1 / 6, int(outside.sum()))
    return shares
