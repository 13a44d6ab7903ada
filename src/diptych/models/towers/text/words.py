"""Word vectors, averaged, through two layers: no word order, seconds an epoch, and hard to overfit."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import dropout

from diptych.models.tower import TextTower, TextTowerSettings, Tokens, start_embedding
from diptych.settings import Count, Number
from diptych.text.vocabulary import END, PAD


class WordsSettings(TextTowerSettings):
    """Sizes of the word embedding and of the layers; `dropout` leaves out entries of the mean and of the layer."""

    name: Literal["words"] = "words"
    word: Count = 300
    hidden: Count = 1024
    dropout: Annotated[Number, Field(ge=0, lt=1)] = 0.3

    def build(self, words: int) -> Words:
        """The tower."""
        return Words(words, self)


class Words(TextTower):
    """The mean of a text's word vectors, `<start>`, `<end>` and padding left out, then a perceptron."""

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
        """Padded words to (texts, hidden); a text without words is the perceptron of nothing."""
        spoken = (tokens.ids > END).unsqueeze(2)  # (texts, length, 1)
        vectors = dropout(self.words(tokens.ids), self.dropout, self.training)  # (texts, length, word)
        mean = (vectors * spoken).sum(1) / spoken.sum(1).clamp(min=1)
        encoded: Tensor = self.layers(mean)
        return encoded

    def start_words(self, vectors: Tensor, found: Tensor) -> None:
        """Start the found words from given vectors; the others keep their random start."""
        start_embedding(self.words, vectors, found)
