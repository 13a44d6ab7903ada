"""What probes on captioned photos share: the photos of a split with their captions, and how a ranking is measured."""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Corpus
from diptych.data.open import open_corpus
from diptych.features.image_input import pictures_of
from diptych.machine import keep_freed_memory
from diptych.model import Model

# fmt: off
STOP = {
    "a", "an", "the", "in", "on", "of", "and", "is", "are", "with", "to", "at", "his", "her", "it", "its", "while",
    "by", "for", "from", "as", "that", "their", "there", "through", "up", "two", "one", "three", "four", "some", "into",
    "out", "over", "near", "off", "down", "front", "next", "behind", "very", "be", "has", "have", "being", "another",
    "people", "something", "other", "who", "which", "against", "across", "around", "each",
}
# fmt: on

Values = NDArray[np.float32]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Photos:
    """The photos of a split: their vectors, (photos, size), and the captions of each."""

    vectors: Values
    captions: list[list[str]]

    @cached_property
    def directions(self) -> Values:
        """The vectors at length one."""
        return unit(self.vectors)

    @cached_property
    def words(self) -> list[Counter[str]]:
        """The number of captions of each photo that have a word, by word; words such as "the" are left out."""
        return [Counter(word for text in some for word in words_of(text)) for some in self.captions]

    def common_words(self, count: int) -> list[str]:
        """The words that most photos have in their captions."""
        photos = Counter(word for some in self.words for word in some)
        return sorted(photos, key=lambda word: (-photos[word], word))[:count]


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """The arguments of every probe."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("data")
    parser.add_argument("--vectors", type=Path, help="keep the encoded photos in this folder, as SPLIT_images.npy")
    return parser


def parse_splits(description: str | None) -> argparse.Namespace:
    """The arguments of a probe that chooses on one split and reports on another."""
    parser = parser_of(description)
    parser.add_argument("--choose", default="val")
    parser.add_argument("--report", default="test")
    return parser.parse_args()


def read_splits(options: argparse.Namespace) -> tuple[Model, dict[str, Photos]]:
    """The model, and the photos of the split that chooses and of the one that is reported."""
    keep_freed_memory()
    model, corpus = Model.load(options.run), open_corpus(options.data)
    names = options.choose, options.report
    return model, {name: read(model, corpus.split(name), options.vectors, name) for name in names}


def read(model: Model, corpus: Corpus, folder: Path | None = None, name: str = "") -> Photos:
    """The photos of a split; with a folder, their vectors are read from it, or encoded and written to it."""
    stored = None if folder is None else folder / f"{name}_images.npy"
    if stored is not None and stored.exists():
        return Photos(np.load(stored), captions_of(corpus))
    vectors = model.encode_images(pictures_of(corpus))
    if stored is not None:
        np.save(stored, vectors)
    return Photos(vectors, captions_of(corpus))


def captions_of(corpus: Corpus) -> list[list[str]]:
    """The captions of each photo."""
    captions: dict[int, list[str]] = {int(group): [] for group in corpus.image_groups}
    for text, group in zip(corpus.texts, corpus.text_groups.tolist(), strict=True):
        captions[group].append(text)
    return [captions[int(group)] for group in corpus.image_groups]


def words_of(text: str) -> set[str]:
    """The words of a caption that say something, without the s of a plural."""
    words = {word.rstrip("s") if len(word) > 3 else word for word in re.findall(r"[a-z]+", text.lower())}
    return {word for word in words if word not in STOP and len(word) > 2}


def unit(vectors: Values) -> Values:
    """The vectors at length one."""
    scaled: Values = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    return scaled


def average_precision(order: NDArray[np.int64], correct: Flags) -> float:
    """The mean precision at the correct photos."""
    found = correct[order]
    return float((np.cumsum(found) / np.arange(1, len(found) + 1))[found].mean())


def interval(values: Sequence[float] | NDArray[np.float64], draws: int = 2000) -> tuple[float, float]:
    """The 95% interval of a mean, by bootstrap."""
    drawn = np.asarray(values)[np.random.default_rng(0).integers(0, len(values), (draws, len(values)))].mean(1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(low), float(high)
