"""Neighbourhood sampling: what is in a batch has a second positive in it, where the corpus has one.

For an image with one text in the batch another of its texts is drawn, and for a text with one image another of its
images (Wang et al. 2018, section 3.2.3 and Algorithm 1, 3c). The added pair is there for the one that lacked it: only
the image looks for its second text, only the text for its second image.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Integers

Asking = NDArray[np.bool_]  # (pairs, 2): whether a pair's image looks for its text, and its text for its image


class Others:
    """The items of one side by group, so that another of an anchor's group can be drawn at once."""

    def __init__(self, groups: Integers, anchor_groups: Integers) -> None:
        self._items = np.argsort(groups, kind="stable")
        self._place = np.empty_like(self._items)
        self._place[self._items] = np.arange(len(self._items))
        self._first = np.searchsorted(groups[self._items], anchor_groups, side="left")
        self._count = np.searchsorted(groups[self._items], anchor_groups, side="right") - self._first

    def draw(self, anchors: Integers, has: Integers, random: np.random.Generator) -> Integers:
        """Another item of each anchor's group than the one it has, or -1 where there is no other."""
        first, count = self._first[anchors], self._count[anchors]
        step = 1 + (random.random(len(anchors)) * (count - 1)).astype(np.int64)
        place = first + (self._place[has] - first + step) % np.maximum(count, 1)
        return np.where(count > 1, self._items[place], -1)


class Neighbours:
    """Adds second positives to the pairs of a batch, from tables of who is in which group."""

    def __init__(self, image_groups: Integers, text_groups: Integers) -> None:
        self._texts_of_images = Others(text_groups, image_groups)
        self._images_of_texts = Others(image_groups, text_groups)

    def add(self, images: Integers, texts: Integers, random: np.random.Generator) -> tuple[Integers, Integers, Asking]:
        """The pairs with those added, and who of them asks."""
        more_texts = self._texts_of_images.draw(images, texts, random)
        more_images = self._images_of_texts.draw(texts, images, random)
        return with_second(images, texts, more_texts, more_images)


def with_second(
    images: Integers, texts: Integers, more_texts: Integers, more_images: Integers
) -> tuple[Integers, Integers, Asking]:
    """The pairs, then a second text for each image that is in one pair only, then a second image for each such text.

    What could be added is there for each pair, -1 where there is nothing.
    """
    here = (more_texts >= 0) & _once(images)
    there = (more_images >= 0) & _once(texts)
    kinds = np.array([[True, True], [True, False], [False, True]])
    asking = np.repeat(kinds, [len(images), here.sum(), there.sum()], axis=0)
    every_image = np.concatenate([images, images[here], more_images[there]])
    every_text = np.concatenate([texts, more_texts[here], texts[there]])
    return every_image, every_text, asking


def _once(numbers: Integers) -> NDArray[np.bool_]:
    """Which of the numbers occur once."""
    _, places, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    once: NDArray[np.bool_] = counts[places] == 1
    return once
