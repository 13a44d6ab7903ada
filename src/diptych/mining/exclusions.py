"""Which pairs are no negatives: an image and a text that any text of the image's group says word for word."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from diptych.data.corpus import Integers
from diptych.data.shared_texts import SharedTexts

Places = tuple[Integers, Integers]  # rows and columns in a tile


class Exclusions:
    """The pairs of a corpus that are no negatives, tile by tile: never more at once than a tile has scores."""

    def __init__(self, image_groups: Integers, text_groups: Integers, texts: Sequence[str]) -> None:
        self._said = SharedTexts(text_groups, texts)
        self._image_groups = image_groups

    def against(self, columns: slice) -> Callable[[slice], Places]:
        """For some texts: a function from a span of images to the excluded pairs, counted from the tile's corner."""
        said = self._said
        strings, string_of = np.unique(said.distinct_ids[columns], return_inverse=True)
        texts = np.argsort(string_of, kind="stable")  # of the first string, of the second ...
        text_first = np.searchsorted(string_of[texts], np.arange(len(strings) + 1))
        string, pair = _ranges(said.offsets[strings], said.offsets[strings + 1])
        by_group = np.argsort(said.groups[pair], kind="stable")
        groups, string = said.groups[pair][by_group], string[by_group]

        def excluded(rows: slice) -> Places:
            own = self._image_groups[rows]
            image, pair = _ranges(np.searchsorted(groups, own, "left"), np.searchsorted(groups, own, "right"))
            spoken = string[pair]
            place, text = _ranges(text_first[spoken], text_first[spoken + 1])
            return image[place], texts[text]

        return excluded


def _ranges(starts: Integers, stops: Integers) -> tuple[Integers, Integers]:
    """All numbers of all ranges, one range after the other, each beside the number of its range."""
    lengths = stops - starts
    which = np.repeat(np.arange(len(starts)), lengths)
    before = np.cumsum(lengths) - lengths
    return which, np.arange(len(which)) + (starts - before)[which]
