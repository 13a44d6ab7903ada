"""Texts as bags of words: known tokens, word counts, and duplicate texts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diptych.text.tokenisers.token_table import UNKNOWN, TokenTable


def known_tokens(ids: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    """The known ids of padded texts (texts, length) in one tensor, and the offset of each text in it.

    `known` has one flag per id, (vocabulary,). This is the form that torch's `embedding_bag` takes.
    """
    is_known = known[ids]  # (texts, length)
    counts = is_known.sum(1)
    return ids[is_known], counts.cumsum(0) - counts


def word_counts(texts: TokenTable, vocabulary: int) -> NDArray[np.int64]:
    """How often each word occurs in the texts, (vocabulary,); zero for start, end, padding and unknown."""
    counts = np.bincount(texts.flat, minlength=vocabulary).astype(np.int64)
    counts[: UNKNOWN + 1] = 0
    return counts


@dataclass(frozen=True, eq=False)
class DistinctTexts:
    """The distinct texts of a table, as `numpy.unique` describes them: first rows, counts, and the inverse."""

    first: NDArray[np.int64]  # (distinct,)
    counts: NDArray[np.int64]  # (distinct,)
    inverse: NDArray[np.int64]  # (texts,)

    @classmethod
    def from_table(cls, texts: TokenTable) -> DistinctTexts:
        """The distinct texts of a table, in the order of their first occurrence."""
        numbers: dict[bytes, int] = {}
        offsets = texts.offsets.tolist()
        inverse = np.empty(len(texts), np.int64)
        first: list[int] = []
        for text in range(len(texts)):
            key = texts.flat[offsets[text] : offsets[text + 1]].tobytes()
            inverse[text] = numbers.setdefault(key, len(numbers))
            if len(numbers) > len(first):
                first.append(text)
        return cls(np.array(first, np.int64), np.bincount(inverse, minlength=len(first)), inverse)

    def padded_batches(self, texts: TokenTable, size: int) -> list[tuple[Tensor, Tensor]]:
        """The distinct texts of a table in batches of this size: padded ids and lengths."""
        cuts = range(size, len(self.first), size)
        blocks = [texts.batch(block) for block in np.split(self.first, cuts)] if len(self.first) else []
        return [(torch.from_numpy(ids), torch.from_numpy(lengths)) for ids, lengths in blocks]
