"""Models that run as graphs: exports, and runs with graphs beside their weights."""

import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch

from diptych.errors import DiptychError, RunError
from diptych.model import Model, load
from diptych.models.export.onnx import export_in_place
from diptych.models.storage import save_matcher

TEXTS = ["a red circle", "two stars", "blue"]


def test_an_export_runs_on_the_cpu(export):
    with pytest.raises(DiptychError, match="export: an ONNX export runs on the CPU, not on 'cuda'"):
        load(export, "cuda")


def test_an_export_has_no_matcher(export):
    model = Model.load(export)
    for needs_torch in ("matcher", "device", "stores", "torch_engine"):
        with pytest.raises(RunError, match="export: an ONNX export has no torch weights; name the run") as refused:
            getattr(model, needs_torch)
        assert "\n" not in str(refused.value)


def test_a_saved_export_is_a_copy_of_it(export, tmp_path):
    Model.load(export).save(tmp_path / "saved")
    assert Model.load(tmp_path / "saved").identity == Model.load(export).identity
    assert {file.name for file in (tmp_path / "saved").iterdir()} == {file.name for file in export.iterdir()}
    assert len(Model.load(tmp_path / "saved").encode_texts(TEXTS)) == 3


@pytest.fixture(scope="module")
def light(run):
    """The run with graphs beside its weights."""
    folder = run.with_name("light")
    shutil.copytree(run, folder)
    export_in_place(folder)
    return folder


def test_a_run_with_graphs_is_the_run_and_uses_torch_once_it_is_asked_for(run, light):
    model, own = load(light), load(run, "cpu")
    assert model.identity == own.identity
    assert model.engine is not model.torch_engine
    vectors = load(light).encode_texts(TEXTS)
    np.testing.assert_allclose(vectors, own.encode_texts(TEXTS), atol=1e-5)
    with torch.no_grad():
        model.matcher.text.words.weight.zero_()  # the caller has the module now, and may train it
    assert model.engine is model.torch_engine
    assert np.abs(model.encode_texts(TEXTS) - vectors).max() > 1e-3


def test_a_run_with_graphs_needs_no_torch_until_its_module_is_asked_for(light, tmp_path):
    program = """if True:
        import sys
        sys.modules["torch"] = None
        from PIL import Image
        import diptych
        model = diptych.load(sys.argv[1])
        images = model.encode_images([Image.new("RGB", (40, 30), "red")])
        print(model.score(images, model.encode_texts(["a red circle"])).shape)
        print(len(model.explain(images[0], "a red circle").words))
        model.save(sys.argv[2])
        print(diptych.load(sys.argv[2]).identity == model.identity)
        try:
            model.matcher
        except diptych.DiptychError as reason:
            print(reason)
    """
    words = [sys.executable, "-c", program, light, tmp_path / "saved"]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    assert said[:3] == ["(1, 1)", "3", "True"]
    assert said[3] == f"{light} needs torch, which is not installed; run: pip install 'diptych[train]'"
    assert Model.load(tmp_path / "saved").torch_engine  # it is still a run


def test_graphs_of_other_weights_are_refused_and_removed_by_training(light, matcher, vocabulary, tmp_path):
    folder = shutil.copytree(light, tmp_path / "run")
    card = folder / "best" / "export.json"
    card.write_text(card.read_text().replace(load(light).identity, "0" * 64))
    with pytest.raises(RunError, match=r"export\.json: made of other weights .* diptych export .* --onnx --in-place"):
        load(folder).encode_texts(TEXTS)
    save_matcher(folder / "best" / "weights.safetensors", matcher, vocabulary, {})
    assert {file.name for file in (folder / "best").iterdir()} == {"weights.safetensors"}
    assert len(load(folder, "cpu").encode_texts(TEXTS)) == 3
