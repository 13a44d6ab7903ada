"""K-means among stored features: which of many vectors lie together, with no more than a block of distances held.

Lloyd's algorithm: each vector goes to its nearest centre, each centre to the mean of its vectors, until nothing moves.
Distances are matrix products of a block of vectors and all centres.

The start is that of k-means++, a centre drawn with a probability proportional to its squared distance to the nearest
centre so far, but with several centres a round: one, and one more for every 64 that are there. Up to 64 clusters it is
k-means++ itself. 10,000 clusters take 363 rounds instead of 10,000, and as much work as one step of Lloyd's.

Equal vectors are one with a weight, so that they are never parted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Floats, Integers
from diptych.errors import DataError
from diptych.progress import ProgressCallback

ONE_MORE_EVERY = 64
_AT_ONCE = 1 << 24  # numbers in one block: 64 MB


def kmeans(
    vectors: Floats, clusters: int, seed: int, *, iterations: int = 50, progress: ProgressCallback | None = None
) -> Integers:
    """The cluster of each vector of (vectors, size), from 0 to `clusters` - 1, none of them empty.

    The same seed gives the same clusters. `iterations` are steps at most; `progress` is told how many of how many are
    done, the start among them.
    """
    points = _Points(vectors)
    if not 1 <= clusters <= points.count:
        remedy = f"take 1 to {points.count}" if points.count else "there is nothing to put together"
        raise DataError(f"K-means: {clusters} clusters of {points.count} distinct vectors; {remedy}")
    labels = points.labels(points.start(clusters, np.random.default_rng(seed)))
    for step in range(iterations):
        if progress:
            progress(step + 1, iterations + 1)
        before, labels = labels, points.labels(points.means(labels, clusters))
        if np.array_equal(before, labels):
            break
    if progress:
        progress(iterations + 1, iterations + 1)
    return labels[points.kinds]


class _Points:
    """The distinct ones of some vectors, how often each is there, and their distances to centres.

    They are kept relative to the mean of all: differences of small numbers keep their digits.
    """

    def __init__(self, vectors: Floats) -> None:
        first, self.kinds, sums = _distinct(vectors)
        self.weights = np.bincount(self.kinds, minlength=len(first))
        self.count, self.size = len(first), vectors.shape[1]
        self.vectors = np.asarray(vectors[first], np.float32)  # (count, size)
        self.vectors -= (sums / max(1, len(vectors))).astype(np.float32)
        self.norms = np.empty(self.count, np.float32)
        for rows in _spans(self.count, self.size):
            with np.errstate(over="ignore"):
                self.norms[rows] = np.square(self.vectors[rows]).sum(1)
        if len(wrong := np.flatnonzero(~np.isfinite(self.norms))):
            row = first[wrong[0]]
            raise DataError(f"K-means: vector {row}: its numbers are too large to compare; divide all by a constant")

    def start(self, clusters: int, generator: np.random.Generator) -> Floats:
        """As many vectors as there are clusters, far from each other as in k-means++: (clusters, size)."""
        drawn = np.empty(0, np.int64)
        gaps = np.ones(self.count)  # to the nearest that is drawn; squared
        while len(drawn) < clusters:
            chances = gaps * self.weights
            if not chances.any():  # what is left differs from what is drawn by less than single precision tells
                chances = np.ones(self.count)
                chances[drawn] = 0
            wanted = min(1 + len(drawn) // ONE_MORE_EVERY, clusters - len(drawn), int((chances > 0).sum()))
            new = generator.choice(self.count, wanted, replace=False, p=chances / chances.sum())
            _, closer = self._nearest(self.vectors[new])
            gaps = np.minimum(gaps, closer) if len(drawn) else closer
            drawn = np.append(drawn, new)
            gaps[drawn] = 0
        return self.vectors[drawn]

    def labels(self, centres: Floats) -> Integers:
        """The nearest centre of each; one without any gets, in turn, what lies farthest from its centre."""
        labels, gaps = self._nearest(centres)
        members = np.bincount(labels, minlength=len(centres))
        empty = np.flatnonzero(members == 0)
        farthest: Iterator[int] = iter(np.argsort(-gaps, kind="stable") if len(empty) else ())
        for cluster in empty:
            point = next(point for point in farthest if members[labels[point]] > 1)
            members[labels[point]] -= 1
            labels[point], members[cluster] = cluster, 1
        return labels

    def means(self, labels: Integers, clusters: int) -> Floats:
        """The mean of each cluster, none of which is empty: (clusters, size)."""
        sums = np.zeros((clusters, self.size))
        for label, weight, vector in zip(labels.tolist(), self.weights.tolist(), self.vectors, strict=True):
            sums[label] += weight * vector
        return (sums / np.bincount(labels, self.weights)[:, None]).astype(np.float32)

    def _nearest(self, centres: Floats) -> tuple[Integers, NDArray[np.float64]]:
        """The nearest centre of each, and the squared distance to it."""
        labels, gaps = np.empty(self.count, np.int64), np.empty(self.count)
        halves = np.square(centres).sum(1) / 2
        for rows in _spans(self.count, len(centres)):
            near = self.vectors[rows] @ centres.T  # (rows, centres)
            near -= halves  # half of: squared norm - squared distance
            labels[rows] = near.argmax(1)
            gaps[rows] = np.maximum(self.norms[rows] - 2 * near[np.arange(len(near)), labels[rows]], 0)
        return labels, gaps


def _distinct(vectors: Floats) -> tuple[Integers, Integers, NDArray[np.float64]]:
    """The first row of each distinct vector, which of these each row is, and the sum of all rows."""
    numbers: dict[bytes, int] = {}
    first: list[int] = []
    kinds = np.empty(len(vectors), np.int64)
    sums = np.zeros(vectors.shape[1])
    for rows in _spans(len(vectors), vectors.shape[1]):
        block = np.asarray(vectors[rows], np.float32) + np.float32(0)  # there is but one 0
        if len(wrong := np.flatnonzero(~np.isfinite(block).all(1))):
            raise DataError(f"K-means: vector {rows.start + wrong[0]} has a number that is not finite; make it again")
        sums += block.sum(0, dtype=np.float64)
        for row, vector in enumerate(block, rows.start):
            kinds[row] = numbers.setdefault(hashlib.blake2b(vector.tobytes(), digest_size=16).digest(), len(first))
            if kinds[row] == len(first):
                first.append(row)
    return np.array(first, np.int64), kinds, sums


def _spans(count: int, width: int) -> Iterator[slice]:
    """Parts of `count` rows that have a bounded number of numbers, `width` each."""
    rows = max(1, _AT_ONCE // max(1, width))
    return (slice(start, min(start + rows, count)) for start in range(0, count, rows))
