"""A tokeniser: every character is a token, for languages that do not separate words by spaces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from diptych.errors import DataError
from diptych.text.tokenisers.stored import StoredTokeniser
from diptych.text.tokenisers.token_table import END, SPECIALS, START, UNKNOWN, TokenTable


class Characters(StoredTokeniser):
    """The characters that a model knows, the most frequent first; their ids follow those of the special tokens."""

    characters: str

    @classmethod
    def from_texts(cls, texts: Iterable[str], size: int, threshold: int) -> Self:
        """The `size` most frequent characters, of those that occur at least `threshold` times."""
        counts = Counter(character for text in texts for character in text.lower())
        frequent = sorted(counts, key=lambda character: (-counts[character], character))
        kept = [character for character in frequent if counts[character] >= threshold]
        if not kept:
            raise DataError(f"no character occurs {threshold} times; use more texts or a lower text.threshold")
        return cls(characters="".join(kept[:size]))

    @property
    def sample_words(self) -> Sequence[str]:
        """Every character is a word."""
        return list(self.characters.replace(" ", ""))

    def __len__(self) -> int:
        return len(SPECIALS) + len(self.characters)

    def encode_all(self, texts: Iterable[str]) -> TokenTable:
        """The ids of many texts, each between start and end."""
        ids = {character: number for number, character in enumerate(self.characters, len(SPECIALS))}
        return TokenTable.from_rows(
            [START, *(ids.get(character, UNKNOWN) for character in text.lower()), END] for text in texts
        )

    def encode_words(self, texts: Iterable[Sequence[str]]) -> TokenTable:
        """The ids of texts that `split` has split."""
        return self.encode_all(map("".join, texts))

    def split(self, text: str) -> list[str]:
        """The characters of a text."""
        return list(text)

    def known(self, words: Sequence[str]) -> NDArray[np.bool_]:
        """Which characters have an id of their own: (words,)."""
        return np.array([word.lower() in self.characters for word in words], bool)

    def tokens(self, text: str) -> list[str]:
        """The characters of a text between start and end."""
        return [SPECIALS[START], *text.lower(), SPECIALS[END]]
