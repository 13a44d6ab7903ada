"""Fits the calibration of a model on captioned photos that it was not trained on, such as the val split.

Half of the photos are references, and pairs of queries with the other half are what the weights are fitted on, by
logistic regression; then the other way round, so that all photos are used. A photo whose captions do not have a query's
words, but say something similar ("puppy" for "dog"), is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Floats, Integers
from diptych.errors import DataError
from diptych.models.calibration.calibration import FEATURES, Calibration, LogisticFit, describe_texts
from diptych.models.calibration.caption_queries import CaptionIndex
from diptych.models.embeddings import normalized

FEWEST = 100  # photos
PHOTOS = 1000  # that are used of a larger split; half of them are references
QUERIES = 8000  # that are drawn, many of them several times
BEST, OTHERS = 60, 60  # pairs of a query: those with the best scores, and some of the others, which count for all
SIMILAR = 0.6  # cosine of two texts that say something similar, at most
MOST_LEFT_OUT = 0.15  # share of the photos without the words that may be left out
RARER = 0.4  # power of how often a query was drawn, for the fit that judges answers; chosen on val
_RIDGE = 1e-5
_STEPS = 50


@dataclass(frozen=True)
class CaptionedPhotos:
    """Encoded photos and their captions; `owners` are the photos of the captions, as rows of `images`."""

    images: Floats
    captions: Sequence[str]
    texts: Floats
    owners: Integers

    def sample(self, count: int, random: np.random.Generator) -> CaptionedPhotos:
        """At most that many photos, in random order, with their captions."""
        rows = random.permutation(len(self.images))[:count]
        place = np.full(len(self.images), -1)
        place[rows] = np.arange(len(rows))
        kept = np.flatnonzero(place[self.owners] >= 0)
        captions = [self.captions[row] for row in kept.tolist()]
        return CaptionedPhotos(self.images[rows], captions, self.texts[kept], place[self.owners[kept]])


@dataclass(frozen=True)
class _Pairs:
    """Features, (pairs, FEATURES), whether the photo matches, and weights, whose sum is one per query.

    `times` is how often the query of each pair was drawn.
    """

    features: Floats
    right: NDArray[np.bool_]
    weights: Floats
    times: Floats


def fit_calibration(
    photos: CaptionedPhotos, encode: Callable[[list[str]], Floats], identity: str, seed: int = 0
) -> Calibration:
    """The calibration of the model with this identity; `encode` encodes texts with it, whatever their number."""
    if len(photos.images) < FEWEST or not len(photos.captions):
        raise DataError(f"{len(photos.images)} photos with captions are too few to calibrate with; take {FEWEST}")
    random = np.random.default_rng(seed)
    photos = photos.sample(PHOTOS, random)
    index = CaptionIndex(photos.captions, photos.owners, len(photos.images))
    drawn = index.draw(QUERIES, random)
    if not drawn:
        raise DataError("the captions have no words that describe a photo, so there is nothing to calibrate with")
    queries = list(dict.fromkeys(drawn))
    vectors, times = encode(queries), Counter(drawn)
    even, odd = np.arange(0, len(photos.images), 2), np.arange(1, len(photos.images), 2)
    parts = [
        replace(pairs, times=np.full(len(pairs.right), times[query], np.float32))
        for references, rows in ((even, odd), (odd, even))
        for query, pairs in _pairs(photos, index, queries, vectors, references, rows, random)
    ]
    if not parts:
        raise DataError("the words of the captions describe no photo, so there is nothing to calibrate with")
    pairs = _Pairs(*(np.concatenate([getattr(part, each.name) for part in parts]) for each in fields(_Pairs)))
    if pairs.right.all():
        raise DataError("the captions describe every photo alike, so there is nothing to calibrate with")
    hits, loss = _logistic_regression(pairs.features, pairs.right, pairs.weights * pairs.times)
    answers, _ = _logistic_regression(pairs.features, pairs.right, pairs.weights * pairs.times**RARER)
    if min(hits.weights[0], answers.weights[0]) <= 0:
        raise DataError("the model scores photos that match a text no higher than others; train it first")
    share = float(np.average(pairs.right, weights=pairs.weights * pairs.times))
    figures = {
        "photos": len(photos.images),
        "queries": len(queries),
        "pairs": len(pairs.right),
        "log_loss": round(loss, 5),
        "log_loss_of_a_constant": round(float(-share * np.log(share) - (1 - share) * np.log1p(-share)), 5),
    }
    return Calibration(identity, hits, answers, photos.images[even], figures)


def _pairs(  # noqa: PLR0917 (what all queries share, and which photos they are compared with)
    photos: CaptionedPhotos,
    index: CaptionIndex,
    queries: list[str],
    vectors: Floats,
    references: Integers,
    rows: Integers,
    random: np.random.Generator,
) -> list[tuple[str, _Pairs]]:
    """The pairs of each query that describes a photo of `rows`, each drawn once."""
    about = describe_texts(vectors @ photos.images[references].T, queries)
    scores = vectors @ photos.images[rows].T  # (queries, rows)
    similar = _similarity(photos, vectors)[:, rows]
    pairs = []
    for place, query in enumerate(queries):
        sure, maybe = (found[rows] for found in index.matches(query))
        if not sure.any():
            continue
        unsaid = np.flatnonzero(~maybe)
        level = min(SIMILAR, float(np.median(similar[place, sure])))
        if len(unsaid):  # a text tower may find all texts similar
            level = max(level, float(np.quantile(similar[place, unsaid], 1 - MOST_LEFT_OUT)))
        used = np.concatenate([np.flatnonzero(sure), unsaid[similar[place, unsaid] <= level]])
        used = used[np.argsort(-scores[place, used], kind="stable")]
        best, rest = used[:BEST], used[BEST:]
        drawn = random.choice(rest, min(OTHERS, len(rest)), replace=False)
        weights = np.concatenate([np.ones(len(best)), np.full(len(drawn), len(rest) / max(1, len(drawn)))])
        chosen = np.concatenate([best, drawn])
        features = np.column_stack([scores[place, chosen], np.tile(about[place], (len(chosen), 1))])
        weights = (weights / weights.sum()).astype(np.float32)
        pairs.append((query, _Pairs(features.astype(np.float32), sure[chosen], weights, np.ones_like(weights))))
    return pairs


def _similarity(photos: CaptionedPhotos, queries: Floats) -> Floats:
    """The cosine of each query with the caption of each photo that is most similar to it: (queries, photos)."""
    cosines = normalized(queries) @ normalized(photos.texts).T
    similar = np.full((len(queries), len(photos.images)), -1, np.float32)
    for caption, owner in enumerate(photos.owners.tolist()):
        np.maximum(similar[:, owner], cosines[:, caption], out=similar[:, owner])
    return similar


def _logistic_regression(features: Floats, right: NDArray[np.bool_], weights: Floats) -> tuple[LogisticFit, float]:
    """The fit and its mean loss, by Newton's method on standardised features with a small ridge."""
    weights = weights / weights.sum()
    mean = weights @ features
    spread = np.sqrt(weights @ (features - mean) ** 2) + 1e-9
    inputs = np.column_stack([(features - mean) / spread, np.ones(len(features))]).astype(np.float64)
    ridge = np.diag([_RIDGE / FEATURES] * FEATURES + [0.0])
    solution = np.zeros(FEATURES + 1)
    for _ in range(_STEPS):
        chance = 1 / (1 + np.exp(-np.clip(inputs @ solution, -60, 60)))
        gradient = inputs.T @ (weights * (chance - right)) + ridge @ solution
        curvature = (inputs * (weights * chance * (1 - chance))[:, None]).T @ inputs + ridge
        step = np.linalg.solve(curvature + 1e-12 * np.eye(FEATURES + 1), gradient)
        solution -= step
        if np.abs(step).max() < 1e-6:
            break
    chance = np.clip(1 / (1 + np.exp(-np.clip(inputs @ solution, -60, 60))), 1e-12, 1 - 1e-12)
    loss = -float(weights @ np.where(right, np.log(chance), np.log(1 - chance)))
    coefficients = solution[:-1] / spread
    return LogisticFit(coefficients.astype(np.float32), float(solution[-1] - mean @ coefficients)), loss
