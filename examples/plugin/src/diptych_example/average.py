"""A text tower: the mean of trained word vectors."""

from __future__ import annotations

from torch import Tensor, nn

from diptych.models.tower import TextTower, TextTowerSettings, Tokens, load_word_embedding
from diptych.settings import Count
from diptych.text.tokenisers.token_table import PAD


class AverageSettings(TextTowerSettings):
    """The size of the word vectors."""

    word: Count = 300

    def build(self, words: int) -> Average:
        """A tower with random weights for a vocabulary of this many words."""
        return Average(words, self.word)


class Average(TextTower):
    """See the module docstring."""

    def __init__(self, words: int, size: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, size, padding_idx=PAD)
        self.size = size

    def forward(self, tokens: Tokens) -> Tensor:
        """Encode padded texts: (texts, size)."""
        vectors: Tensor = self.words(tokens.ids)  # (texts, length, size), 0 where padded
        return vectors.sum(1) / tokens.lengths[:, None]

    def load_word_vectors(self, vectors: Tensor, found: Tensor) -> None:
        """Initialise the found words with these vectors; the others stay random."""
        load_word_embedding(self.words, vectors, found)
