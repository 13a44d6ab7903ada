"""Hits that show the same: copies of a photo in other sizes or files, texts with the same words.

Images are the same where their content is equal, or where all of three unlike judges say so: their difference hashes
are within `BITS` of 64, the cosine of their vectors is at least `COSINE`, and no cell of their thumbnails has a colour
that differs by more than `COLOURS`. The hash knows no colours, and a model may find two things alike that people tell
apart: in drawings, two judges were not enough (benchmarks/probes/near_duplicates.py; figures in docs/search.md).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Floats, Integers

BITS = 10
COSINE = 0.95
COLOURS = 40.0  # of 255

Colours = Callable[[int], Floats]

_ROWS = 256  # images that are compared with all others at once
_ONES = np.array([bin(byte).count("1") for byte in range(256)], np.uint8)


def same_images(contents: Integers, looks: NDArray[np.uint64], vectors: Floats, colours: Colours) -> Integers:
    """The first image that shows the same, for each of a list: (images,). One that shows something new is its own.

    `colours` gives those of an image of the list; it is asked only where the other judges agree.
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    directions = vectors / np.where(lengths > 0, lengths, 1)
    first = np.arange(len(contents))

    def agree(one: int, other: int) -> bool:
        return bool(contents[one] == contents[other] or np.abs(colours(one) - colours(other)).max() <= COLOURS)

    for begin in range(0, len(contents), _ROWS):
        rows = slice(begin, begin + _ROWS)
        same = _differing(looks[rows, None], looks[None]) <= BITS  # (rows, images)
        same &= directions[rows] @ directions.T >= COSINE
        same |= contents[rows, None] == contents[None]
        same &= np.arange(len(contents)) < first[rows, None]  # with those before it
        for row in np.flatnonzero(same.any(1)).tolist():
            leaders = np.flatnonzero(same[row] & (first == np.arange(len(first)))).tolist()
            first[begin + row] = next((leader for leader in leaders if agree(begin + row, leader)), begin + row)
    return first


def same_texts(texts: Sequence[str]) -> Integers:
    """The first text that says the same, for each of a list: (texts,). Case, punctuation and spaces do not count."""
    seen: dict[str, int] = {}
    return np.array([seen.setdefault(_words(text), row) for row, text in enumerate(texts)], np.int64)


def _differing(looks: NDArray[np.uint64], others: NDArray[np.uint64]) -> Integers:
    """How many bits differ, of every look with every other: (looks, others)."""
    differing = (looks ^ others)[..., None].view(np.uint8)  # (looks, others, 8)
    bits: Integers = _ONES[differing].sum(-1, dtype=np.int64)
    return bits


def _words(text: str) -> str:
    """A text's words alone; one without any letter or digit is itself."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    kept = "".join(sign if sign.isalnum() or unicodedata.category(sign)[0] == "M" else " " for sign in plain)
    return " ".join(kept.split()) or text
