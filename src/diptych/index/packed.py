"""Vectors held as they are stored, in float16, int8 or float32, and multiplied without converting all of them at once.

A block of rows is converted to float32 when it is multiplied, in a buffer that stays in the processor's cache. The
array may be a memory-mapped file, whose pages several processes share.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Floats, Integers
from diptych.index.vectors import TYPES, Storage, encode, unpack

_BUFFER = 2**19  # numbers of a block: 2 MB as float32
_MOVED = np.int32(-0x70002000)  # the bits of sign, exponent and fraction, once they are where float32 has them
_REBIASED = np.float32(2.0**112)  # the exponent of float32 has a bias of 127, that of float16 one of 15


@dataclass(frozen=True, eq=False)
class PackedVectors:
    """Vectors in their stored form, (entries, size); an index or a slice converts the rows that it takes to float32.

    `codes` are float32, float16 or int8, the latter with one scale per row. With `rows`, only these rows of them.
    """

    codes: NDArray[np.generic]
    scales: Floats | None = None
    rows: Integers | None = None

    @classmethod
    def unpacked(cls, rows: Sequence[bytes], storage: Storage, size: int) -> PackedVectors:
        """The vectors that `vectors.encode` turned into bytes; raises an IndexFileError for a wrong length."""
        return cls(*unpack(rows, storage, size))

    def __len__(self) -> int:
        return len(self.codes) if self.rows is None else len(self.rows)

    @property
    def shape(self) -> tuple[int, int]:
        """Entries and size."""
        return len(self), self.codes.shape[1]

    def __getitem__(self, wanted: Integers | slice) -> Floats:
        codes, scales = self._stored(wanted)
        vectors = codes.astype(np.float32)
        return vectors if scales is None else vectors * scales[:, None]

    def take(self, wanted: Integers) -> PackedVectors:
        """Only these rows; nothing is copied."""
        return PackedVectors(self.codes, self.scales, wanted if self.rows is None else self.rows[wanted])

    def stored_as(self, storage: Storage) -> PackedVectors:
        """The same in another storage type."""
        if self.codes.dtype == np.dtype(TYPES[storage]):
            return self
        return PackedVectors.unpacked(encode(self[:], storage), storage, self.shape[1])

    def products(self, queries: Floats) -> Iterator[tuple[int, Floats]]:
        """The products with some queries, block by block: the first row, and (queries, rows), which is used again."""
        size = self.shape[1]
        height = max(1, min(_BUFFER // max(size, 1), len(self)))
        buffer, out = np.empty((height, size), np.float32), np.empty(len(queries) * height, np.float32)
        for start in range(0, len(self), height):
            codes, scales = self._stored(slice(start, start + height))
            block = buffer[: len(codes)]
            _widen(codes, block)
            scores = out[: len(queries) * len(codes)].reshape(len(queries), len(codes))
            if len(queries) == 1:  # threads of BLAS would take longer to meet than a block takes
                np.einsum("ij,j->i", block, queries[0], out=scores[0])
            else:
                np.matmul(queries, block.T, out=scores)
            if scales is not None:
                scores *= scales
            yield start, scores

    def _stored(self, wanted: Integers | slice) -> tuple[NDArray[np.generic], Floats | None]:
        rows = wanted if self.rows is None else self.rows[wanted]
        return self.codes[rows], None if self.scales is None else self.scales[rows]


Vectors: TypeAlias = Floats | PackedVectors


def blocks(vectors: Vectors) -> Iterator[Floats]:
    """All vectors as float32, some at a time."""
    height = max(1, _BUFFER // max(vectors.shape[1], 1))
    edges = [*range(0, len(vectors), height), len(vectors)]
    return (vectors[begin:end] for begin, end in pairwise(edges))


def norms(vectors: Vectors) -> Floats:
    """The length of each vector, or one if it is zero."""
    squares = [np.einsum("ij,ij->i", block, block) for block in blocks(vectors)]
    found = np.concatenate([np.zeros(0, np.float32), *squares])
    return np.sqrt(np.where(found == 0, 1, found), dtype=np.float32)  # NaN stays


def _widen(codes: NDArray[np.generic], out: Floats) -> None:
    """Convert finite codes to float32, several times as fast as NumPy converts float16.

    The bits of a float16, moved to their places, are the float32 of a number that is 2^112 times smaller; subnormal
    numbers become normal ones. Only infinity and NaN would be wrong, and no index holds them.
    """
    if codes.dtype != np.float16:
        np.copyto(out, codes)
        return
    bits = out.view(np.int32)
    np.copyto(bits, codes.view(np.int16))  # extends the sign
    np.left_shift(bits, 13, out=bits)
    np.bitwise_and(bits, _MOVED, out=bits)
    np.multiply(out, _REBIASED, out=out)
