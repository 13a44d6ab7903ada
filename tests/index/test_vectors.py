"""Vectors come back from their bytes, as exactly as their storage allows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from diptych.errors import IndexFileError
from diptych.index.vectors import STORAGES, checksum, decode, decode_set, encode, encode_set, row_bytes

NUMBERS = st.floats(-1000, 1000, width=32).map(lambda value: 0.0 if abs(value) < 1e-3 else value)
VECTORS = arrays.arrays(np.float32, st.tuples(st.integers(0, 5), st.just(7)), elements=NUMBERS)


@given(VECTORS, st.sampled_from(STORAGES))
def test_a_vector_survives_up_to_the_precision_of_its_storage(vectors, storage):
    rows = encode(vectors, storage)
    assert all(len(row) == row_bytes(7, storage) for row in rows)
    found = decode(rows, storage, 7)
    assert found.dtype == np.float32
    assert found.shape == vectors.shape
    largest = np.abs(vectors).max(1, keepdims=True, initial=0)
    steps = {"float32": 0, "float16": np.abs(vectors) / 2**11, "int8": largest / 127 * 0.501}
    assert (np.abs(found - vectors) <= steps[storage]).all()


def test_numbers_beyond_float16_stay_finite():
    assert np.isfinite(decode(encode(np.full((1, 3), 1e6, np.float32), "float16"), "float16", 3)).all()


@given(arrays.arrays(np.float32, st.tuples(st.integers(0, 4), st.integers(1, 5)), elements=st.integers(-9, 9)))
def test_a_set_keeps_its_shape(rows):
    assert np.array_equal(decode_set(encode_set(rows)), rows)


def test_truncated_bytes_are_refused():
    with pytest.raises(IndexFileError, match="not have the 14 bytes of 7 numbers in float16"):
        decode([b"x" * 13], "float16", 7)
    for content in (b"", b"short", encode_set(np.ones((2, 3), np.float32))[:-1]):
        with pytest.raises(IndexFileError, match="length that its shape implies"):
            decode_set(content)


@given(st.binary(min_size=1, max_size=20), st.binary(min_size=1, max_size=20), st.integers(0))
def test_one_wrong_bit_changes_the_checksum(vector, vector_set, bit):
    content = bytearray(vector + vector_set)
    content[bit // 8 % len(content)] ^= 1 << bit % 8
    damaged = bytes(content[: len(vector)]), bytes(content[len(vector) :])
    assert checksum(*damaged) != checksum(vector, vector_set)
    assert checksum(vector, None) != checksum(vector, vector_set)
