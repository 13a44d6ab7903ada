"""Runs the exported towers of a model without torch: graphs in onnxruntime, packaged sentence encoders in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from diptych.data.corpus import Floats, Integers
from diptych.data.images import square_array
from diptych.features.choices import Quality
from diptych.features.crops import crops_for, decode_size, fixed_crops
from diptych.models.engines.engine import Encodings
from diptych.models.engines.onnx_graph import Graph
from diptych.models.export.exported import IMAGE, TEXT, WEIGHTS, Exported
from diptych.models.sentence.numpy_layers import NumpySentence
from diptych.progress import ProgressCallback
from diptych.text.tokenisers.stored import load_tokeniser
from diptych.text.tokenisers.token_table import TokenTable
from diptych.text.tokenisers.tokeniser import Tokeniser

CROPS_AT_ONCE = 32
TEXTS_AT_ONCE = 64


class TextSide(Protocol):
    """What encodes texts: padded ids, (texts, length), and lengths, (texts,), to vectors, (texts, size)."""

    def __call__(self, ids: Integers, lengths: Integers) -> Floats:
        """The vectors of the texts."""
        ...


class OnnxEngine:
    """The two towers of an export; images and texts are one vector each, and the score is the inner product."""

    is_inner_product = True
    reads_pictures = True
    localises = False
    encodes_vectors = True

    def __init__(self, folder: Path, exported: Exported, tokeniser: Tokeniser, quality: Quality = "best") -> None:
        self.exported = exported
        self._crops, self.quality = crops_for(quality, exported.image_input.crops)
        self.embedding_dim = exported.size
        self.tokeniser = tokeniser
        self._unknown = frozenset(exported.unknown)
        self._image = Graph(folder / IMAGE)
        self._text = text_side(folder, exported)

    @classmethod
    def open(cls, folder: Path, run: Path | None = None, quality: Quality = "best") -> OnnxEngine:
        """Open the export in a folder, or in that of a run's weights; all its files must be as they were written."""
        return cls(folder, Exported.read(folder), load_tokeniser(run or folder), quality)

    @property
    def decode_size(self) -> int | None:
        """That of the exported image tower."""
        return decode_size(self.exported.image_input.shape[-1], self._crops)

    def preprocess(self, image: Image.Image) -> NDArray[Any]:
        """The image's crops, (crops, 3, side, side), or pixels, (3, side, side), as bytes."""
        side = self.exported.image_input.shape[-1]
        return square_array(image, side) if self._crops is None else fixed_crops(image, self._crops, side)

    def encode_preprocessed(self, preprocessed: Sequence[NDArray[Any]]) -> Encodings:
        """Encode preprocessed images in batches, so that memory does not grow with their number."""
        at_once = max(1, CROPS_AT_ONCE // (1 if self._crops is None else self._crops.count))
        vectors = self._empty(len(preprocessed))
        for begin in range(0, len(preprocessed), at_once):
            part = slice(begin, begin + at_once)
            vectors[part] = self._image.encode_images(np.stack(preprocessed[part]))
        return Encodings(vectors)

    def encode_texts(
        self, texts: Sequence[str], batch_size: int | None = None, progress: ProgressCallback | None = None
    ) -> Encodings:
        """Encode texts."""
        return self._encode_table(self.tokeniser.encode_all(texts), batch_size, progress)

    def encode_tokens(self, texts: Sequence[Sequence[str]]) -> Encodings:
        """Encode texts that the tokeniser has split into words."""
        return self._encode_table(self.tokeniser.encode_words(texts))

    def _encode_table(
        self, table: TokenTable, batch_size: int | None = None, progress: ProgressCallback | None = None
    ) -> Encodings:
        """Encode texts as ids, in batches of similar length."""
        order = np.argsort(table.lengths, kind="stable")
        vectors = self._empty(len(table))
        at_once = batch_size or TEXTS_AT_ONCE
        for begin in range(0, len(table), at_once):
            part: Integers = order[begin : begin + at_once]
            ids, lengths = table.batch(part)
            vectors[part] = self._text(ids, lengths)
            if progress:
                progress(begin + len(part), len(table))
        return Encodings(vectors)

    def score(self, images: Encodings, texts: Encodings) -> Floats:
        """The inner product: (images, texts)."""
        scores: Floats = images.vectors @ texts.vectors.T
        return scores

    def known_words(self, words: Sequence[str]) -> NDArray[np.bool_]:
        """Which words the tokeniser knows and, for a fitted text tower, its fit as well: (words,)."""
        known = self.tokeniser.known(words)
        known[[word in self._unknown for word in words]] = False
        return known

    def known_texts(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Which texts have a known word: (texts,)."""
        return np.array([self.known_words(self.tokeniser.split(text)).any() for text in texts], bool)

    def _empty(self, rows: int) -> Floats:
        return np.empty((rows, self.embedding_dim), np.float32)


def text_side(folder: Path, exported: Exported) -> TextSide:
    """What encodes texts for the export in a folder."""
    return Graph(folder / TEXT) if exported.text is None else NumpySentence(exported.text, folder / WEIGHTS)
