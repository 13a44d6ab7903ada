"""The GRU text tower: word embedding, GRU, and the state at the last word as the text's vector."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn
from torch.nn.functional import embedding
from torch.nn.utils.rnn import pack_padded_sequence

from diptych.models.layers.prefix_gru import last_states
from diptych.models.layers.word_dropout import dropped_words
from diptych.models.tower import TextTower, TextTowerSettings, Tokens, load_word_embedding
from diptych.settings import Count, Dropout
from diptych.text.tokenisers.token_table import PAD


class GRUSettings(TextTowerSettings):
    """Sizes of the word embedding and of the GRU's state.

    `dropout` applies to the word vectors in training; the papers have none.
    """

    name: Literal["gru"] = "gru"
    word: Count = 300
    hidden: Count = 1024
    dropout: Dropout = 0.0

    def build(self, words: int) -> TextGRU:
        """A tower with random weights."""
        return TextGRU(words, self.word, self.hidden, self.dropout)


class TextGRU(TextTower):
    """Word embedding U(-0.1, 0.1), one GRU layer, the state at `<end>`."""

    shares_prefixes = True

    def __init__(self, words: int, word_size: int, hidden: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.words = nn.Embedding(words, word_size, padding_idx=PAD)
        self.gru = nn.GRU(word_size, hidden, batch_first=True)
        self.size, self.dropout = hidden, dropout
        nn.init.uniform_(self.words.weight, -0.1, 0.1)

    def forward(self, tokens: Tokens) -> Tensor:
        """Encode padded texts: (texts, hidden). On a CPU every distinct prefix is computed once."""
        if tokens.ids.device.type != "cpu":
            return self.plain(tokens)
        words = dropped_words(self.words, self.dropout)
        return last_states(tokens.ids, tokens.lengths, words, *self.gru.parameters())

    def plain(self, tokens: Tokens) -> Tensor:
        """The same with `torch.nn.GRU`, which is faster on a GPU."""
        vectors = embedding(tokens.ids, dropped_words(self.words, self.dropout), PAD)
        packed = pack_padded_sequence(vectors, tokens.lengths.cpu(), batch_first=True, enforce_sorted=False)
        last: Tensor = self.gru(packed)[1][0]
        return last

    def load_word_vectors(self, vectors: Tensor, found: Tensor) -> None:
        """Initialise the found words with these vectors; the others stay random."""
        load_word_embedding(self.words, vectors, found)
