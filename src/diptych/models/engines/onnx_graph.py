"""A graph on disk that onnxruntime runs; the package is imported and the graph opened on first use.

Many searches encode a text without a graph, and importing onnxruntime takes longer than they do.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Floats, Integers
from diptych.errors import RunError
from diptych.machine import available_cores
from diptych.optional import import_onnxruntime


class Graph:
    """The graph of a tower, safe to call from several threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._session: Any = None

    def encode_images(self, images: NDArray[np.uint8]) -> Floats:
        """The vectors of images."""
        return self.run(images=images)

    def __call__(self, ids: Integers, lengths: Integers) -> Floats:
        """The vectors of texts."""
        return self.run(ids=ids, lengths=lengths)

    def run(self, **inputs: NDArray[Any]) -> Floats:
        """The only output for inputs by their names."""
        session = self._opened()
        try:
            made: Floats = session.run(None, inputs)[0]
            return made
        except Exception as reason:  # onnxruntime has many exception classes and no common base
            raise RunError(
                f"{self.path}: onnxruntime cannot run it ({_one_line(reason)}); export the run again"
            ) from None

    def _opened(self) -> Any:
        with self._lock:
            if self._session is None:
                self._session = _session(self.path)
            return self._session


def _session(path: Path) -> Any:
    """An inference session of a graph."""
    runtime = import_onnxruntime()
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
