"""Which groups share a text: two texts are the same if their tokens are, whatever their case and spacing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Integers
from diptych.text.tokenisers.treebank import tokenise


class SharedTexts:
    """The distinct texts of a corpus, and the groups that each of them occurs in.

    `distinct_ids` numbers the distinct texts from 0: (texts,). The distinct text d occurs in the groups
    `groups[offsets[d] : offsets[d + 1]]`.
    """

    def __init__(self, text_groups: Integers, texts: Sequence[str] | None) -> None:
        """Without texts, all of them are distinct."""
        self.distinct_ids = np.arange(len(text_groups)) if texts is None else _number_texts(texts)
        distinct = int(self.distinct_ids.max(initial=-1)) + 1
        self._group_names, group_rows = np.unique(text_groups, return_inverse=True)
        # One sorted key per distinct text and group it occurs in.
        self._keys = np.unique(self.distinct_ids * len(self._group_names) + group_rows)
        self.groups = self._group_names[self._keys % len(self._group_names)]
        self.offsets = np.searchsorted(self._keys // len(self._group_names), np.arange(distinct + 1))

    def group_has_text(self, groups: Integers, texts: Integers) -> NDArray[np.bool_]:
        """Whether text `texts[i]` occurs in group `groups[i]`, for each i: (pairs,)."""
        group_rows = np.searchsorted(self._group_names, groups).clip(max=len(self._group_names) - 1)
        keys = self.distinct_ids[texts] * len(self._group_names) + group_rows
        nearest = self._keys[np.searchsorted(self._keys, keys).clip(max=len(self._keys) - 1)]
        has_text: NDArray[np.bool_] = (nearest == keys) & (self._group_names[group_rows] == groups)
        return has_text


def _number_texts(texts: Sequence[str]) -> Integers:
    """The number of each text's tokens among the distinct ones, in the order of their first occurrence."""
    ids: dict[tuple[str, ...], int] = {}
    tokens = {text: tuple(tokenise(text)) for text in set(texts)}
    return np.array([ids.setdefault(tokens[text], len(ids)) for text in texts], np.int64)
