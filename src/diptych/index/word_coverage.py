"""How much of a query the words of an image cover: the share of the matched words in the information of all of them.

    coverage = sum of idf(matched words) / sum of idf(all words),   idf(w) = log((images + 1) / (images with w + 1/2))

Words that say nothing by themselves, such as "on" and "the", are left out.
"""

from __future__ import annotations

import math

import numpy as np

from diptych.data.corpus import Floats, Integers
from diptych.index.words import WordStore
from diptych.text.spelling.word_list import word_list


def content_words(text: str) -> list[str]:
    """The words of a text that say something, or all of them if none does; each once."""
    words = list(dict.fromkeys(text.lower().split()))
    return [word for word in words if not word_list().is_common(word)] or words


def coverage(store: WordStore, words: list[str], ids: Integers, images: int) -> Floats:
    """The coverage of these words by each of these images, out of so many in the index."""
    matched, total = np.zeros(len(ids)), 0.0
    for word in words:
        having = store.by_words(word, every=True)[0]
        information = math.log((images + 1) / (len(having) + 0.5))
        matched += information * np.isin(ids, having)
        total += information
    return (matched / max(total, 1e-9)).astype(np.float32)
