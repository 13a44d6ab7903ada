"""What tokenisers of word pieces share: words are what white space separates, and nearly every word is known."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from diptych.text.tokenisers.stored import StoredTokeniser
from diptych.text.tokenisers.token_table import TokenTable

UNKNOWN_PIECE = None

_SURROGATES = re.compile("[\ud800-\udfff]")


def encodable(text: str) -> str:
    """The text with surrogates, which UTF-8 cannot hold and libraries refuse, replaced by U+FFFD."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


class SubwordTokeniser(StoredTokeniser, ABC):
    """Splits words into pieces. A word is unknown if more than half of its pieces are: another script, or symbols.

    Most words of a language that a tokeniser was not made for are therefore known: it has their letters.
    """

    def encode_words(self, texts: Iterable[Sequence[str]]) -> TokenTable:
        """The ids of texts that are given as words; with the words of `split`, those of the text itself."""
        return self.encode_all(" ".join(words) for words in texts)

    def split(self, text: str) -> list[str]:
        """What white space separates; punctuation belongs to its word."""
        return text.split()

    def known(self, words: Sequence[str]) -> NDArray[np.bool_]:
        """Which words have pieces, at least half of which are known: (words,)."""
        split = self.pieces(words)
        return np.array([0 < len(some) >= 2 * some.count(UNKNOWN_PIECE) for some in split], bool)

    @abstractmethod
    def pieces(self, words: Sequence[str]) -> list[list[str | None]]:
        """The pieces of each word by itself, without special tokens and blanks; None for an unknown piece."""
