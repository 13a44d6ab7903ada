"""Vectors as bytes: float32, float16, or int8 with one scale per vector; and their checksums."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Floats
from diptych.errors import IndexFileError

Storage = Literal["float32", "float16", "int8"]
STORAGES: tuple[Storage, ...] = get_args(Storage)

TYPES: dict[Storage, str] = {"float32": "<f4", "float16": "<f2", "int8": "<i1"}

_LARGEST = float(np.finfo(np.float16).max)
_SCALE = np.dtype("<f4")
_SHAPE = struct.Struct("<II")


def row_bytes(size: int, storage: Storage) -> int:
    """The number of bytes of a vector of this size."""
    return {"float32": 4 * size, "float16": 2 * size, "int8": size + _SCALE.itemsize}[storage]


def encode(vectors: Floats, storage: Storage) -> list[bytes]:
    """Vectors, (items, size), as bytes, one item each.

    int8 is symmetric: the largest magnitude of a vector becomes 127, and the scale that undoes it comes first.
    """
    if storage == "float32":
        return [row.tobytes() for row in vectors.astype("<f4")]
    if storage == "float16":
        return [row.tobytes() for row in vectors.clip(-_LARGEST, _LARGEST).astype("<f2")]
    scales = np.abs(vectors).max(1, initial=0).astype(_SCALE) / np.float32(127)  # (items,)
    steps = np.rint(vectors / np.where(scales > 0, scales, 1)[:, None]).astype(np.int8)
    return [scale.tobytes() + row.tobytes() for scale, row in zip(scales.astype(_SCALE), steps, strict=True)]


def unpack(rows: Sequence[bytes], storage: Storage, size: int) -> tuple[NDArray[np.generic], Floats | None]:
    """The numbers that `encode` turned into bytes, (items, size), as they are stored, and the scales of int8.

    Raises an IndexFileError for a wrong length.
    """
    expected = row_bytes(size, storage)
    if any(len(row) != expected for row in rows):
        raise IndexFileError(f"a vector does not have the {expected} bytes of {size} numbers in {storage}")
    raw = np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), expected)
    if storage == "int8":
        scales = np.ascontiguousarray(raw[:, : _SCALE.itemsize]).view(_SCALE).ravel()
        return raw[:, _SCALE.itemsize :].view(np.int8), scales.astype(np.float32, copy=False)
    return raw.view("<f4" if storage == "float32" else "<f2"), None


def decode(rows: Sequence[bytes], storage: Storage, size: int) -> Floats:
    """The vectors that `encode` turned into bytes: (items, size). Raises an IndexFileError for a wrong length."""
    codes, scales = unpack(rows, storage, size)
    vectors = codes.astype(np.float32)
    return vectors if scales is None else vectors * scales[:, None]


def encode_set(rows: Floats) -> bytes:
    """A set of vectors, (members, size), as bytes: its shape, then its numbers as float16."""
    return _SHAPE.pack(*rows.shape) + encode(rows.reshape(1, -1), "float16")[0]


def decode_set(content: bytes) -> Floats:
    """The set of vectors that `encode_set` turned into bytes: (members, size)."""
    if len(content) >= _SHAPE.size:
        members, size = _SHAPE.unpack_from(content)
        if len(content) == _SHAPE.size + 2 * members * size:
            return np.frombuffer(content, "<f2", offset=_SHAPE.size).astype(np.float32).reshape(members, size)
    raise IndexFileError("a set of vectors does not have the length that its shape implies")


def checksum(vector: bytes, vector_set: bytes | None) -> int:
    """The CRC-32 of a vector and, if any, its set."""
    return zlib.crc32(vector_set or b"", zlib.crc32(vector))
