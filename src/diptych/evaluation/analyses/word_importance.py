"""Which words of a sentence an image is found by: each is left out once, and the score is taken again.

    importance(word) = s(image, sentence) - s(image, sentence without the word)

(Zheng et al. 2020, dual-path, section VI-D and Fig. 11.) It is asked of the score alone, so any matcher can be asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from diptych.errors import DataError, ScoreError
from diptych.text.tokenisers.treebank import tokenise

if TYPE_CHECKING:  # who serves an export has no torch
    from torch import Tensor

    from diptych.model import Model

KnownWords = Callable[[Sequence[str]], NDArray[np.bool_]]
Scores = Callable[[list[list[str]]], NDArray[np.float64]]

MAX_WORDS = 256  # of a sentence at most: it is encoded once more for each of them


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


def explain(model: Model, image: Tensor, sentence: str) -> Explanation:
    """Leave out each word of a sentence that a run knows; `image` is one encoded image, (1, ...)."""
    import torch

    @torch.inference_mode()
    def scores(texts: list[list[str]]) -> NDArray[np.float64]:
        encoded = model.torch_engine.token_tensor(texts)
        found: NDArray[np.float64] = model.matcher.score(image.to(model.device), encoded)[0].double().cpu().numpy()
        return found

    return leave_one_out(sentence, model.known_words, scores)


def leave_one_out(sentence: str, known_words: KnownWords, scores: Scores) -> Explanation:
    """Leave out each known word of a sentence; `scores` are an image's with texts that are split into words.

    The sentence and all that is left of it are scored as one batch. Without its only word it is the empty text.
    """
    words = tokenise(sentence)
    if not words:
        raise DataError("the sentence is empty; say what to explain in words, such as 'two red circles'")
    if len(words) > MAX_WORDS:
        raise DataError(f"a sentence of {len(words):,} words; at most {MAX_WORDS} can be explained, take a part of it")
    known = known_words(words)
    if not known.any():
        raise DataError(f"{sentence!r}: the run knows none of its words; say it in words of the training texts")
    left = [words[:place] + words[place + 1 :] for place in np.flatnonzero(known).tolist()]
    found = scores([words, *left])
    if not np.isfinite(found).all():
        raise ScoreError(f"{sentence!r}: its score with the image is not a finite number; is the run's model whole?")
    lost = iter((found[0] - found[1:]).tolist())
    each = [WordImportance(place, word, next(lost) if known[place] else None) for place, word in enumerate(words)]
    return Explanation(sentence, float(found[0]), tuple(each))
