"""A model is opened when it is first needed, once, and never if its files are damaged or have changed."""

import json
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

from diptych.errors import DiptychError, RunError
from diptych.model import Model, load
from diptych.models.storage import save_tensors
from support.own_engine import model_from

TEXTS = ["a red circle", "two stars", "blue"]


def test_a_model_is_shown_by_its_address(run, matcher, vocabulary):
    assert repr(load("starter")) == "Model(starter)"
    assert repr(load(run)) == f"Model({run})"
    assert repr(Model.from_matcher(matcher, vocabulary)) == "Model(in memory)"


def test_an_unknown_device_is_refused_at_once(run):
    with pytest.raises(DiptychError, match="device 'gpu': not one of auto, cpu, cuda, mps"):
        load(run, "gpu")


def test_nothing_is_opened_before_it_is_needed_and_then_once():
    opened = []
    slow = threading.Barrier(4)

    class Engine:
        embedding_dim = 3

    def open_engine():
        opened.append(threading.current_thread())
        return Engine()

    model = model_from(open_engine, "here", lambda: "identity")
    assert (model.address, model.identity) == ("here", "identity")
    assert not opened

    def ask():
        slow.wait()
        assert model.embedding_dim == 3

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 1


def test_loading_reads_no_weights_and_imports_no_torch(run, export):
    program = """if True:
        import sys
        import diptych
        for address in sys.argv[1:]:
            model = diptych.Model.load(address)
            assert len(model.identity) == 64
        assert "torch" not in sys.modules
        import numpy as np
        images = model.encode_images([np.zeros((20, 30, 3), np.uint8)])
        model.score(images, model.encode_texts(["a red circle"], normalize=True))
        model.explain(images[0], "a red circle")
        assert "torch" not in sys.modules
        print("fine")
    """
    done = subprocess.run([sys.executable, "-c", program, run, export], capture_output=True, text=True, check=False)
    assert done.stdout == "fine\n", done.stderr


def test_an_incomplete_run_is_refused_at_once(copy, tmp_path):
    with pytest.raises(RunError, match=r"none: no such run; train one with `diptych train"):
        Model.load(tmp_path / "none")
    with pytest.raises(RunError, match=r"strter: no such run; did you mean 'starter'\?"):
        load("strter")
    with pytest.raises(RunError, match=r"starter: no snapshot 'first'; known: best$"):
        load("starter", snapshot="first")
    (copy / "best/weights.safetensors").unlink()
    with pytest.raises(RunError, match=r"weights\.safetensors: no such file; is this the folder of a run\?"):
        Model.load(copy)
    (copy / "vocabulary.json").unlink()
    with pytest.raises(RunError, match=r"not a run: it has no vocabulary\.json"):
        Model.load(copy)


def test_a_model_that_changes_before_it_is_opened_is_refused(copy):
    models = [Model.load(copy, "cpu") for _ in range(3)]
    first = models[0].identity
    models[1].encode_texts(TEXTS)
    with (copy / "best/weights.safetensors").open("ab") as file:
        file.write(b" ")
    for changed in (lambda: models[0].encode_texts(TEXTS), lambda: models[2].identity):
        with pytest.raises(RunError, match="copy: changed while it was opened; run the command again"):
            changed()
    assert models[0].identity == first
    assert Model.load(copy).identity != first


def test_a_relative_address_is_found_after_the_working_directory_changed(copy, tmp_path, monkeypatch):
    monkeypatch.chdir(copy.parent)
    model = Model.load("copy", "cpu")
    monkeypatch.chdir(tmp_path.parent)
    assert model.address == "copy"
    assert len(model.encode_texts(TEXTS)) == 3


def test_a_model_in_memory_is_saved_and_loaded(matcher, vocabulary, tmp_path):
    model = Model.from_matcher(matcher, vocabulary)
    for unknown in ("address", "identity"):
        with pytest.raises(RunError, match=rf"a model in memory has no {unknown}; save it with model\.save\(FOLDER\)"):
            getattr(model, unknown)
    model.save(tmp_path / "saved")
    again = Model.load(tmp_path / "saved", "cpu")
    np.testing.assert_array_equal(again.encode_texts(TEXTS), model.encode_texts(TEXTS))
    with pytest.raises(RunError, match="exists already"):
        model.save(tmp_path / "saved")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: torch.save({"weights": torch.ones(2)}, path), "pickled checkpoint"),
        (lambda path: path.write_bytes(b"\x80\x04\x95rest"), "pickled checkpoint"),
        (lambda path: path.write_bytes(path.read_bytes()[:-100]), "damaged or truncated"),
        (lambda path: path.write_bytes(path.read_bytes()[:20]), "damaged or truncated"),
        (lambda path: path.write_bytes(b""), "damaged or truncated"),
        (lambda path: path.unlink(), "no such file"),
        (lambda path: save_tensors(path, {"a": torch.ones(1)}, {}), "another tokeniser"),
    ],
)
def test_weights_that_are_damaged_or_missing_are_refused(damage, words, copy):
    path = copy / "best" / "weights.safetensors"
    damage(path)
    with pytest.raises(RunError) as raised:
        _ = Model.load(copy).matcher
    assert words in str(raised.value)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_weights_of_another_shape_or_tokeniser_are_refused(copy):
    trained = Model.load(copy, "cpu")
    path = copy / "best" / "weights.safetensors"
    about = {"model": trained.matcher.settings.model_dump(mode="json"), "vocabulary": trained.vocabulary.digest}
    weights = trained.matcher.state_dict()
    save_tensors(path, {**weights, "project.bias": torch.zeros(3)}, about)
    with pytest.raises(RunError, match=r"project\.bias is \(3,\) in the file, \(8,\) in the model"):
        _ = Model.load(copy).matcher
    save_tensors(path, {name: value for name, value in weights.items() if name != "project.bias"}, about)
    with pytest.raises(RunError, match=r"the model has project\.bias, the file has not"):
        _ = Model.load(copy).matcher
    save_tensors(path, {**weights, "extra": torch.zeros(1)}, about)
    with pytest.raises(RunError, match="the file has extra, the model has not"):
        _ = Model.load(copy).matcher
    save_tensors(path, weights, about)
    vocabulary = json.loads((copy / "vocabulary.json").read_text())
    vocabulary["words"][0] = "other"
    (copy / "vocabulary.json").write_text(json.dumps(vocabulary))
    with pytest.raises(RunError, match="another tokeniser"):
        _ = Model.load(copy).matcher
    (copy / "vocabulary.json").unlink()
    with pytest.raises(RunError, match=r"not a run: it has no vocabulary\.json"):
        _ = Model.load(copy).matcher
