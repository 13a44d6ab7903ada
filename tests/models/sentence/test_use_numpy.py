import numpy as np
import pytest
import torch

from diptych.models.sentence.use import USE
from diptych.models.sentence.use_numpy import NumpyUSE, unit_rows

LENGTHS = np.array([1, 9, 4, 2, 30, 5])


@pytest.fixture(scope="module")
def ids():
    """Padded ids of pieces; what follows the end of a text is not part of it."""
    return np.random.default_rng(0).integers(0, 128_000, (len(LENGTHS), LENGTHS.max()))


@pytest.mark.parametrize(("layers", "size"), [("last", 512), ("all", 1536)])
def test_vectors_are_those_of_the_torch_module(ids, layers, size):
    encode = NumpyUSE(layers)
    numpy = encode(ids, LENGTHS)
    with torch.inference_mode():
        expected = USE(layers=layers)(torch.from_numpy(ids), torch.from_numpy(LENGTHS)).numpy()
    assert numpy.shape == (len(LENGTHS), encode.size) == (len(LENGTHS), size)
    assert np.abs(numpy - expected).max() < 1e-6


def test_padding_and_other_texts_do_not_change_a_vector(ids):
    encode = NumpyUSE("all")
    together = encode(ids, LENGTHS)
    for row, length in enumerate(LENGTHS):
        alone = encode(ids[row : row + 1, :length], LENGTHS[row : row + 1])
        assert np.abs(alone - together[row]).max() < 1e-6


def test_many_texts_are_encoded_in_parts(ids):
    encode = NumpyUSE()
    many = np.tile(ids, (20, 1))
    vectors = encode(many, np.tile(LENGTHS, 20))
    assert np.abs(vectors.reshape(20, len(LENGTHS), -1) - encode(ids, LENGTHS)).max() < 1e-6
    assert encode(ids[:0], LENGTHS[:0]).shape == (0, encode.size)


def test_rows_are_read_as_far_as_they_are_needed(monkeypatch):
    encode = NumpyUSE()
    read, chunk = [], encode._arrays.chunk
    monkeypatch.setattr(
        encode._arrays, "chunk", lambda number, rows: read.append((number, rows)) or chunk(number, rows)
    )
    frequent, rare, last = (np.array([[17 * row + 3]]) for row in (5, 600, 7529))
    apart = [encode(ids, np.array([1])) for ids in (frequent, rare, frequent, last, rare)]
    assert read == [(3, 512), (3, 1202), (3, 7530)]
    together = NumpyUSE()(np.concatenate([last, rare, frequent]), np.array([1, 1, 1]))
    np.testing.assert_allclose(np.concatenate([apart[3], apart[1], apart[0]]), together, atol=1e-6)


def test_a_row_of_zeros_stays():
    rows = unit_rows(np.array([[3, 4], [0, 0]], np.float32))
    assert np.allclose(rows, [[0.6, 0.8], [0, 0]])
