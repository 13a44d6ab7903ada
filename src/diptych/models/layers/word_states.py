"""Texts as sets of words: a GRU reads each text in both directions, and a word is the mean of its two states.

On a CPU each direction computes every distinct prefix once: prefixes of the texts, and of the texts read backwards.
Values and gradients equal those of torch's bidirectional GRU up to rounding.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from diptych.models.layers.precision import normalize
from diptych.models.layers.prefix_gru import PrefixTree, prefix_states
from diptych.models.layers.word_dropout import dropped_words
from diptych.models.tower import Tokens, load_word_embedding
from diptych.settings import Count, Dropout, Settings
from diptych.text.tokenisers.token_table import PAD


class WordSettings(Settings):
    """The size of the word embedding; the GRU's state has the size of the joint space.

    `dropout` applies to the word vectors in training; the papers have none.
    """

    word: Count = 300
    dropout: Dropout = 0.0


class WordStates(nn.Module):
    """Word embedding U(-0.1, 0.1), one bidirectional GRU layer, and the normalised mean of both directions.

    `<start>` and `<end>` are words like any other.
    """

    shares_prefixes = True

    def __init__(self, words: int, word_size: int, size: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.words = nn.Embedding(words, word_size, padding_idx=PAD)
        self.gru = nn.GRU(word_size, size, batch_first=True, bidirectional=True)
        self.size, self.dropout = size, dropout
        nn.init.uniform_(self.words.weight, -0.1, 0.1)

    def forward(self, tokens: Tokens) -> Tensor:
        """Encode padded texts: (texts, length, size), with zeros after the last word."""
        if tokens.ids.device.type != "cpu":
            return self.plain(tokens)
        there = _inside(tokens)
        steps = torch.arange(tokens.ids.shape[1])
        mirror = torch.where(there, tokens.lengths[:, None] - 1 - steps, steps)  # each text reversed
        forward = PrefixTree.from_ids(tokens.ids, tokens.lengths)
        backward = PrefixTree.from_ids(tokens.ids.gather(1, mirror), tokens.lengths)
        weights, words = list(self.gru.parameters()), dropped_words(self.words, self.dropout)
        ahead = prefix_states(forward, words, *weights[:4])  # (nodes, size)
        back = prefix_states(backward, words, *weights[4:])
        states = ahead.index_select(0, forward.path[there]) + back.index_select(
            0, backward.path.gather(1, mirror)[there]
        )
        places = there.flatten().nonzero().squeeze(1)
        sets = states.new_zeros(there.numel(), self.size)
        return sets.index_copy(0, places, normalize(states, dim=1)).view(*there.shape, self.size)

    def plain(self, tokens: Tokens) -> Tensor:
        """The same with `torch.nn.GRU`, which is faster on a GPU."""
        vectors = embedding(tokens.ids, dropped_words(self.words, self.dropout), PAD)
        packed = pack_padded_sequence(vectors, tokens.lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True, total_length=tokens.ids.shape[1])
        both = normalize(states[:, :, : self.size] + states[:, :, self.size :], dim=2)
        return both * _inside(tokens)[:, :, None]

    def load_word_vectors(self, vectors: Tensor, found: Tensor) -> None:
        """Initialise the found words with these vectors; the others stay random."""
        load_word_embedding(self.words, vectors, found)


def _inside(tokens: Tokens) -> Tensor:
    """Which places hold a word: (texts, length)."""
    return torch.arange(tokens.ids.shape[1], device=tokens.ids.device) < tokens.lengths.to(tokens.ids.device)[:, None]
