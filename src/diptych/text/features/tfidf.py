"""Term frequency times inverse document frequency: words count more the fewer texts have them."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from diptych.text.vocabulary import TokenTable


def inverse_document_frequency(texts: TokenTable, vocabulary: int) -> NDArray[np.float64]:
    """log((1 + texts) / (1 + texts with the word)) + 1 of each id, (vocabulary,): as if one more text had all words."""
    text_of = np.repeat(np.arange(len(texts)), texts.lengths)
    pairs = np.unique(text_of * vocabulary + texts.flat)  # a word that a text says twice is one
    containing = np.bincount(pairs % vocabulary, minlength=vocabulary)
    return np.log((1 + len(texts)) / (1 + containing)) + 1


def tfidf(words: Tensor, begins: Tensor, weights: Tensor) -> Tensor:
    """How often each text has each word, times the word's weight, at length one: (texts, vocabulary).

    `words` are ids, one text after the other, and `begins` says where each text begins.
    """
    text_of = torch.searchsorted(begins, torch.arange(len(words), device=words.device), right=True) - 1
    counts = weights.new_zeros(len(begins) * len(weights))
    counts.index_add_(0, text_of * len(weights) + words, weights.new_ones(len(words)))
    return normalize(counts.view(len(begins), len(weights)) * weights, dim=1)
