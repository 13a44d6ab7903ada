"""How hard mined negatives are: their median scores, compared with that of positive pairs."""

from __future__ import annotations

import numpy as np

from diptych.data.corpus import Floats, Integers
from diptych.mining.top_scores import EMPTY, scores_of
from diptych.settings import Number, Settings

MAX_POSITIVES = 1000  # positive pairs that are scored to judge the hardness of the negatives


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


def sample_positives(image_groups: Integers, text_groups: Integers) -> tuple[Integers, Integers]:
    """The rows of the images and of the texts of positive pairs: texts spread evenly, each with an image of its group.

    >>> sample_positives(np.array([7, 5]), np.array([5, 5, 7]))
    (array([1, 1, 0]), array([0, 1, 2]))
    """
    texts = np.unique(np.linspace(0, len(text_groups) - 1, MAX_POSITIVES).astype(np.int64))
    by_group = np.argsort(image_groups, kind="stable")
    return by_group[np.searchsorted(image_groups[by_group], text_groups[texts])], texts


def _median_ends(keys: Integers) -> tuple[float, float]:
    """The median of the first and of the last scores of the lists that are not empty."""
    lengths = (keys != EMPTY).sum(1)
    rows = np.flatnonzero(lengths)
    return _median(scores_of(keys[rows, 0])), _median(scores_of(keys[rows, lengths[rows] - 1]))


def _median(scores: Floats) -> float:
    return float(np.nan_to_num(np.median(scores)))  # JSON has no infinity; this makes it a very large number
