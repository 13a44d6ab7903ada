"""Which pairs are no negatives: an image and a text that any text of the image's group says word for word."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from diptych.data.corpus import Integers

Places = tuple[Integers, Integers]  # rows and columns in a tile


class Exclusions:
    """The pairs of a corpus that are no negatives, tile by tile: never more at once than a tile has scores."""

    def __init__(self, image_groups: Integers, text_groups: Integers, texts: Sequence[str]) -> None:
        numbers: dict[str, int] = {}
        self._strings = np.array([numbers.setdefault(text, len(numbers)) for text in texts], np.int64)  # (texts,)
        known, text_numbers = np.unique(text_groups, return_inverse=True)
        said = np.unique(self._strings * len(known) + text_numbers)  # each string with each group that has it, once
        self._groups = known[said % len(known)]
        self._first = np.searchsorted(said // len(known), np.arange(len(numbers) + 1))  # of each string in them
        self._image_groups = image_groups

    def against(self, columns: slice) -> Callable[[slice], Places]:
        """For some texts: a function from a span of images to the excluded pairs, counted from the tile's corner."""
        strings, string_of = np.unique(self._strings[columns], return_inverse=True)
        texts = np.argsort(string_of, kind="stable")  # of the first string, of the second ...
        text_first = np.searchsorted(string_of[texts], np.arange(len(strings) + 1))
        string, pair = _ranges(self._first[strings], self._first[strings + 1])
        by_group = np.argsort(self._groups[pair], kind="stable")
        groups, string = self._groups[pair][by_group], string[by_group]

        def excluded(rows: slice) -> Places:
            own = self._image_groups[rows]
            image, pair = _ranges(np.searchsorted(groups, own, "left"), np.searchsorted(groups, own, "right"))
            said = string[pair]
            place, text = _ranges(text_first[said], text_first[said + 1])
            return image[place], texts[text]

        return excluded


def _ranges(starts: Integers, stops: Integers) -> tuple[Integers, Integers]:
    """All numbers of all ranges, one range after the other, each beside the number of its range."""
    lengths = stops - starts
    which = np.repeat(np.arange(len(starts)), lengths)
    before = np.cumsum(lengths) - lengths
    return which, np.arange(len(which)) + (starts - before)[which]
