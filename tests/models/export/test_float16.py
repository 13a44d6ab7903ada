import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diptych.errors import RunError
from diptych.model import Model
from diptych.models.address import ModelFiles
from diptych.models.export.float16 import export_float16, halved
from diptych.models.matchers.vse import VSESettings
from diptych.models.storage import load_tensors, save_matcher
from diptych.models.towers.image.cnn import CNNSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.text.vocabulary import Vocabulary


@pytest.fixture
def run(tmp_path):
    vocabulary = Vocabulary.from_texts(["a red circle"], 1)
    image = CNNSettings(pixels=16, width=2)
    matcher = VSESettings(joint=4, image=image, text=GRUSettings(word=3, hidden=4), words=len(vocabulary)).build()
    matcher.image.layers[1].running_var.fill_(1e6)
    save_matcher(tmp_path / "run/best/weights.safetensors", matcher, vocabulary, {"epoch": 3})
    vocabulary.save(tmp_path / "run")
    (tmp_path / "run/recipe.toml").write_text("title = 'own'")
    (tmp_path / "run/best/metrics.json").write_text("{}")
    (tmp_path / "run/metrics.jsonl").write_text("{}")
    return tmp_path / "run"


def test_a_slim_run_is_a_run(run):
    slim = run.with_name("slim")
    export_float16(run, slim)
    files = {str(path.relative_to(slim)) for path in slim.rglob("*") if path.is_file()}
    assert files == {"best/weights.safetensors", "best/metrics.json", "recipe.toml", "vocabulary.json"}
    tensors, about = load_tensors(slim / "best/weights.safetensors")
    before, about_before = load_tensors(run / "best/weights.safetensors")
    assert about == about_before
    assert tensors.keys() == before.keys()
    assert tensors["project.weight"].dtype == torch.float16
    assert tensors["image.layers.1.num_batches_tracked"].dtype == torch.int64
    assert torch.equal(tensors["image.layers.1.running_var"], before["image.layers.1.running_var"])
    assert ModelFiles.find(slim).identity() != ModelFiles.find(run).identity()

    own, slim_own = Model.load(run, "cpu"), Model.load(slim, "cpu")
    assert all(weights.dtype == torch.float32 for weights in slim_own.matcher.parameters())
    texts = ["a red circle", "red"]
    encoded, wanted = (model.encode_texts(texts) for model in (slim_own, own))
    np.testing.assert_allclose(encoded, wanted, atol=2e-3)
    assert (encoded != wanted).any()


def test_what_is_no_run_is_named(run):
    (run / "best/weights.safetensors").write_bytes(b"no weights")
    with pytest.raises(RunError, match=r"run/best/weights.safetensors: damaged"):
        export_float16(run, run.with_name("slim"))
    assert not run.with_name("slim").exists()


@given(st.floats(-30, 30), st.integers(1, 40))
def test_what_float16_holds_well_is_halved_and_nothing_else(exponent, rows):
    matrix = torch.linspace(-1, 1, 2 * rows).view(rows, 2) * 2.0**exponent
    half = halved(matrix)
    largest = matrix.abs().max()
    assert (half.float() - matrix).abs().max() <= largest * 2.0**-11
    if 2.0**-14 <= largest <= 65504:
        assert half.dtype == torch.float16
    if largest >= 65520 or largest < 2.0**-25:
        assert half is matrix


@pytest.mark.parametrize(
    "tensor",
    [torch.ones(3), torch.ones(2, 2, dtype=torch.int64), torch.ones(0, 2), torch.tensor([[float("nan")]])],
    ids=["vector", "integers", "empty", "nan"],
)
def test_what_stays_as_it_is(tensor):
    assert halved(tensor) is tensor
