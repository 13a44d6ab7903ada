"""Texts as bags of words: which of their words are known, and which texts say the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diptych.text.vocabulary import UNKNOWN, TokenTable


def known_tokens(ids: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    """The known words of padded texts (texts, length), one text after the other, and where each text begins.

    `known` says it of each id, (vocabulary,). This is the form that torch's `embedding_bag` takes.
    """
    kept = known[ids]  # (texts, length)
    counts = kept.sum(1)
    return ids[kept], counts.cumsum(0) - counts


def word_counts(texts: TokenTable, vocabulary: int) -> NDArray[np.int64]:
    """How often each word occurs in the texts, (vocabulary,); start, end, padding and unknown are no words."""
    counts = np.bincount(texts.flat, minlength=vocabulary).astype(np.int64)
    counts[: UNKNOWN + 1] = 0
    return counts


@dataclass(frozen=True, eq=False)
class DistinctTexts:
    """The distinct texts of a table: the first text of each, how many are like it, and which of them each text is."""

    first: NDArray[np.int64]  # (distinct,)
    counts: NDArray[np.int64]  # (distinct,)
    inverse: NDArray[np.int64]  # (texts,)

    @classmethod
    def from_table(cls, texts: TokenTable) -> DistinctTexts:
        """Those of a table, in the order in which they first occur."""
        places: dict[bytes, int] = {}
        ends = texts.offsets.tolist()
        inverse = np.empty(len(texts), np.int64)
        first: list[int] = []
        for text in range(len(texts)):
            key = texts.flat[ends[text] : ends[text + 1]].tobytes()
            inverse[text] = places.setdefault(key, len(places))
            if len(places) > len(first):
                first.append(text)
        return cls(np.array(first, np.int64), np.bincount(inverse, minlength=len(first)), inverse)

    def padded_batches(self, texts: TokenTable, at_once: int) -> list[tuple[Tensor, Tensor]]:
        """The ids and lengths of the distinct texts of a table, padded, so many at once."""
        cuts = range(at_once, len(self.first), at_once)
        blocks = [texts.batch(block) for block in np.split(self.first, cuts)] if len(self.first) else []
        return [(torch.from_numpy(ids), torch.from_numpy(lengths)) for ids, lengths in blocks]
