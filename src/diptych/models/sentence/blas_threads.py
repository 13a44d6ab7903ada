"""Keeps NumPy's products on one thread while texts are encoded.

OpenBLAS's threads wait for each other by spinning. On an idle machine, a second thread saves a third of the time of
many texts; on a busy one, such as while photos are indexed, texts take several times as long with it
(benchmarks/probes/text_threads.py). The number of threads belongs to the process, so products in other Python threads
also take one thread meanwhile.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

_NAMES = ("scipy_openblas_{}64_", "scipy_openblas_{}", "openblas_{}64_", "openblas_{}")
_lock = threading.Lock()
_inside = 0  # how many threads are in the context below
_before = 0  # the number of threads outside of it


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Compute products on one thread in this block, if NumPy's library of products lets us choose."""
    global _inside, _before  # noqa: PLW0603 (the library's setting is global as well)
    found = _functions()
    if found is None:
        yield
        return
    get, choose = found
    with _lock:
        if not _inside:
            _before = get()
            choose(1)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                choose(_before)


@cache
def _functions() -> tuple[Any, Any] | None:
    """OpenBLAS's functions that return and set the number of threads, if NumPy's wheel contains OpenBLAS."""
    package = Path(np.__file__).parent
    for folder in (package.with_name("numpy.libs"), package / ".dylibs"):
        for file in sorted(folder.glob("*openblas*")):
            try:
                library = ctypes.CDLL(str(file))
            except OSError:
                continue
            for name in _NAMES:
                get = getattr(library, name.format("get_num_threads"), None)
                choose = getattr(library, name.format("set_num_threads"), None)
                if get is not None and choose is not None:
                    return get, choose
    return None
