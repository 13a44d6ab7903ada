"""What runs the towers of a model: torch, or onnxruntime for an export.

Nothing in this module imports torch, so that searching and serving from an export never load it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from diptych.data.corpus import Floats
from diptych.features.choices import Quality
from diptych.progress import ProgressCallback
from diptych.text.tokenisers.tokeniser import Tokeniser


@dataclass(frozen=True)
class Encodings:
    """Encoded images or texts, one row per item.

    `vectors`, (items, size), are searched by their inner products. `sets`, (places, size) per item, are present for
    models whose score needs more than one vector per item.
    """

    vectors: Floats
    sets: tuple[Floats, ...] | None = None

    def __len__(self) -> int:
        return len(self.vectors)

    def take(self, rows: Sequence[int]) -> Encodings:
        """These rows, in this order."""
        sets = None if self.sets is None else tuple(self.sets[row] for row in rows)
        return Encodings(self.vectors[np.asarray(rows, np.int64)], sets)

    @staticmethod
    def concatenate(parts: Sequence[Encodings]) -> Encodings:
        """The rows of several encodings by the same model, of which there must be at least one."""
        vectors = np.concatenate([part.vectors for part in parts])
        if parts[0].sets is None:
            return Encodings(vectors)
        return Encodings(vectors, tuple(members for part in parts for members in part.sets or ()))


class Engine(Protocol):
    """Encodes and scores; safe to call from several threads."""

    @property
    def tokeniser(self) -> Tokeniser:
        """The tokeniser that the model was trained with."""
        ...

    @property
    def embedding_dim(self) -> int:
        """The size of `Encodings.vectors`."""
        ...

    @property
    def is_inner_product(self) -> bool:
        """Whether the inner products of `Encodings.vectors` rank as the score does."""
        ...

    @property
    def reads_pictures(self) -> bool:
        """Whether the model reads pictures, and not features that came with its training data."""
        ...

    @property
    def localises(self) -> bool:
        """Whether the model can find a phrase in an image."""
        ...

    @property
    def encodes_vectors(self) -> bool:
        """Whether an image and a text are one vector each, rather than a set of vectors."""
        ...

    @property
    def quality(self) -> Quality:
        """Whether images are encoded with all crops that the model was trained with, or with fewer of them."""
        ...

    @property
    def decode_size(self) -> int | None:
        """The size that photos are decoded for, as in training; None for their own."""
        ...

    def preprocess(self, image: Image.Image) -> NDArray[Any]:
        """Turn an upright RGB image into the array that the image tower reads."""
        ...

    def encode_preprocessed(self, preprocessed: Sequence[NDArray[Any]]) -> Encodings:
        """Encode preprocessed images."""
        ...

    def encode_texts(
        self, texts: Sequence[str], batch_size: int | None = None, progress: ProgressCallback | None = None
    ) -> Encodings:
        """Encode texts, at most `batch_size` in one forward pass."""
        ...

    def encode_tokens(self, texts: Sequence[Sequence[str]]) -> Encodings:
        """Encode texts that the tokeniser has split into words."""
        ...

    def score(self, images: Encodings, texts: Encodings) -> Floats:
        """Score all images against all texts: (images, texts), higher is better."""
        ...

    def known_words(self, words: Sequence[str]) -> NDArray[np.bool_]:
        """Which of these words, as the tokeniser splits them, the model knows: (words,)."""
        ...

    def known_texts(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Which texts have a word that the model knows: (texts,). All others look the same to it."""
        ...
