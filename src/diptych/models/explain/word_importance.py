"""The importance of each word of a sentence for an image: how much the score drops without the word.

    importance(word) = s(image, sentence) - s(image, sentence without the word)

(Zheng et al. 2020, dual-path, section VI-D and Fig. 11.) It needs only scores, so it works with any model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from diptych.errors import DataError, ScoreError
from diptych.models.engines.engine import Encodings, Engine

MAX_WORDS = 256  # the sentence is encoded once more for each of its words


@dataclass(frozen=True)
class WordImportance:
    """A word, its position in the sentence from 0, and its importance; None if the model does not know the word."""

    position: int
    word: str
    importance: float | None

    def to_json(self) -> dict[str, Any]:
        """The word, its position as `place`, and its importance, which may be null."""
        return {"place": self.position, "word": self.word, "importance": self.importance}


@dataclass(frozen=True)
class Explanation:
    """The score of an image with a sentence, and the words of the sentence with their importance, in order."""

    sentence: str
    score: float
    words: tuple[WordImportance, ...]

    @property
    def by_importance(self) -> list[WordImportance]:
        """The known words, the most important first; equal ones keep the order of the sentence."""
        known = [(-word.importance, word.position, word) for word in self.words if word.importance is not None]
        return [word for _, _, word in sorted(known)]

    @property
    def unknown(self) -> list[str]:
        """The distinct words that the model does not know."""
        return list(dict.fromkeys(word.word for word in self.words if word.importance is None))

    def to_json(self) -> dict[str, Any]:
        """Everything under stable names, the words in the order of the sentence and by importance."""
        return {
            "sentence": self.sentence,
            "score": self.score,
            "words": [word.to_json() for word in self.words],
            "by_importance": [word.to_json() for word in self.by_importance],
        }


def explain(engine: Engine, image: Encodings, sentence: str) -> Explanation:
    """The importance of each word of a sentence for one encoded image.

    The sentence and its shortened versions are scored as one batch. A single word leaves the empty text.
    """
    words = engine.tokeniser.split(sentence)
    if not words:
        raise DataError("the sentence is empty; describe something, such as 'two red circles'")
    if len(words) > MAX_WORDS:
        raise DataError(f"a sentence of {len(words):,} words; at most {MAX_WORDS} can be explained, shorten it")
    known = engine.known_words(words)
    if not known.any():
        raise DataError(f"{sentence!r}: the run knows none of its words; use words of the training texts")
    shortened = [words[:position] + words[position + 1 :] for position in np.flatnonzero(known).tolist()]
    scores = engine.score(image, engine.encode_tokens([words, *shortened]))[0].astype(np.float64)
    if not np.isfinite(scores).all():
        raise ScoreError(f"{sentence!r}: its score with the image is not a finite number; is the run damaged?")
    drops = iter((scores[0] - scores[1:]).tolist())
    importances = (next(drops) if is_known else None for is_known in known)
    explained = map(WordImportance, range(len(words)), words, importances)
    return Explanation(sentence, float(scores[0]), tuple(explained))
