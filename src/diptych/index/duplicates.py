"""Near-duplicates: copies of a photo in another size, compression or file, and texts with the same words.

Two images are near-duplicates if their content is equal, or if three independent criteria agree: their difference
hashes differ in at most `BITS` of 64 bits, the cosine of their vectors is at least `COSINE`, and no cell of their
thumbnails differs by more than `COLOURS` in a colour. The hash ignores colours, and a model may confuse what people
tell apart: for drawings, two criteria were not enough (benchmarks/probes/near_duplicates.py, docs/search.md).
Two frames of one video show the same scene if the cosine of their vectors is at least `SCENE_COSINE`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Floats, Integers
from diptych.models.embeddings import normalized

BITS = 10
COSINE = 0.95
COLOURS = 40.0  # of 255
SCENE_COSINE = 0.75

Colours = Callable[[int], Floats]

_ROWS = 256  # images per block that is compared with all others
_ONES = np.array([bin(byte).count("1") for byte in range(256)], np.uint8)


def first_same_image(
    contents: Integers,
    looks: NDArray[np.uint64],
    vectors: Floats,
    colours: Colours,
    known: int = 0,
    videos: Integers | None = None,
) -> Integers:
    """For each image the position of the first one that shows the same, (images,): its own if there is none before it.

    The first `known` images are known to differ from each other. `colours` returns the colour grid of the image at a
    position; it is called only if the other criteria agree. `videos` are the numbers of the videos that images are
    frames of, 0 for photos.
    """
    first = np.arange(len(contents))

    def agree(one: int, other: int) -> bool:
        return bool(contents[one] == contents[other] or np.abs(colours(one) - colours(other)).max() <= COLOURS)

    for begin in range(known, len(contents), _ROWS):
        rows = slice(begin, begin + _ROWS)
        same = _differing(looks[rows, None], looks[None, : begin + _ROWS]) <= BITS  # (rows, images)
        # Few images have a similar hash: cosines are needed of those only.
        some, others = np.flatnonzero(same.any(1)), np.flatnonzero(same.any(0))
        cosines = normalized(vectors[begin + some]) @ normalized(vectors[others]).T
        same[np.ix_(some, others)] &= cosines >= COSINE
        same |= contents[rows, None] == contents[None, : begin + _ROWS]
        scenes = _same_scenes(vectors, videos, rows) if videos is not None and videos.any() else np.zeros_like(same)
        same |= scenes
        same &= np.arange(same.shape[1]) < first[rows, None]  # only with those before it
        for row in np.flatnonzero(same.any(1)).tolist():
            leaders = np.flatnonzero(same[row] & (first == np.arange(len(first)))[: same.shape[1]]).tolist()
            found = (leader for leader in leaders if scenes[row, leader] or agree(begin + row, leader))
            first[begin + row] = next(found, begin + row)
    return first


def plain_words(text: str) -> str:
    """The words of a text without case and punctuation; a text without letters or digits is returned as it is."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    letters = "".join(
        character if character.isalnum() or unicodedata.category(character)[0] == "M" else " " for character in plain
    )
    return " ".join(letters.split()) or text


def _same_scenes(vectors: Floats, videos: Integers, rows: slice) -> NDArray[np.bool_]:
    """Which of these rows are frames of the same scene of a video as those up to their end: (rows, images)."""
    is_same: NDArray[np.bool_] = (videos[rows, None] == videos[None, : rows.stop]) & (videos[rows, None] > 0)
    cosines = normalized(vectors[rows]) @ normalized(vectors[: rows.stop]).T
    return is_same & (cosines >= SCENE_COSINE)


def _differing(looks: NDArray[np.uint64], others: NDArray[np.uint64]) -> Integers:
    """The number of bits in which every hash differs from every other: (looks, others)."""
    differing = (looks ^ others)[..., None].view(np.uint8)  # (looks, others, 8)
    bits: Integers = _ONES[differing].sum(-1, dtype=np.int64)
    return bits
