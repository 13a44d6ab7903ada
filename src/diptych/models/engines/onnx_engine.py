"""Runs the exported towers of a model with onnxruntime, without torch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from diptych.data.corpus import Floats, Integers
from diptych.data.images import square_array
from diptych.errors import DiptychError, RunError
from diptych.features.crops import decode_size, fixed_crops
from diptych.machine import available_cores
from diptych.models.engines.engine import Encodings
from diptych.models.export.exported import Exported
from diptych.progress import ProgressCallback
from diptych.text.tokenisers.stored import load_tokeniser
from diptych.text.tokenisers.token_table import TokenTable
from diptych.text.tokenisers.tokeniser import Tokeniser

CROPS_AT_ONCE = 32
TEXTS_AT_ONCE = 64


class OnnxEngine:
    """The two towers of an export; images and texts are one vector each, and the score is the inner product."""

    is_inner_product = True
    reads_pictures = True
    localises = False
    encodes_vectors = True

    def __init__(self, folder: Path, exported: Exported, tokeniser: Tokeniser) -> None:
        self.exported = exported
        self.embedding_dim = exported.size
        self.tokeniser = tokeniser
        self._unknown = frozenset(exported.unknown)
        self._image = _session(folder / "image.onnx")
        self._text = _session(folder / "text.onnx")

    @classmethod
    def open(cls, folder: Path) -> OnnxEngine:
        """Open the export in a folder; all its files must be as they were written."""
        exported = Exported.read(folder)
        return cls(folder, exported, load_tokeniser(folder))

    @property
    def decode_size(self) -> int | None:
        """That of the exported image tower."""
        image_input = self.exported.image_input
        return decode_size(image_input.shape[-1], image_input.crops)

    def preprocess(self, image: Image.Image) -> NDArray[Any]:
        """The image's crops, (crops, 3, side, side), or pixels, (3, side, side), as bytes."""
        image_input = self.exported.image_input
        side = image_input.shape[-1]
        return square_array(image, side) if image_input.crops is None else fixed_crops(image, image_input.crops, side)

    def encode_preprocessed(self, preprocessed: Sequence[NDArray[Any]]) -> Encodings:
        """Encode preprocessed images in batches, so that memory does not grow with their number."""
        crops = self.exported.image_input.crops
        at_once = max(1, CROPS_AT_ONCE // (1 if crops is None else crops.count))
        vectors = self._empty(len(preprocessed))
        for begin in range(0, len(preprocessed), at_once):
            part = slice(begin, begin + at_once)
            vectors[part] = self._image.run(None, {"images": np.stack(preprocessed[part])})[0]
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
            vectors[part] = self._text.run(None, {"ids": ids, "lengths": lengths})[0]
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


def _session(path: Path) -> Any:
    """An inference session of a graph."""
    try:
        runtime = import_module("onnxruntime")
    except ModuleNotFoundError:
        raise DiptychError("onnxruntime is not installed; run: pip install 'diptych[onnx]'") from None
    options = runtime.SessionOptions()
    options.intra_op_num_threads = _threads()
    options.inter_op_num_threads = 1
    # Each tower has a thread pool; one that waits by spinning would take the cores from the other.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3  # errors are raised anyway
    try:
        return runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as reason:  # onnxruntime has many exception classes and no common base
        raise RunError(f"{path}: onnxruntime cannot read it ({_one_line(reason)}); export the run again") from None


def _threads() -> int:
    """OMP_NUM_THREADS, which onnxruntime does not read, or else the number of available cores."""
    value = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(value) if value.isascii() and value.isdecimal() and int(value) else available_cores()


def _one_line(reason: Exception) -> str:
    return " ".join(str(reason).split())[:200]
