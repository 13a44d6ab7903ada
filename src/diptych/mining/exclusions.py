"""Pairs that are not negatives: an image and a text that equals, word for word, a text of the image's group.

If the words of the texts are not known, these are the pairs of the same group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from diptych.data.corpus import Integers
from diptych.data.shared_texts import SharedTexts

TilePairs = tuple[Integers, Integers]  # rows and columns within a tile


class Exclusions:
    """The pairs of a corpus that are not negatives, computed tile by tile to bound memory use."""

    def __init__(self, image_groups: Integers, text_groups: Integers, texts: Sequence[str] | None) -> None:
        self._shared = SharedTexts(text_groups, texts)
        self._image_groups = image_groups

    def against(self, columns: slice) -> Callable[[slice], TilePairs]:
        """For a span of texts, a function from a span of images to the excluded pairs, relative to the tile."""
        shared = self._shared
        distinct, distinct_of_text = np.unique(shared.distinct_ids[columns], return_inverse=True)
        # the texts of the tile, ordered by distinct text: those of distinct text d begin at first_text[d]
        texts = np.argsort(distinct_of_text, kind="stable")
        first_text = np.searchsorted(distinct_of_text[texts], np.arange(len(distinct) + 1))
        # the groups in which each distinct text occurs, ordered by group
        occurring, occurrence = _expand_ranges(shared.offsets[distinct], shared.offsets[distinct + 1])
        by_group = np.argsort(shared.groups[occurrence], kind="stable")
        groups, occurring = shared.groups[occurrence][by_group], occurring[by_group]

        def excluded(rows: slice) -> TilePairs:
            image_groups = self._image_groups[rows]
            first, last = (np.searchsorted(groups, image_groups, side) for side in ("left", "right"))
            image, position = _expand_ranges(first, last)
            distinct_text = occurring[position]
            pair, text = _expand_ranges(first_text[distinct_text], first_text[distinct_text + 1])
            return image[pair], texts[text]

        return excluded


def _expand_ranges(starts: Integers, stops: Integers) -> tuple[Integers, Integers]:
    """All numbers of all ranges, one range after the other, each with the number of its range.

    >>> _expand_ranges(np.array([5, 0]), np.array([7, 1]))
    (array([0, 0, 1]), array([5, 6, 0]))
    """
    lengths = stops - starts
    which = np.repeat(np.arange(len(starts)), lengths)
    before = np.cumsum(lengths) - lengths
    return which, np.arange(len(which)) + (starts - before)[which]
