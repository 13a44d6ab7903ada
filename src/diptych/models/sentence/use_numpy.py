"""The multilingual Universal Sentence Encoder in NumPy, so that a query is encoded without loading torch.

The network and its equations are those of `use.py`. Of the table of pieces, only the chunks that texts need are read.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from diptych.models.sentence.use_package import (
    BRANCH,
    CHUNKS,
    FEATURES,
    NEIGHBOURS,
    PIECE,
    ROWS,
    Layers,
    UseArrays,
    weights_file,
)

_EPSILON = 1e-12
_FIRST_ROWS = 512
_TOKENS_AT_ONCE = 768  # so that what is computed at a time fits into the cache

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]


class NumpyUSE:
    """The vectors of `USE`: z / |z|; with `layers="all"` also the mean of the pieces and s, scaled to length one."""

    def __init__(self, layers: Layers = "last") -> None:
        self.layers = layers
        self.size = PIECE if layers == "last" else 3 * PIECE
        self._arrays = UseArrays(weights_file())
        self._array = cache(self._arrays.array)
        self._chunks: dict[int, NDArray[np.uint8]] = {}

    def __call__(self, ids: Integers, lengths: Integers) -> Floats:
        """Encode padded ids, (texts, length), of these lengths: (texts, size)."""
        vectors = np.empty((len(ids), self.size), np.float32)
        texts = max(1, _TOKENS_AT_ONCE // max(1, ids.shape[1]))
        for begin in range(0, len(ids), texts):
            part = slice(begin, begin + texts)
            vectors[part] = self._encode(ids[part, : lengths[part].max()], lengths[part])
        return vectors

    def _encode(self, ids: Integers, lengths: Integers) -> Floats:
        count = lengths[:, None].astype(np.float32)  # (texts, 1)
        mask = (np.arange(ids.shape[1]) < count).astype(np.float32)[:, :, None]  # (texts, length, 1)
        pieces = self._pieces(ids)  # (texts, length, PIECE)
        summed = (self._with_neighbours(pieces, mask) * mask).sum(1)  # (texts, FEATURES)
        pooled = (summed @ self._array("cnn_W") + count * self._array("cnn_b")) / np.sqrt(count)
        vectors = unit_rows(self._residual_layers(pooled))
        if self.layers == "last":
            return vectors
        mean = (pieces * mask).sum(1) / count
        return unit_rows(np.concatenate([vectors, mean, pooled], 1))

    def _pieces(self, ids: Integers) -> Floats:
        """The vectors of pieces: (texts, length, PIECE)."""
        chunks, scale, low = ids % CHUNKS, self._array("scale"), self._array("lo")
        pieces = np.empty((*ids.shape, PIECE), np.float32)
        for chunk in set(chunks.ravel().tolist()):
            here = chunks == chunk
            rows = ids[here] // CHUNKS
            pieces[here] = self._table(chunk, int(rows.max()))[rows] * scale[chunk] + low[chunk]
        return pieces

    def _table(self, chunk: int, row: int) -> NDArray[np.uint8]:
        """The rows of a chunk up to this one, at least."""
        known = self._chunks.get(chunk)
        if known is None or len(known) <= row:
            # Twice as many as needed, so that a chunk is read a few times at most.
            known = self._chunks[chunk] = self._arrays.chunk(chunk, min(ROWS, max(_FIRST_ROWS, 2 * (row + 1))))
        return known

    def _with_neighbours(self, pieces: Floats, mask: Floats) -> Floats:
        """Each piece beside what the branches make of it and its neighbours: (texts, length, FEATURES)."""
        projected = [self._linear(pieces, f"proj{count}", f"proj_b{count}") for count, _ in NEIGHBOURS]
        gain, shift = (np.concatenate([self._array(f"{name}{count}") for count, _ in NEIGHBOURS])
                       for name in ("ln_g", "ln_b"))  # fmt: skip
        branches = np.split(_layer_norm(np.concatenate(projected, 2), gain, shift), len(NEIGHBOURS), 2)
        features = np.empty((*pieces.shape[:2], FEATURES), np.float32)
        features[:, :, :PIECE] = pieces
        for number, (states, (count, before)) in enumerate(zip(branches, NEIGHBOURS, strict=True)):
            for layer in (1, 2):
                windows = _windows(states * mask, count, before)
                moved = self._linear(windows, f"w{layer}_{count}", f"b{layer}_{count}")
                states = states + np.maximum(moved, 0)  # noqa: PLW2901
            begin = PIECE + number * BRANCH
            features[:, :, begin : begin + BRANCH] = states
        return _layer_norm(features, self._array("ln_g"), self._array("ln_b"))

    def _linear(self, values: Floats, weight: str, bias: str) -> Floats:
        """W v + b at all places, (texts, length, size), as one product: NumPy would compute one per text."""
        rows = values.reshape(-1, values.shape[2]) @ self._array(weight) + self._array(bias)
        return rows.reshape(*values.shape[:2], -1)

    def _residual_layers(self, pooled: Floats) -> Floats:
        inner = np.maximum(pooled @ self._array("d0"), 0)
        middle = np.maximum(pooled @ self._array("p1") + inner @ self._array("d1"), 0)
        inner = np.maximum(middle @ self._array("d2"), 0)
        made: Floats = np.tanh(middle @ self._array("p3") + inner @ self._array("d3"))
        return made


def unit_rows(values: Floats) -> Floats:
    """Each row at length one; a row of zeros stays."""
    made: Floats = values / np.maximum(np.sqrt((values * values).sum(1, keepdims=True)), np.float32(_EPSILON))
    return made


def _layer_norm(values: Floats, gain: Floats, shift: Floats) -> Floats:
    centred = values - values.mean(2, keepdims=True)
    variance = (centred * centred).mean(2, keepdims=True)
    made: Floats = centred / np.sqrt(variance + np.float32(_EPSILON)) * gain + shift
    return made


def _windows(states: Floats, count: int, before: int) -> Floats:
    """Each place with its neighbours, `count` in all and `before` of them before it: (texts, length, count x size)."""
    length = states.shape[1]
    padded = np.pad(states, ((0, 0), (before, count - 1 - before), (0, 0)))
    return np.concatenate([padded[:, shift : shift + length] for shift in range(count)], 2)
