"""Which words of a sentence an image is found by: each is left out once, and the score is taken again.

    importance(word) = s(image, sentence) - s(image, sentence without the word)

(Zheng et al. 2020, dual-path, section VI-D and Fig. 11.) It is asked of the score alone, so any matcher can be asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diptych.data.corpus import Integers
from diptych.errors import DataError, ScoreError
from diptych.models.towers import fitted_tower
from diptych.models.trained import Trained
from diptych.text.tokens import tokenise
from diptych.text.vocabulary import END, PAD, START, UNKNOWN

WORDS = 256  # of a sentence at most: it is encoded once more for each of them


@dataclass(frozen=True)
class WordImportance:
    """A word at its place in the sentence, from 0, and how much the score loses without it.

    A word that the model does not know has no importance: there is nothing that the model could lose.
    """

    place: int
    word: str
    importance: float | None

    def to_json(self) -> dict[str, Any]:
        """The word, its place and its importance, which is null where the model does not know the word."""
        return {"place": self.place, "word": self.word, "importance": self.importance}


@dataclass(frozen=True)
class Explanation:
    """An image's score with a sentence, and the sentence's words in their order, each with its importance."""

    sentence: str
    score: float
    words: tuple[WordImportance, ...]

    @property
    def by_importance(self) -> list[WordImportance]:
        """The known words, the most important first, equal ones in the order of the sentence."""
        known = [(-word.importance, word.place, word) for word in self.words if word.importance is not None]
        return [word for _, _, word in sorted(known)]

    @property
    def unknown(self) -> list[str]:
        """The words that the model does not know, each once."""
        return list(dict.fromkeys(word.word for word in self.words if word.importance is None))

    def to_json(self) -> dict[str, Any]:
        """Everything under lasting names, the words in the order of the sentence and by their importance."""
        return {
            "sentence": self.sentence,
            "score": self.score,
            "words": [word.to_json() for word in self.words],
            "by_importance": [word.to_json() for word in self.by_importance],
        }


@torch.inference_mode()
def explain(trained: Trained, image: Tensor, sentence: str) -> Explanation:
    """Leave out each word of a sentence that the model knows; `image` is one encoded image, (1, ...).

    The sentence and all that is left of it are encoded as one batch. Without its only word it is the empty text.
    """
    words = tokenise(sentence)
    if not words:
        raise DataError("the sentence is empty; say what to explain in words, such as 'two red circles'")
    if len(words) > WORDS:
        raise DataError(f"a sentence of {len(words):,} words; at most {WORDS} can be explained, take a part of it")
    ids = np.array([trained.vocabulary.ids.get(word, UNKNOWN) for word in words], np.int64)
    known = _known(trained, ids)
    if not known.any():
        raise DataError(f"{sentence!r}: the run knows none of its words; say it in words of the training texts")
    left = [np.delete(ids, place) for place in np.flatnonzero(known)]
    texts = trained.matcher.encode_texts(trained.tokens(*_padded([ids, *left])))
    scores = trained.matcher.score(image.to(trained.device), texts)[0].double().cpu()
    if not scores.isfinite().all():
        raise ScoreError(f"{sentence!r}: its score with the image is not a finite number; is the run's model whole?")
    lost = iter((scores[0] - scores[1:]).tolist())
    found = [WordImportance(place, word, next(lost) if known[place] else None) for place, word in enumerate(words)]
    return Explanation(sentence, scores[0].item(), tuple(found))


def _known(trained: Trained, ids: Integers) -> NDArray[np.bool_]:
    """Which words the model can tell from others: those of its vocabulary and, if it is fitted, of its text tower."""
    known: NDArray[np.bool_] = ids != UNKNOWN
    fitted = fitted_tower(trained.matcher)
    if fitted is not None:
        known &= fitted.known(trained.tokens(*_padded(list(ids[:, None])))).cpu().numpy()
    return known


def _padded(texts: list[Integers]) -> tuple[Integers, Integers]:
    """Words' ids between start and end, padded to the longest text, (texts, length), and the lengths."""
    lengths = np.array([len(text) + 2 for text in texts], np.int64)
    ids = np.full((len(texts), lengths.max()), PAD, np.int64)
    for row, text in zip(ids, texts, strict=True):
        row[: len(text) + 2] = [START, *text, END]
    return ids, lengths
