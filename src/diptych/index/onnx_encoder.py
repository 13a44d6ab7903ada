"""An export as the model of an index, on onnxruntime: nothing of it needs torch."""

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
from diptych.errors import DataError, DiptychError, RunError
from diptych.features.crops import fixed_crops
from diptych.index.encoder import Encodings
from diptych.machine import available_cores
from diptych.models.export.exported import Exported
from diptych.text.tokenisers.treebank import tokenise
from diptych.text.vocabulary import Vocabulary, pad_ids

CROPS_AT_ONCE = 32
TEXTS_AT_ONCE = 64


class OnnxEncoder:
    """The towers of an export; what they make is one vector an item, whose product is the score."""

    def __init__(self, folder: Path, exported: Exported, vocabulary: Vocabulary) -> None:
        self.address = str(folder)
        self.exported = exported
        self.identity = exported.identity
        self.size = exported.size
        self.rescores = False
        self.vocabulary = vocabulary
        self._unknown = frozenset(exported.unknown)
        self._image = _session(folder / "image.onnx")
        self._text = _session(folder / "text.onnx")

    @classmethod
    def open(cls, path: str | Path) -> OnnxEncoder:
        """The towers of the export in a folder, which must be whole."""
        folder = Path(path)
        exported = Exported.read(folder)
        try:
            vocabulary = Vocabulary.load(folder / "vocabulary.json")
        except DataError as reason:
            raise RunError(str(reason)) from None
        return cls(folder, exported, vocabulary)

    def prepare(self, photo: Image.Image) -> NDArray[Any]:
        """The photo's crops, (crops, 3, side, side), or pixels, (3, side, side), as bytes."""
        wanted = self.exported.image_input
        side = wanted.shape[-1]
        return square_array(photo, side) if wanted.crops is None else fixed_crops(photo, wanted.crops, side)

    def images(self, prepared: Sequence[NDArray[Any]]) -> Encodings:
        """Encode prepared photos, a part at a time, so that the memory does not grow with their number."""
        crops = self.exported.image_input.crops
        at_once = max(1, CROPS_AT_ONCE // (1 if crops is None else crops.count))
        vectors = self._none(len(prepared))
        for begin in range(0, len(prepared), at_once):
            part = slice(begin, begin + at_once)
            vectors[part] = self._image.run(None, {"images": np.stack(prepared[part])})[0]
        return Encodings(vectors)

    def texts(self, texts: Sequence[str]) -> Encodings:
        """Encode texts."""
        return self.words([tokenise(text) for text in texts])

    def words(self, texts: Sequence[Sequence[str]]) -> Encodings:
        """Encode texts that are split into words already, those of about the same length together."""
        rows = [self.vocabulary.encode_tokens(words) for words in texts]
        order = np.argsort([len(row) for row in rows], kind="stable")
        vectors = self._none(len(rows))
        for begin in range(0, len(rows), TEXTS_AT_ONCE):
            part: Integers = order[begin : begin + TEXTS_AT_ONCE]
            ids, lengths = pad_ids([rows[row] for row in part.tolist()])
            vectors[part] = self._text.run(None, {"ids": ids, "lengths": lengths})[0]
        return Encodings(vectors)

    def score(self, images: Encodings, texts: Encodings) -> Floats:
        """The inner product: (images, texts)."""
        scores: Floats = images.vectors @ texts.vectors.T
        return scores

    def known(self, words: Sequence[str]) -> NDArray[np.bool_]:
        """Those of the vocabulary and, if the text tower was fitted, of its fit."""
        ids = self.vocabulary.ids
        return np.array([word in ids and word not in self._unknown for word in words], bool)

    def _none(self, rows: int) -> Floats:
        return np.empty((rows, self.size), np.float32)


def _session(path: Path) -> Any:
    """A graph, ready to run."""
    try:
        runtime = import_module("onnxruntime")
    except ModuleNotFoundError:
        raise DiptychError("onnxruntime is not installed; run: pip install 'diptych[onnx]'") from None
    options = runtime.SessionOptions()
    options.intra_op_num_threads = _threads()
    options.inter_op_num_threads = 1
    # Two towers have two pools of threads: one that waits by spinning would take the cores from the other.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3  # what matters is raised
    try:
        return runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as reason:  # onnxruntime raises a class of its own for every reason
        raise RunError(f"{path}: onnxruntime cannot read it ({_one_line(reason)}); export the run again") from None


def _threads() -> int:
    """As many as OMP_NUM_THREADS says, which onnxruntime does not read, or the cores that this process may use."""
    said = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(said) if said.isascii() and said.isdecimal() and int(said) else available_cores()


def _one_line(reason: Exception) -> str:
    return " ".join(str(reason).split())[:200]
