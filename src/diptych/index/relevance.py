"""Decides which hits stand out: whose score is higher than entries unrelated to the query are expected to reach.

A fixed threshold would depend on the model, the folder and the number of entries. Here a score stands out if fewer than
`EXPECTED` unrelated entries are expected to reach it:

    entries * Q((score - centre) / spread) < EXPECTED        Q: upper tail of the standard normal distribution

The centre is the median of the query's scores. The spread is estimated from the folder, because that of the query grows
with what it finds: it is how far an entry's scores with the others fall below their median, measured on the lower half,
which contains nothing similar to the entry. On photos this separated answerable from unanswerable queries more often
than the query's own spread, the tail of its scores, or a panel of other texts (benchmarks/probes/nothing_found.py;
figures in docs/search.md).

In a folder that shows the same thing throughout, no score stands out when one searches for that thing. The entries of
such a folder resemble each other (their mutual scores lie above what the spread explains), and a query whose median
score is close to theirs matches the folder as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Floats

EQUAL = 0.99  # two entries with at least this cosine are practically equal, and always stand out
EXPECTED = 0.1  # unrelated entries expected to reach a score that stands out; chosen on photos by the probe above
FEWEST = 20  # entries; with fewer, nothing can be estimated
ALIKE = 0.5  # median mutual score, in spreads, above which a folder counts as showing the same thing throughout
FITTING = 0.75  # share of the median mutual score from which a query matches such a folder as a whole

QUERIES = 256  # entries whose scores with the sample are measured
_BELOW = 0.16  # share of a normal distribution that lies more than one standard deviation below the mean


@dataclass(frozen=True)
class Background:
    """How the entries of a folder score each other, for queries of length one: spread, and median mutual score."""

    spread: float
    level: float


def estimate_background(vectors: Floats) -> Background | None:
    """The background of some entries, (entries, size), in random order; None if they are too few or all equal.

    The first `QUERIES` of them are scored against all.
    """
    if len(vectors) < FEWEST:
        return None
    queries = vectors[:QUERIES]
    norms = np.linalg.norm(queries, axis=1, keepdims=True)
    scores = (queries @ vectors.T) / np.where(norms > 0, norms, 1)  # (queries, entries)
    np.fill_diagonal(scores, np.nan)  # an entry with itself
    low, median = np.nanquantile(scores, [_BELOW, 0.5], axis=1)
    spread = float(np.median(median - low))
    return Background(spread, float(np.median(median))) if spread > 0 else None


def thresholds(scores: Floats, norms: Floats, entries: int, background: Background | None) -> NDArray[np.float64]:
    """The score from which a hit stands out, per query; minus infinity if there is no background to compare with.

    `scores` are those of each query with a sample of the unfiltered index, (queries, sample), `norms` the lengths of
    the queries, and `entries` the number of entries that can be found.
    """
    if background is None:
        return np.full(len(scores), -np.inf)
    length = np.asarray(norms, np.float64)
    middle = scores.shape[1] // 2
    centre = np.partition(scores, middle, axis=1)[:, middle].astype(np.float64)  # the median, in half the time
    height = -NormalDist().inv_cdf(EXPECTED / entries)  # in spreads
    threshold = centre + height * background.spread * length
    if background.level > ALIKE * background.spread:
        folder = FITTING * background.level * length
        threshold = np.where(centre >= folder, np.minimum(threshold, folder), threshold)
    return threshold
