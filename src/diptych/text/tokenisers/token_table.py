"""Texts as ids: the ids that our own towers give a meaning to, and many texts in one table."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

PAD, START, END, UNKNOWN = range(4)
SPECIALS = ("<pad>", "<start>", "<end>", "<unknown>")


@dataclass(frozen=True, eq=False)
class TokenTable:
    """The token ids of many texts in one array: text i is `flat[offsets[i] : offsets[i + 1]]`."""

    flat: NDArray[np.int32]  # (tokens,)
    offsets: NDArray[np.int64]  # (texts + 1,)

    @classmethod
    def from_rows(cls, rows: Iterable[Iterable[int]]) -> Self:
        """The table of texts that are given as ids, one after another; four bytes per token."""
        flat, offsets = array("i"), array("q", [0])
        for row in rows:
            flat.extend(row)
            offsets.append(len(flat))
        return cls(np.array(flat, np.int32), np.array(offsets, np.int64))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """The number of tokens of each text, including start and end."""
        return np.diff(self.offsets)

    def batch(self, indices: Sequence[int] | NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The ids of a batch of texts, padded with zeros to the longest of them, and their lengths."""
        rows = np.asarray(indices, np.int64)
        lengths = self.lengths[rows]  # (rows,)
        columns = np.arange(lengths.max(initial=0))
        inside = columns < lengths[:, None]  # (rows, longest)
        ids = np.full(inside.shape, PAD, np.int64)
        ids[inside] = self.flat[(self.offsets[:-1][rows, None] + columns)[inside]]
        return ids, lengths
