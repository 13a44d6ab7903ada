"""Dropout of word vectors that keeps equal words equal, so that texts can still share the states of common prefixes.

    E' = E * M / (1 - p),  M_we ~ Bernoulli(1 - p)  for each entry e of each word w, once per batch

Dropping the rows of the word embedding instead of each occurrence of a word is the dropout of word embeddings of Gal
and Ghahramani 2016 (A Theoretically Grounded Application of Dropout in Recurrent Neural Networks), with entries instead
of whole words.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import dropout


def dropped_words(words: nn.Embedding, share: float) -> Tensor:
    """The vectors of all words, (words, size), with a share of their entries dropped in training."""
    return dropout(words.weight, share, words.training)
