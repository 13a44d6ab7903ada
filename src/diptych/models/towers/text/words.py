"""The mean of trained word vectors through two layers: no word order, seconds per epoch, and hard to overfit."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import dropout

from diptych.models.tower import TextTower, TextTowerSettings, Tokens, load_word_embedding
from diptych.settings import Count, Number
from diptych.text.tokenisers.token_table import END, PAD


class WordsSettings(TextTowerSettings):
    """Sizes of the word embedding and of the layers; `dropout` applies to the word vectors and between the layers."""

    name: Literal["words"] = "words"
    word: Count = 300
    hidden: Count = 1024
    dropout: Annotated[Number, Field(ge=0, lt=1)] = 0.3

    def build(self, words: int) -> Words:
        """A tower with random weights."""
        return Words(words, self)


class Words(TextTower):
    """The mean of a text's word vectors, without `<start>`, `<end>` and padding, then two layers."""

    def __init__(self, words: int, settings: WordsSettings) -> None:
        super().__init__()
        self.words = nn.Embedding(words, settings.word, padding_idx=PAD)
        self.layers = nn.Sequential(
            nn.Linear(settings.word, settings.hidden),
            nn.ReLU(),
            nn.Dropout(settings.dropout),
            nn.Linear(settings.hidden, settings.hidden),
        )
        self.dropout = settings.dropout
        self.size = settings.hidden
        nn.init.uniform_(self.words.weight, -0.1, 0.1)

    def forward(self, tokens: Tokens) -> Tensor:
        """Encode padded texts: (texts, hidden). The mean of a text without words is zero."""
        is_word = (tokens.ids > END).unsqueeze(2)  # (texts, length, 1)
        vectors = dropout(self.words(tokens.ids), self.dropout, self.training)  # (texts, length, word)
        mean = (vectors * is_word).sum(1) / is_word.sum(1).clamp(min=1)
        encoded: Tensor = self.layers(mean)
        return encoded

    def load_word_vectors(self, vectors: Tensor, found: Tensor) -> None:
        """Initialise the found words with these vectors; the others stay random."""
        load_word_embedding(self.words, vectors, found)
