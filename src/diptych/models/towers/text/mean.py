"""The mean of a text's word vectors, which are not trained."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from diptych.models.layers.word_table import WordTableTower
from diptych.models.tower import TextTowerSettings, Tokens
from diptych.progress import ProgressCallback
from diptych.settings import Count
from diptych.text.features.bags import known_tokens
from diptych.text.tokenisers.token_table import TokenTable
from diptych.text.word_vectors import WordVectors


class MeanSettings(TextTowerSettings):
    """The size of the word vectors."""

    name: Literal["mean"] = "mean"
    word: Count = 300

    def build(self, words: int) -> Mean:
        """A tower that is still to be fitted."""
        return Mean(words, self)


class Mean(WordTableTower):
    """The mean vector of the words that have one; zeros for a text without such a word."""

    def __init__(self, words: int, settings: MeanSettings) -> None:
        super().__init__(words, settings.word)
        self.settings = settings
        self.size = settings.word

    def fit(self, texts: TokenTable, vectors: WordVectors | None, progress: ProgressCallback | None = None) -> None:
        """Store the vectors; the texts are not used."""
        self.fill(vectors)

    def forward(self, tokens: Tokens) -> Tensor:
        """Encode padded texts: (texts, word)."""
        if tokens.features is not None:
            return tokens.features
        if torch.compiler.is_compiling():  # in an export, which needs fixed shapes; a word without a vector is zeros
            found = self.found[tokens.ids].sum(1, keepdim=True)  # (texts, 1)
            return self.table[tokens.ids].sum(1) / found.clamp(min=1)
        words, begins = known_tokens(tokens.ids, self.found)
        return embedding_bag(words, self.table, begins, mode="mean")
