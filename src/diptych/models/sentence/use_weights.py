"""The weights of the multilingual Universal Sentence Encoder as tensors."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from diptych.models.sentence.use_package import (
    CHUNKS,
    NEIGHBOURS,
    PIECE,
    ROWS,
    SHAPES,
    UseArrays,
    weights_file,
)

# The names in the package of what all branches have; `_joined` makes one tensor of each.
_OF_BRANCHES = {
    "projection": "proj",
    "projection_bias": "proj_b",
    "projection_gain": "ln_g",
    "projection_shift": "ln_b",
}


def use_tensors() -> dict[str, Tensor]:
    """The tensors of the network by their names in the package; on the meta device their shapes alone."""
    if torch.empty(0).device.type != "meta":
        return _read(weights_file())
    tensors = {name: torch.empty(shape) for name, shape in SHAPES.items()}
    return _joined(tensors, torch.empty(CHUNKS * ROWS, PIECE, dtype=torch.uint8))


@cache
def _read(path: Path) -> dict[str, Tensor]:
    """The tensors in a file; all encoders of a process share them."""
    arrays = UseArrays(path)
    tensors = {name: torch.from_numpy(arrays.array(name)) for name in SHAPES}
    table = torch.empty(CHUNKS * ROWS, PIECE, dtype=torch.uint8)
    for chunk in range(CHUNKS):
        table[chunk::CHUNKS] = torch.tensor(arrays.chunk(chunk))
    return _joined(tensors, table)


def _joined(tensors: dict[str, Tensor], table: Tensor) -> dict[str, Tensor]:
    """The tensors, with the projections of all branches as one, because they all read the pieces."""
    joined = {
        name: torch.cat([tensors.pop(f"{part}{count}") for count, _ in NEIGHBOURS], -1)
        for name, part in _OF_BRANCHES.items()
    }
    return {"table": table, **tensors, **joined}
