"""TF-IDF: term frequency times inverse document frequency."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from diptych.text.tokenisers.token_table import TokenTable


def inverse_document_frequency(texts: TokenTable, vocabulary: int) -> NDArray[np.float64]:
    """log((1 + texts) / (1 + texts with the word)) + 1 of each id, (vocabulary,).

    The ones in the fraction smooth it, as if one more text had every word.
    """
    text_of = np.repeat(np.arange(len(texts)), texts.lengths)
    pairs = np.unique(text_of * vocabulary + texts.flat)  # a word that a text repeats counts once
    containing = np.bincount(pairs % vocabulary, minlength=vocabulary)
    return np.log((1 + len(texts)) / (1 + containing)) + 1


def tfidf(ids: Tensor, offsets: Tensor, weights: Tensor) -> Tensor:
    """The count of each word in each text times the word's weight, with unit length: (texts, vocabulary).

    `ids` has the ids of all texts, and `offsets` the start of each text in it, as for `embedding_bag`.
    """
    text_of = torch.searchsorted(offsets, torch.arange(len(ids), device=ids.device), right=True) - 1
    counts = weights.new_zeros(len(offsets) * len(weights))
    counts.index_add_(0, text_of * len(weights) + ids, weights.new_ones(len(ids)))
    return normalize(counts.view(len(offsets), len(weights)) * weights, dim=1)
