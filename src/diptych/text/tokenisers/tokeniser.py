"""The interface of every tokeniser: it turns texts into the ids that a text tower reads.

A run, an export and a model carry the tokeniser that they were trained with. Whether a word is known is a question to
it: a vocabulary knows the words that it has counted, a tokeniser of word pieces knows nearly every word.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from diptych.text.tokenisers.token_table import TokenTable


class Tokeniser(Protocol):
    """Turns texts into ids below `len(tokeniser)`, at least one for each text.

    Batches are padded with 0, which may also be an id of a text, so that towers must go by the lengths.

    `file` is the name of its file in the folder of a run.
    """

    file: ClassVar[str]

    @property
    def digest(self) -> str:
        """A fingerprint: two tokenisers of a kind have the same one exactly if they give every text the same ids."""
        ...

    @property
    def sample_words(self) -> Sequence[str]:
        """Words that the tokeniser knows, to try a model with."""
        ...

    def __len__(self) -> int:
        """The number of ids, and so the number of rows in an embedding table."""
        ...

    def encode_all(self, texts: Iterable[str]) -> TokenTable:
        """The ids of many texts."""
        ...

    def encode_words(self, texts: Iterable[Sequence[str]]) -> TokenTable:
        """The ids of texts that `split` has split, possibly with words left out."""
        ...

    def split(self, text: str) -> list[str]:
        """The words of a text, as explanations and messages about unknown words show them."""
        ...

    def known(self, words: Sequence[str]) -> NDArray[np.bool_]:
        """Which of these words, as `split` returns them, can be told apart from an unknown word: (words,)."""
        ...

    def tokens(self, text: str) -> list[str]:
        """What each id of a text stands for, in order, special tokens included."""
        ...

    def save(self, folder: Path) -> None:
        """Write the tokeniser to its file in a folder."""
        ...


def known_texts(tokeniser: Tokeniser, texts: Iterable[str]) -> NDArray[np.bool_]:
    """Which texts have a word that the tokeniser knows: (texts,)."""
    split = [tokeniser.split(text) for text in texts]
    words = list(dict.fromkeys(word for some in split for word in some))
    known = {word for word, is_known in zip(words, tokeniser.known(words).tolist(), strict=True) if is_known}
    return np.array([not known.isdisjoint(some) for some in split], bool)
