"""Vectors come back from their bytes, as exactly as their storage allows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from diptych.errors import IndexFileError
from diptych.index.sqlite.vectors import STORAGES, checksum, decode, decode_set, encode, encode_set, row_bytes

NUMBERS = st.floats(-1000, 1000, width=32).map(lambda value: 0.0 if abs(value) < 1e-3 else value)
VECTORS = arrays.arrays(np.float32, st.tuples(st.integers(0, 5), st.just(7)), elements=NUMBERS)


@given(VECTORS, st.sampled_from(STORAGES))
def test_a_vector_is_what_it_was_up_to_the_steps_of_its_storage(vectors, storage):
    rows = encode(vectors, storage)
    assert all(len(row) == row_bytes(7, storage) for row in rows)
    found = decode(rows, storage, 7)
    assert found.dtype == np.float32 and found.shape == vectors.shape
    largest = np.abs(vectors).max(1, keepdims=True, initial=0)
    steps = {"float32": 0, "float16": np.abs(vectors) / 2**11, "int8": largest / 127 * 0.501}
    assert (np.abs(found - vectors) <= steps[storage]).all()


def test_numbers_beyond_float16_stay_finite():
    assert np.isfinite(decode(encode(np.full((1, 3), 1e6, np.float32), "float16"), "float16", 3)).all()


@given(arrays.arrays(np.float32, st.tuples(st.integers(0, 4), st.integers(1, 5)), elements=st.integers(-9, 9)))
def test_a_set_keeps_its_shape(rows):
    assert np.array_equal(decode_set(encode_set(rows)), rows)


def test_what_is_cut_short_is_refused():
    with pytest.raises(IndexFileError, match="not the 14 bytes of 7 numbers as float16"):
        decode([b"x" * 13], "float16", 7)
    for content in (b"", b"short", encode_set(np.ones((2, 3), np.float32))[:-1]):
        with pytest.raises(IndexFileError, match="length that its shape says"):
            decode_set(content)


@given(st.binary(min_size=1, max_size=20), st.binary(min_size=1, max_size=20), st.integers(0))
def test_one_wrong_bit_changes_the_checksum(vector, own_set, bit):
    whole = bytearray(vector + own_set)
    whole[bit // 8 % len(whole)] ^= 1 << bit % 8
    damaged = bytes(whole[: len(vector)]), bytes(whole[len(vector) :])
    assert checksum(*damaged) != checksum(vector, own_set)
    assert checksum(vector, None) != checksum(vector, own_set)
