"""Encoded pairs of a matcher whose score is the inner product."""

from types import SimpleNamespace

import numpy as np
import torch

from diptych.data.sampling.batch import PairBatch
from diptych.data.sampling.extras import NO_EXTRAS
from diptych.models.matcher import EncodedBatch
from diptych.training.needs.need import EncodedPairs

INNER_PRODUCT = SimpleNamespace(
    score=lambda images, texts: images @ texts.t(), score_pairs=lambda images, texts: (images * texts).sum(1)
)


def batch_of_pairs(image_of, text_of, extras=NO_EXTRAS):
    """A batch that holds no more than the rows of its pairs."""
    rows = np.array(image_of), np.array(text_of)
    return PairBatch(np.zeros(0), rows[0], np.zeros(0), np.zeros(0), rows[1], np.zeros(len(rows[0])), extras=extras)


def encode_randomly(batch, images=4, texts=4, size=3):
    """Random encodings of images and texts, some of which may belong to no pair."""
    torch.manual_seed(0)
    encoded = EncodedBatch(torch.randn(images, size), torch.randn(texts, size))
    rows = torch.from_numpy(batch.image_of), torch.from_numpy(batch.text_of)
    counts = int(batch.image_of.max()) + 1, int(batch.text_of.max()) + 1
    return EncodedPairs(INNER_PRODUCT, encoded, *rows, *counts, batch.text_repeats)
