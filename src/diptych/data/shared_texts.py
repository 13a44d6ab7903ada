"""Which group says which text: its own texts, and whatever others say in the same words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Integers
from diptych.text.tokenisers.treebank import tokenise


class SharedTexts:
    """The texts of a corpus by their words, and the groups that say them.

    `strings` numbers the distinct texts, words compared and not spelling: (texts,). The groups that say string s are
    `groups[first[s] : first[s + 1]]`.
    """

    def __init__(self, text_groups: Integers, texts: Sequence[str]) -> None:
        numbers: dict[tuple[str, ...], int] = {}
        words = {text: tuple(tokenise(text)) for text in set(texts)}
        self.strings = np.array([numbers.setdefault(words[text], len(numbers)) for text in texts], np.int64)
        self._known, places = np.unique(text_groups, return_inverse=True)
        self._pairs = np.unique(self.strings * len(self._known) + places)  # each string with each group of it, once
        self.groups = self._known[self._pairs % len(self._known)]
        self.first = np.searchsorted(self._pairs // len(self._known), np.arange(len(numbers) + 1))

    def by(self, groups: Integers, texts: Integers) -> NDArray[np.bool_]:
        """Whether each of these groups says the text beside it."""
        places = np.searchsorted(self._known, groups).clip(max=len(self._known) - 1)
        wanted = self.strings[texts] * len(self._known) + places
        found = self._pairs[np.searchsorted(self._pairs, wanted).clip(max=len(self._pairs) - 1)]
        said: NDArray[np.bool_] = (found == wanted) & (self._known[places] == groups)
        return said
