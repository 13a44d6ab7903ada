import numpy as np
import pytest

from diptych.errors import DiptychError
from diptych.files import file_hash
from diptych.models.sentence.use_package import PIECE, ROWS, SHAPES, UseArrays, weights_digest, weights_file


def test_arrays_are_those_of_the_package():
    arrays = UseArrays(weights_file())
    with np.load(weights_file()) as stored:
        for name in ("scale", "d3", "w2_5"):
            assert np.array_equal(arrays.array(name), stored[name])
            assert arrays.array(name).shape == SHAPES[name]
        assert np.array_equal(arrays.chunk(16), stored["q17"])
        assert np.array_equal(arrays.chunk(2, 100), stored["q3"][:100])
    assert arrays.chunk(0).shape == (ROWS, PIECE)


def test_the_digest_is_the_hash_of_the_file():
    assert weights_digest() == file_hash(weights_file())


def test_arrays_of_other_shapes_are_refused(tmp_path):
    file = tmp_path / "weights.npz"
    np.savez(file, scale=np.zeros(3, np.float32), q1=np.zeros((3, PIECE), np.uint8))
    arrays = UseArrays(file)
    with pytest.raises(DiptychError, match=r"scale has the shape \(3,\), not \(17,\); install another version"):
        arrays.array("scale")
    with pytest.raises(DiptychError, match=r"cannot be read \(q1 has the shape \(3, 512\), not .*; install it again"):
        arrays.chunk(0)
    with pytest.raises(DiptychError, match=r"cannot be read .*d0.*; install it again"):
        arrays.array("d0")
