import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from diptych.errors import DiptychError, RunError
from diptych.features.crops import Crops, fixed_crops
from diptych.files import file_hash
from diptych.models.engines.engine import Engine
from diptych.models.engines.onnx_engine import OnnxEngine
from diptych.models.engines.torch_engine import TorchEngine
from diptych.models.export.exported import Exported, ExportedInput
from diptych.models.export.onnx import export_onnx
from diptych.models.matchers.projected import Head, Projected
from diptych.models.matchers.vse import VSESettings
from diptych.models.storage import save_matcher
from diptych.models.towers.image.cnn import CNNSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.text.tokenisers.stored import load_tokeniser
from diptych.text.vocabulary import Vocabulary

WORDS = ["a", "red", "circle", "and", "two", "small", "blue", "stars"]

texts = st.lists(st.lists(st.sampled_from([*WORDS, "zebra"]), max_size=30), min_size=1, max_size=9)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A run with a GRU and a head, and the folder of its export."""
    folder = tmp_path_factory.mktemp("exported")
    vocabulary = Vocabulary.from_texts([" ".join(WORDS)], 1)
    torch.manual_seed(0)
    base = VSESettings(joint=8, image=CNNSettings(pixels=16, width=2), text=GRUSettings(word=4, hidden=8))
    matcher = Projected(base.for_data(len(vocabulary), None).build(), Head(hidden=40, output=5))
    with torch.no_grad():  # at the start the GRU hears little of its words
        matcher.base.text.words.weight.mul_(20)
    save_matcher(folder / "run/best/weights.safetensors", matcher, vocabulary, {})
    vocabulary.save(folder / "run")
    export_onnx(folder / "run", folder / "run-onnx")
    return folder / "run-onnx"


@pytest.fixture(scope="module")
def engines(exported):
    return TorchEngine.open(exported.with_name("run"), "cpu"), OnnxEngine.open(exported)


def photos(count):
    random = np.random.default_rng(count)
    return [Image.fromarray(random.integers(0, 256, (20 + row, 30, 3), np.uint8)) for row in range(count)]


def test_it_is_the_run_by_another_engine(exported, engines):
    own, other = engines
    engine: Engine = other
    assert (engine.embedding_dim, engine.is_inner_product, engine.localises) == (5, own.is_inner_product, own.localises)
    assert engine.reads_pictures
    words = ["red", "zebra", "circle", "Red"]
    assert other.known_words(words).tolist() == own.known_words(words).tolist() == [True, False, True, False]
    assert not len(other.encode_texts([]))
    assert not len(other.encode_preprocessed([]))
    images, said = (
        other.encode_preprocessed([other.preprocess(photo) for photo in photos(2)]),
        other.encode_texts(["a red circle"]),
    )
    np.testing.assert_allclose(other.score(images, said), own.score(images, said), atol=1e-6)


@settings(max_examples=20)
@given(texts)
def test_words_agree_at_any_number_and_length(engines, said):
    own, other = engines
    np.testing.assert_allclose(other.encode_tokens(said).vectors, own.encode_tokens(said).vectors, atol=1e-4)
    together = [" ".join(words) for words in said]
    np.testing.assert_allclose(other.encode_texts(together).vectors, own.encode_texts(together).vectors, atol=1e-4)


def test_many_texts_keep_their_order(engines, monkeypatch):
    own, other = engines
    monkeypatch.setattr("diptych.models.engines.onnx_engine.TEXTS_AT_ONCE", 3)
    said = ["two small blue stars", "a", "red circle and a star", "stars", "a red", "blue and red", "circle"]
    vectors = own.encode_texts(said).vectors
    assert len(np.unique(vectors.round(3), axis=0)) == len(said)  # else any order would do
    np.testing.assert_allclose(other.encode_texts(said).vectors, vectors, atol=1e-4)


def test_the_size_of_batches_of_texts_can_be_chosen(engines):
    own, other = engines
    said, seen = [" ".join(WORDS[: 1 + number % 7]) for number in range(10)], []
    vectors = other.encode_texts(said, 4, lambda *numbers: seen.append(numbers)).vectors
    np.testing.assert_allclose(vectors, own.encode_texts(said, 3).vectors, atol=1e-4)
    assert seen == [(4, 10), (8, 10), (10, 10)]
    assert own.decode_size == other.decode_size == 16


@pytest.mark.parametrize("count", [1, 2, 7])
def test_photos_agree_at_any_number(engines, monkeypatch, count):
    own, other = engines
    monkeypatch.setattr("diptych.models.engines.onnx_engine.CROPS_AT_ONCE", 3)
    prepared = [other.preprocess(photo) for photo in photos(count)]
    for photo, array in zip(photos(count), prepared, strict=True):
        np.testing.assert_array_equal(array, own.preprocess(photo))
    np.testing.assert_allclose(
        other.encode_preprocessed(prepared).vectors, own.encode_preprocessed(prepared).vectors, atol=1e-4
    )


@pytest.mark.parametrize(
    ("name", "quality", "used", "actual"),
    [
        ("views", "best", "views", "best"),
        ("views", "fast", "scales", "fast"),
        ("whole", "fast", "whole", "best"),
    ],
)
def test_crops_are_those_of_the_run_and_the_quality(exported, name, quality, used, actual):
    wanted = ExportedInput(kind="crops", shape=(3, 32, 32), crops=Crops(name=name))
    card = Exported.read(exported).model_copy(update={"image_input": wanted})
    engine = OnnxEngine(exported, card, load_tokeniser(exported), quality)
    photo = photos(1)[0]
    np.testing.assert_array_equal(engine.preprocess(photo), fixed_crops(photo, Crops(name=used), 32))
    assert engine.quality == actual


def test_words_that_a_fit_has_nothing_for_are_unknown(exported):
    engine = OnnxEngine.open(exported)
    card = engine.exported.model_copy(update={"unknown": ("red",)})
    assert OnnxEngine(exported, card, engine.tokeniser).known_words(["red", "blue"]).tolist() == [False, True]


def test_torch_is_never_loaded(exported):
    program = """if True:
        import sys
        from PIL import Image
        from diptych.model import Model
        model = Model.load(sys.argv[1])
        images = model.encode_images([Image.new("RGB", (40, 30), "red")])
        print(model.score(images, model.encode_texts(["a red circle"])).shape)
        assert model.known_words(["red"]).all()
        print("torch" in sys.modules)
    """
    said = subprocess.run([sys.executable, "-c", program, exported], capture_output=True, text=True, check=True)
    assert said.stdout.split("\n")[:2] == ["(1, 1)", "False"]


def test_a_graph_that_is_none_is_one_line(exported, tmp_path):
    folder = tmp_path / "own"
    shutil.copytree(exported, folder)
    (folder / "text.onnx").write_bytes(b"\x08\x0a\xff")
    card = json.loads((folder / "export.json").read_text())
    card["files"]["text.onnx"] = file_hash(folder / "text.onnx")
    (folder / "export.json").write_text(json.dumps(card))
    with pytest.raises(RunError, match=r"text.onnx: onnxruntime cannot read it .*; export the run again") as refused:
        OnnxEngine.open(folder).encode_texts(["a"])
    assert "\n" not in str(refused.value)


def test_a_missing_runtime_is_one_line_with_the_command(exported, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(DiptychError, match=r"onnxruntime is not installed; run: pip install onnxruntime"):
        OnnxEngine.open(exported).encode_texts(["a"])
