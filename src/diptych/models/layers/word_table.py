"""The base of fitted text towers that read word vectors: a table of vectors, filled when the tower is fitted."""

from __future__ import annotations

import torch
from torch import Tensor

from diptych.errors import RecipeError
from diptych.models.tower import FittedTextTower, Tokens
from diptych.text.tokenisers.token_table import UNKNOWN
from diptych.text.word_vectors import WordVectors


class WordTableTower(FittedTextTower):
    """Vectors of the vocabulary's words; words without a vector are left out of every text."""

    table: Tensor  # (words, word)
    found: Tensor  # (words,)

    def __init__(self, words: int, word_size: int) -> None:
        super().__init__()
        self.register_buffer("table", torch.zeros(words, word_size))
        self.register_buffer("found", torch.zeros(words, dtype=torch.bool))

    def known(self, tokens: Tokens) -> Tensor:
        """Which texts have a word with a vector: (texts,)."""
        return self.found[tokens.ids].any(1)

    def fill(self, vectors: WordVectors | None) -> None:
        """Copy the vectors of the found words into the table; missing vectors or another size are an error."""
        words, size = self.table.shape
        if vectors is None:
            raise RecipeError("text.vectors: the text tower needs word vectors; set text.vectors to a file of them")
        if vectors.vectors.shape[1] != size:
            given = vectors.vectors.shape[1]
            raise RecipeError(f"text.vectors: vectors of size {given}, set model.text.word = {given}")
        found = torch.from_numpy(vectors.found) & (torch.arange(words) > UNKNOWN)
        self.table.copy_(torch.from_numpy(vectors.vectors) * found.unsqueeze(1))
        self.found.copy_(found)
