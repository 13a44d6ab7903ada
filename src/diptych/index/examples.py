"""Examples of queries, made from an index itself: everyday phrases that several of its photos fit, each phrase others.

Up to a few thousand photos, drawn at random from a large index, are compared with the phrases of `examples.txt`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np

from diptych.data.corpus import Floats
from diptych.index.pools import EntryPool
from diptych.index.relevance import FOUND, LEVELS
from diptych.model import Model
from diptych.models.calibration.calibration import FEATURES, Calibration

EXAMPLES = 8
SEVERAL = 3  # photos that must fit a phrase
_LEAST = dict(LEVELS)["likely"]


@dataclass(frozen=True)
class EncodedPhrases:
    """The phrases with their vectors, (phrases, size), and what a calibration knows of them."""

    texts: Sequence[str]
    vectors: Floats
    about: Floats

    @classmethod
    def of(cls, model: Model, calibration: Calibration) -> EncodedPhrases:
        """The phrases of which the model knows every word, encoded by it."""
        texts = [text for text in phrases() if model.known_words(model.tokeniser.split(text)).all()]
        if not texts:
            return cls((), np.zeros((0, model.embedding_dim), np.float32), np.zeros((0, FEATURES - 1), np.float32))
        vectors = model.engine.encode_texts(texts).vectors
        return cls(texts, vectors, calibration.describe_texts(vectors, texts))


@cache
def phrases() -> tuple[str, ...]:
    """The phrases of the file, in its order."""
    lines = resources.files(__package__).joinpath("examples.txt").read_text(encoding="utf-8").splitlines()
    return tuple(line for line in lines if line and not line.startswith("#"))


def choose_examples(
    pool: EntryPool, encoded: EncodedPhrases, calibration: Calibration, count: int = EXAMPLES
) -> tuple[str, ...]:
    """The phrases that photos of a pool fit best; no photo is among the best of two of them."""
    best = min(SEVERAL, len(pool))
    if not best or not len(encoded.texts):
        return ()
    scores = encoded.vectors @ pool.sampled.T  # (phrases, photos)
    rows = np.argpartition(scores, -best, axis=1)[:, -best:]
    scores = np.take_along_axis(scores, rows, axis=1)
    top = scores.max(1)
    answers = calibration.answers.probabilities(top, encoded.about)
    fits = np.column_stack([calibration.hits.probabilities(column, encoded.about) for column in scores.T])
    order = np.argsort(-fits.mean(1), kind="stable")
    chosen: list[str] = []
    shown: set[int] = set()
    for place in order[(answers >= FOUND)[order] & (fits.min(1) >= _LEAST)[order]].tolist():
        photos = set(rows[place].tolist())
        if len(chosen) < count and not photos & shown:
            chosen.append(encoded.texts[place])
            shown |= photos
    return tuple(chosen)
