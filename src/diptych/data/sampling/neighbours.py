"""Neighbourhood sampling: give every image and text of a batch a second positive in it, if the corpus has one.

For an image with one text in the batch another of its texts is drawn, and for a text with one image another of its
images (Wang et al. 2018, section 3.2.3 and Algorithm 1, 3c). The added pair is a query in one direction only: an image
looks for its second text, but that text does not look for the image, and the other way round.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Integers
from diptych.data.sampling.pairs import PairExtra, Pairs


@dataclass(frozen=True)
class QueryDirections(PairExtra):
    """The directions in which each pair is a query: (pairs, 2), image to text and text to image."""

    is_query: NDArray[np.bool_]
    images: None = None
    texts: None = None

    def take(self, pairs: slice | NDArray[np.bool_]) -> QueryDirections:
        """The directions of some of the pairs."""
        return QueryDirections(self.is_query[pairs])


class GroupMembers:
    """The items of one side by group, to draw another item of an anchor's group."""

    def __init__(self, groups: Integers, anchor_groups: Integers) -> None:
        self._items = np.argsort(groups, kind="stable")
        self._position = np.empty_like(self._items)
        self._position[self._items] = np.arange(len(self._items))
        self._first = np.searchsorted(groups[self._items], anchor_groups, side="left")
        self._count = np.searchsorted(groups[self._items], anchor_groups, side="right") - self._first

    def draw_other(self, anchors: Integers, current: Integers, random: np.random.Generator) -> Integers:
        """An item of each anchor's group other than its current one, or -1 if there is no other."""
        first, count = self._first[anchors], self._count[anchors]
        step = 1 + (random.random(len(anchors)) * (count - 1)).astype(np.int64)
        position = first + (self._position[current] - first + step) % np.maximum(count, 1)
        return np.where(count > 1, self._items[position], -1)


class SecondPositives:
    """Adds a second positive to the images and texts of each batch."""

    def __init__(self, image_groups: Integers, text_groups: Integers) -> None:
        self._texts_of_images = GroupMembers(text_groups, image_groups)
        self._images_of_texts = GroupMembers(image_groups, text_groups)

    def extend(self, pairs: Pairs, random: np.random.Generator) -> Pairs:
        """The batch with the added pairs, and the directions in which each pair is a query."""
        texts = self._texts_of_images.draw_other(pairs.images, pairs.texts, random)
        images = self._images_of_texts.draw_other(pairs.texts, pairs.images, random)
        return add_second_positives(pairs, images, texts)


def add_second_positives(pairs: Pairs, images: Integers, texts: Integers) -> Pairs:
    """Append a second text for each image that is in one pair only, then a second image for each such text.

    `images` and `texts` hold what could be added for each pair, -1 for nothing.
    """
    add_text = (texts >= 0) & _occur_once(pairs.images)
    add_image = (images >= 0) & _occur_once(pairs.texts)
    kinds = np.array([[True, True], [True, False], [False, True]])
    is_query = np.repeat(kinds, [len(pairs.images), add_text.sum(), add_image.sum()], axis=0)
    extended = replace(
        pairs,
        images=np.concatenate([pairs.images, pairs.images[add_text], images[add_image]]),
        texts=np.concatenate([pairs.texts, texts[add_text], pairs.texts[add_image]]),
    )
    return extended.with_extra(QueryDirections(is_query))


def _occur_once(numbers: Integers) -> NDArray[np.bool_]:
    _, inverse, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    once: NDArray[np.bool_] = counts[inverse] == 1
    return once
