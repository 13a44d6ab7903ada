"""How surprising the letters of a word are for a word of another language: low for "strandkorb", high for "asdfgh".

    -log p(word) = the sum over its letters of -log p(letter | the three before),
    p(letter | n before) = (count + K p(letter | n - 1 before)) / (count of the n before + K)

The counts are those of the words of other languages in a word list, each with its end, and K is `SMOOTHING`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

SMOOTHING = 5.0
_BEFORE = 3  # letters
_SIGNS = 27  # the end of a word, and the letters


class LetterModel:
    """The sequences of letters in some words of plain letters."""

    def __init__(self, words: Iterable[str]) -> None:
        text = np.frombuffer(("   ".join(["", *words, ""])).encode("ascii"), np.uint8)
        signs = np.where(text == ord(" "), 0, text.astype(np.int64) - ord("a") + 1)
        self._costs = _costs(signs)

    def cost(self, word: str) -> float:
        """The negative logarithm of the probability of a word in plain letters."""
        signs = [0] * _BEFORE + [ord(letter) - ord("a") + 1 for letter in word] + [0]
        return float(sum(self._costs[tuple(signs[at : at + _BEFORE + 1])] for at in range(len(signs) - _BEFORE)))

    def cost_per_letter(self, word: str) -> float:
        """The mean over the letters and the end of a word."""
        return self.cost(word) / (len(word) + 1)


def _costs(signs: NDArray[np.int64]) -> NDArray[np.float32]:
    """The cost of each sign after each sequence of three: (27, 27, 27, 27)."""
    last = signs[_BEFORE:]
    counted = np.ones(len(last), bool)
    counted[1:] = (last[1:] != 0) | (last[:-1] != 0)  # of the blanks between two words only the first is an end
    probability = np.full(_SIGNS, 1 / _SIGNS)
    for before in range(_BEFORE + 1):
        number = np.zeros(len(last), np.int64)
        for back in range(before, -1, -1):
            number = number * _SIGNS + signs[_BEFORE - back : len(signs) - back]
        shape = (_SIGNS,) * (before + 1)
        counts = np.bincount(number[counted], minlength=_SIGNS ** (before + 1)).reshape(shape)
        probability = (counts + SMOOTHING * probability) / (counts.sum(-1, keepdims=True) + SMOOTHING)
    costs: NDArray[np.float32] = (-np.log(probability)).astype(np.float32)
    return costs
