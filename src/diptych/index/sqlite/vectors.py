"""Vectors as an index keeps them: float32, float16 or int8 with one scale a vector, each with a checksum."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from diptych.data.corpus import Floats
from diptych.errors import IndexFileError

Storage = Literal["float32", "float16", "int8"]
STORAGES: tuple[Storage, ...] = get_args(Storage)

_LARGEST = float(np.finfo(np.float16).max)
_SCALE = np.dtype("<f4")
_SHAPE = struct.Struct("<II")


def row_bytes(size: int, storage: Storage) -> int:
    """How many bytes a vector of this size takes."""
    return {"float32": 4 * size, "float16": 2 * size, "int8": size + _SCALE.itemsize}[storage]


def encode(vectors: Floats, storage: Storage) -> list[bytes]:
    """Vectors, (items, size), as the bytes to keep of each.

    int8 is symmetric: the largest magnitude of a vector becomes 127, and the scale that undoes it stands before.
    """
    if storage == "float32":
        return [row.tobytes() for row in vectors.astype("<f4")]
    if storage == "float16":
        return [row.tobytes() for row in vectors.clip(-_LARGEST, _LARGEST).astype("<f2")]
    scales = np.abs(vectors).max(1, initial=0).astype(_SCALE) / np.float32(127)  # (items,)
    steps = np.rint(vectors / np.where(scales > 0, scales, 1)[:, None]).astype(np.int8)
    return [scale.tobytes() + row.tobytes() for scale, row in zip(scales.astype(_SCALE), steps, strict=True)]


def decode(rows: Sequence[bytes], storage: Storage, size: int) -> Floats:
    """What the bytes of each vector stand for: (items, size). Bytes of another length are an IndexFileError."""
    wanted = row_bytes(size, storage)
    if any(len(row) != wanted for row in rows):
        raise IndexFileError(f"a vector that has not the {wanted} bytes of {size} numbers as {storage}")
    raw = np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), wanted)
    if storage == "int8":
        scales = np.ascontiguousarray(raw[:, : _SCALE.itemsize]).view(_SCALE)  # (items, 1)
        return raw[:, _SCALE.itemsize :].view(np.int8).astype(np.float32) * scales.astype(np.float32, copy=False)
    found: Floats = raw.view("<f4" if storage == "float32" else "<f2").astype(np.float32)
    return found


def encode_set(rows: Floats) -> bytes:
    """A set, (places, size), as bytes: its shape, and its numbers as float16."""
    return _SHAPE.pack(*rows.shape) + encode(rows.reshape(1, -1), "float16")[0]


def decode_set(content: bytes) -> Floats:
    """The set that the bytes stand for: (places, size)."""
    if len(content) >= _SHAPE.size:
        places, size = _SHAPE.unpack_from(content)
        if len(content) == _SHAPE.size + 2 * places * size:
            return np.frombuffer(content, "<f2", offset=_SHAPE.size).astype(np.float32).reshape(places, size)
    raise IndexFileError("a set of vectors that does not have the length that its shape says")


def checksum(vector: bytes, own_set: bytes | None) -> int:
    """The CRC-32 of a content's vector and set."""
    return zlib.crc32(own_set or b"", zlib.crc32(vector))
