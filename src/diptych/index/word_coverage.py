"""How much of a query the words of an image cover: the share of the matched words in the information of all of them.

    coverage = sum of idf(matched words) / sum of idf(all words),   idf(w) = log((images + 1) / (images with w + 1/2))

Words that say nothing by themselves, such as "on" and "the", are left out.
"""

from __future__ import annotations

import math
import re

import numpy as np

from diptych.data.corpus import Floats, Integers
from diptych.index.words import WordStore
from diptych.text.spelling.word_list import word_list

_WORD = re.compile(r"[^\W_](?:\S*[^\W_])?")  # without the punctuation around it


def content_words(text: str) -> list[str]:
    """The words of a text that say something, or all of them if none does; each once."""
    words = list(dict.fromkeys(_WORD.findall(text.lower())))
    return [word for word in words if not word_list().is_common(word)] or words


def coverage(store: WordStore, words: list[str], ids: Integers, images: int) -> Floats:
    """The coverage of these words by each of these images; `images` is the number of all images in the index."""
    matched, total = np.zeros(len(ids)), 0.0
    for word in words:
        having = store.with_words(word)
        information = math.log((images + 1) / (len(having) + 0.5))
        matched += information * np.isin(ids, having)
        total += information
    return (matched / max(total, 1e-9)).astype(np.float32)
