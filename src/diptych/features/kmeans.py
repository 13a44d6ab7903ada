"""K-means clustering of stored features, with only a block of distances in memory.

Lloyd's algorithm: assign each vector to its nearest centre, move each centre to the mean of its vectors, and repeat
until nothing changes. Distances are matrix products of a block of vectors and all centres.

The initial centres are those of k-means++, drawn with a probability proportional to the squared distance to the nearest
centre so far, but several per round: one, plus one for every 64 centres drawn before. Up to 64 clusters this is
k-means++ itself. 10,000 clusters take 363 rounds instead of 10,000, about as much work as one step of Lloyd's.

Equal vectors count as one vector with a weight, so that they always share a cluster.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Floats, Integers
from diptych.errors import DataError
from diptych.progress import ProgressCallback

CENTRES_PER_EXTRA_DRAW = 64
_BLOCK = 1 << 24  # numbers per block: 64 MB


def kmeans(
    vectors: Floats, clusters: int, seed: int, *, iterations: int = 50, progress: ProgressCallback | None = None
) -> Integers:
    """The cluster of each of the vectors (vectors, size), from 0 to `clusters` - 1; no cluster is empty.

    The same seed gives the same clusters. There are at most `iterations` steps; `progress` receives the number of steps
    done, including the initialisation, and their total.
    """
    points = _Points(vectors)
    if not 1 <= clusters <= points.count:
        remedy = f"choose 1 to {points.count}" if points.count else "there are no vectors"
        raise DataError(f"K-means: {clusters} clusters of {points.count} distinct vectors; {remedy}")
    labels = points.labels(points.initial_centres(clusters, np.random.default_rng(seed)))
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
    """The distinct vectors with their multiplicities, and their distances to centres.

    The mean of all vectors is subtracted, because differences of small numbers are more precise.
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

    def initial_centres(self, clusters: int, generator: np.random.Generator) -> Floats:
        """Vectors that are far from each other, as in k-means++: (clusters, size)."""
        drawn = np.empty(0, np.int64)
        gaps = np.ones(self.count)  # squared distance to the nearest centre drawn so far
        while len(drawn) < clusters:
            weights = gaps * self.weights
            if not weights.any():  # the rest equals the drawn ones in single precision
                weights = np.ones(self.count)
                weights[drawn] = 0
            count = min(1 + len(drawn) // CENTRES_PER_EXTRA_DRAW, clusters - len(drawn), int((weights > 0).sum()))
            new = generator.choice(self.count, count, replace=False, p=weights / weights.sum())
            _, closer = self._nearest(self.vectors[new])
            gaps = np.minimum(gaps, closer) if len(drawn) else closer
            drawn = np.append(drawn, new)
            gaps[drawn] = 0
        return self.vectors[drawn]

    def labels(self, centres: Floats) -> Integers:
        """The nearest centre of each vector; empty clusters then get, in turn, the vector farthest from its centre."""
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
        """The mean of each cluster, none of which may be empty: (clusters, size)."""
        sums = np.zeros((clusters, self.size))
        for label, weight, vector in zip(labels.tolist(), self.weights.tolist(), self.vectors, strict=True):
            sums[label] += weight * vector
        return (sums / np.bincount(labels, self.weights)[:, None]).astype(np.float32)

    def _nearest(self, centres: Floats) -> tuple[Integers, NDArray[np.float64]]:
        """The nearest centre of each vector, and the squared distance to it."""
        labels, gaps = np.empty(self.count, np.int64), np.empty(self.count)
        halves = np.square(centres).sum(1) / 2
        for rows in _spans(self.count, len(centres)):
            near = self.vectors[rows] @ centres.T  # (rows, centres)
            near -= halves  # half of (squared norm - squared distance)
            labels[rows] = near.argmax(1)
            gaps[rows] = np.maximum(self.norms[rows] - 2 * near[np.arange(len(near)), labels[rows]], 0)
        return labels, gaps


def _distinct(vectors: Floats) -> tuple[Integers, Integers, NDArray[np.float64]]:
    """The first row of each distinct vector, the distinct vector of each row, and the sum of all rows."""
    numbers: dict[bytes, int] = {}
    first: list[int] = []
    kinds = np.empty(len(vectors), np.int64)
    sums = np.zeros(vectors.shape[1])
    for rows in _spans(len(vectors), vectors.shape[1]):
        block = np.asarray(vectors[rows], np.float32) + np.float32(0)  # turns -0.0 into 0.0
        if len(wrong := np.flatnonzero(~np.isfinite(block).all(1))):
            raise DataError(
                f"K-means: vector {rows.start + wrong[0]} has a number that is not finite; compute it again"
            )
        sums += block.sum(0, dtype=np.float64)
        for row, vector in enumerate(block, rows.start):
            kinds[row] = numbers.setdefault(hashlib.blake2b(vector.tobytes(), digest_size=16).digest(), len(first))
            if kinds[row] == len(first):
                first.append(row)
    return np.array(first, np.int64), kinds, sums


def _spans(count: int, width: int) -> Iterator[slice]:
    """Slices of `count` rows with `width` numbers each, so that a slice is at most one block."""
    rows = max(1, _BLOCK // max(1, width))
    return (slice(start, min(start + rows, count)) for start in range(0, count, rows))
