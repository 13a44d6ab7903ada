"""How hard mined negatives are: their median scores, compared with that of positive pairs."""

from __future__ import annotations

import numpy as np

from diptych.data.corpus import Floats, Integers
from diptych.mining.top_scores import EMPTY, scores_of
from diptych.settings import Number, Settings


class Hardness(Settings):
    """Median scores: of positive pairs, and of the first and the last entries of the lists."""

    positive: Number
    first_text: Number
    last_text: Number
    first_image: Number
    last_image: Number

    @classmethod
    def from_keys(cls, positives: Floats, texts: Integers, images: Integers) -> Hardness:
        """The medians of positive scores, and of the keys of each image's texts and each text's images."""
        first_text, last_text = _median_ends(texts)
        first_image, last_image = _median_ends(images)
        return cls(
            positive=_median(positives),
            first_text=first_text,
            last_text=last_text,
            first_image=first_image,
            last_image=last_image,
        )


def _median_ends(keys: Integers) -> tuple[float, float]:
    """The median of the first and of the last scores of the lists that are not empty."""
    lengths = (keys != EMPTY).sum(1)
    rows = np.flatnonzero(lengths)
    return _median(scores_of(keys[rows, 0])), _median(scores_of(keys[rows, lengths[rows] - 1]))


def _median(scores: Floats) -> float:
    return float(np.nan_to_num(np.median(scores)))  # JSON has no infinity; this makes it a very large number
