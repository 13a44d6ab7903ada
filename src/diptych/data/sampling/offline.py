"""Offline negatives: for each drawn pair, hard negatives from lists that were mined over the whole training set.

An image has a list of texts and a text a list of images, the hardest first. For a pair (i, t) a text is drawn from the
list of i and an image from the list of t; from them two more follow, an image of the drawn text's group and a text of
the drawn image's group (Chen et al. 2020, AOQ, section 3.2).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Corpus, Integers
from diptych.data.shared_texts import SharedTexts
from diptych.settings import Count, Flag, Settings

DRAWS = 50  # before an image and a text that correspond are left as they are


class OfflineSettings(Settings):
    """A stage's `offline` table: whose lists, how much of them, and how negatives are drawn from them.

    `lists` is the path of a run that has mined (a teacher, where it is another model), or a stage before this one,
    `stage-2` or just `previous`, whose best mines before this stage begins. Draws are `uniform` from the first
    `top_texts` and `top_images`, or `normal`, which spares the very hardest, often positives that nobody marked: mean
    h / 2, deviation h / 6, nothing beyond the list. `single_draw` uses one draw for both lists of a pair, as the
    authors' public code does.
    """

    lists: str
    top_texts: Count = 300
    top_images: Count = 60
    draw: Literal["uniform", "normal"] = "uniform"
    single_draw: Flag = False

    def stage(self, number: int) -> int | None:
        """The number of the stage whose best mines for the stage of this number; none, where a run has mined."""
        if self.lists == "previous":
            return number - 1
        named = re.fullmatch(r"stage-(\d+)", self.lists)
        return int(named[1]) if named else None


@dataclass(frozen=True)
class Offline:
    """Offline negatives of some pairs, by number.

    `images` are the drawn image and an image of the drawn text's group, `texts` the drawn text and a text of the drawn
    image's group. Where a list was empty nothing is `drawn`, and both are the pair's own. `apart` says that there is a
    draw and that its image and text do not correspond.
    """

    images: Integers  # (pairs, 2)
    texts: Integers  # (pairs, 2)
    drawn: NDArray[np.bool_]  # (pairs,)
    apart: NDArray[np.bool_]  # (pairs,)

    def take(self, pairs: slice | NDArray[np.bool_]) -> Offline:
        """Those of some of the pairs."""
        return Offline(self.images[pairs], self.texts[pairs], self.drawn[pairs], self.apart[pairs])

    def only(self, kept: NDArray[np.bool_], images: Integers, texts: Integers) -> Offline:
        """Without the draws of the other pairs, which get their own image and text instead, as for an empty list."""
        own = kept[:, None]
        return Offline(
            np.where(own, self.images, images[:, None]),
            np.where(own, self.texts, texts[:, None]),
            self.drawn & kept,
            self.apart & kept,
        )


class OfflineSampler:
    """Draws offline negatives for the pairs of a corpus from its lists, which end with -1 where they are shorter."""

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
        self._said = SharedTexts(corpus.text_groups, corpus.texts)
        self._images = _Members(corpus.image_groups)
        self._texts = _Members(corpus.text_groups)

    def draw(self, images: Integers, texts: Integers, random: np.random.Generator) -> Offline:
        """Negatives for each pair of an image and a text; a drawn image and text that correspond are drawn again."""
        drawn = (self._image_lengths[images] > 0) & (self._text_lengths[texts] > 0)
        near_text, near_image = texts.copy(), images.copy()
        wanted = np.flatnonzero(drawn)
        for _ in range(DRAWS):
            shares = self._shares(len(wanted), random)
            near_text[wanted] = _pick(self._texts_of, self._image_lengths, images[wanted], shares[0])
            near_image[wanted] = _pick(self._images_of, self._text_lengths, texts[wanted], shares[1])
            wanted = wanted[self._correspond(near_image[wanted], near_text[wanted])]
            if not len(wanted):
                break
        # The groups of what was drawn give the derived pair; a group of several gives one of them by chance.
        image_of_text = self._images.one(self._corpus.text_groups[near_text], random)
        text_of_image = self._texts.one(self._corpus.image_groups[near_image], random)
        image_of_text, text_of_image = np.where(drawn, image_of_text, images), np.where(drawn, text_of_image, texts)
        apart = drawn & ~self._correspond(near_image, near_text) & ~self._correspond(image_of_text, text_of_image)
        return Offline(np.stack([near_image, image_of_text], 1), np.stack([near_text, text_of_image], 1), drawn, apart)

    def _correspond(self, images: Integers, texts: Integers) -> NDArray[np.bool_]:
        """Whether an image's group says the text beside it, be it in a text of its own: then it is no negative."""
        return self._said.group_has_text(self._corpus.image_groups[images], texts)

    def _shares(self, count: int, random: np.random.Generator) -> NDArray[np.float64]:
        """Where in the two lists to draw, from 0 to 1: (2, count)."""
        wanted = (1 if self._settings.single_draw else 2, count)
        shares = random.random(wanted) if self._settings.draw == "uniform" else _normal(wanted, random)
        return np.broadcast_to(shares, (2, count))


class _Members:
    """The images or the texts of each group."""

    def __init__(self, groups: Integers) -> None:
        self._order = np.argsort(groups, kind="stable")
        self._sorted = groups[self._order]

    def one(self, groups: Integers, random: np.random.Generator) -> Integers:
        """One of each of these groups; those that are not the only one are drawn."""
        first = np.searchsorted(self._sorted, groups, side="left")
        count = np.searchsorted(self._sorted, groups, side="right") - first
        return self._order[first + (random.random(len(groups)) * count).astype(np.int64)]


def _pick(lists: NDArray[np.integer], lengths: Integers, rows: Integers, shares: NDArray[np.float64]) -> Integers:
    """The entry of each row's list that lies at this share of it."""
    return lists[rows, (shares * lengths[rows]).astype(np.int64)].astype(np.int64)


def _normal(shape: tuple[int, int], random: np.random.Generator) -> NDArray[np.float64]:
    """Normal shares of a list, mean a half, deviation a sixth; those outside of it are drawn again."""
    shares = random.normal(0.5, 1 / 6, shape)
    while (outside := (shares < 0) | (shares >= 1)).any():
        shares[outside] = random.normal(0.5, 1 / 6, int(outside.sum()))
    return shares
