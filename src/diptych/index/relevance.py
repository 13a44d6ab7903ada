"""Whether anything was found: which scores are more than entries reach that have nothing to do with the query.

A flat threshold knows neither the model, nor the folder, nor how many entries there are. Here a score stands out where
fewer than `EXPECTED` unrelated entries of so many are expected to reach it:

    entries * Q((score - centre) / spread) < EXPECTED        Q: the normal distribution's upper tail

The centre is the median of the query's own scores. The spread is not the query's own, which grows with what it finds,
but that of the folder: how far an entry's scores with the others fall below their median, measured on the lower half,
where nothing is that resembles it. On photos this told answers from none more often than the query's own spread, the
tail of its scores, or a panel of other texts did (benchmarks/probes/nothing_found.py; figures in docs/search.md).

A folder that shows the same thing throughout has no score that stands out when it is asked for that thing. There the
entries resemble each other (their mutual scores lie above what the spread explains), and a query whose median score is
like theirs fits the folder as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Floats

EQUAL = 0.99  # a cosine from which on two entries are all but equal, and stand out whatever others do
EXPECTED = 0.1  # unrelated entries that may reach a score which stands out; chosen by benchmarks/probes on photos
FEWEST = 20  # entries; of fewer nobody can tell
ALIKE = 0.5  # spreads that the mutual scores of entries lie above zero where a folder shows the same thing throughout
FITTING = 0.75  # of that mutual score is what a query reaches that the folder as a whole fits

ASKING = 256  # entries that ask all others for the reference
_BELOW = 0.16  # the share of a normal distribution that lies more than one deviation below its middle


@dataclass(frozen=True)
class Reference:
    """How the entries of a folder score each other, for a query of length one: the spread, and the middle of all."""

    spread: float
    level: float


def reference(vectors: Floats) -> Reference | None:
    """What some entries of a folder, (entries, size), say about each other; None where they are too few or all equal.

    The vectors are a sample in no order: the first ones ask, all of them answer.
    """
    if len(vectors) < FEWEST:
        return None
    asking = vectors[:ASKING]
    lengths = np.linalg.norm(asking, axis=1, keepdims=True)
    scores = (asking @ vectors.T) / np.where(lengths > 0, lengths, 1)  # (asking, entries)
    np.fill_diagonal(scores, np.nan)  # of an entry with itself
    low, middle = np.nanquantile(scores, [_BELOW, 0.5], axis=1)
    spread = float(np.median(middle - low))
    return Reference(spread, float(np.median(middle))) if spread > 0 else None


def bars(scores: Floats, lengths: Floats, entries: int, reference: Reference | None) -> NDArray[np.float64]:
    """The score from which on a hit stands out, for each query; minus infinity where nobody can tell.

    `scores` are each query's with a sample of the whole index, (queries, sample), and `lengths` those of the queries;
    `entries` is how many could be found.
    """
    if reference is None:
        return np.full(len(scores), -np.inf)
    length = np.asarray(lengths, np.float64)
    middle = scores.shape[1] // 2
    centre = np.partition(scores, middle, axis=1)[:, middle].astype(np.float64)  # the median, in half of its time
    height = -NormalDist().inv_cdf(EXPECTED / entries)  # in spreads
    bar = centre + height * reference.spread * length
    if reference.level > ALIKE * reference.spread:
        whole = FITTING * reference.level * length
        bar = np.where(centre >= whole, np.minimum(bar, whole), bar)
    return bar
