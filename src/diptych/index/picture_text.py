"""Reads the words in a picture: on receipts, signs, slides and screenshots.

The words come from RapidOCR (extra `ocr`), whose models are inside its package, so that nothing is downloaded.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from PIL import Image

from diptych.optional import import_onnxruntime, import_optional, quiet

INSTALL = "pip install 'diptych[ocr]'"
LONGEST = 1600  # pixels per side that are read
DECODED_FOR = 600  # pixels; a large photo is decoded at no less than twice that side
CERTAIN = 0.6  # score from which a line is taken; textures are read as letters with less
_MODELS = {
    "Det.model_path": "PP-OCRv6_det_small.onnx",
    "Rec.model_path": "PP-OCRv6_rec_small.onnx",
    "Cls.model_path": "ch_ppocr_mobile_v2.0_cls_mobile.onnx",
}


class TextReader(Protocol):
    """Reads the words in a picture; several threads may use it at once."""

    def read(self, photo: Image.Image) -> str:
        """The words in an upright RGB photo, one line per line of text; empty if there are none."""
        ...


class RapidTextReader:
    """Reads with RapidOCR, with one engine per thread."""

    def __init__(self) -> None:
        with quiet():
            import_onnxruntime()  # without telemetry, before RapidOCR imports it
            self._package = import_optional("rapidocr", INSTALL, "search without --ocr")
        self._engines = threading.local()

    def read(self, photo: Image.Image) -> str:
        """The words in an upright RGB photo, one line per line of text; empty if there are none."""
        photo = photo.copy()
        photo.thumbnail((LONGEST, LONGEST))
        with quiet():
            found = self._engine()(np.asarray(photo)[:, :, ::-1])  # it reads blue, green, red
        lines = zip(found.txts or (), found.scores or (), strict=True)
        return "\n".join(text for text, score in lines if score >= CERTAIN and any(map(str.isalnum, text)))

    def _engine(self) -> Any:
        if not hasattr(self._engines, "engine"):
            folder = Path(self._package.__file__).parent / "models"
            models = {name: str(folder / file) for name, file in _MODELS.items()}
            threads = dict.fromkeys(("intra_op_num_threads", "inter_op_num_threads"), 1)
            options = {f"EngineConfig.onnxruntime.{name}": count for name, count in threads.items()}
            self._engines.engine = self._package.RapidOCR(params={"Global.log_level": "critical", **models, **options})
        return self._engines.engine
