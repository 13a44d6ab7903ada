"""A small run, its export and its matcher in memory, and photos of several kinds."""

import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from diptych.model import Model, load
from diptych.models.export.onnx import export_onnx
from diptych.models.matchers.scan import SCANSettings
from diptych.models.matchers.vse import VSESettings
from diptych.models.storage import save_matcher
from diptych.models.towers import pretrained
from diptych.models.towers.image.cnn import CNNSettings
from diptych.models.towers.region.backbone import RegionBackboneSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.text.vocabulary import Vocabulary
from support.localisation import Tiny

WORDS = "a red circle and two small blue stars"


@pytest.fixture(scope="module")
def vocabulary():
    return Vocabulary.from_texts([WORDS], 1)


@pytest.fixture(scope="module")
def matcher(vocabulary):
    torch.manual_seed(0)
    towers = {"image": CNNSettings(pixels=16, width=2), "text": GRUSettings(word=4, hidden=8)}
    return VSESettings(joint=8, words=len(vocabulary), **towers).build().eval()


@pytest.fixture(scope="module")
def run(matcher, vocabulary, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "run"
    save_matcher(folder / "best/weights.safetensors", matcher, vocabulary, {})
    vocabulary.save(folder)
    return folder


@pytest.fixture(scope="module")
def export(run):
    export_onnx(run, run.with_name("export"))
    return run.with_name("export")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Files of several sizes and modes."""
    folder = tmp_path_factory.mktemp("photos")
    random = np.random.default_rng(0)
    paths = []
    for number in range(9):
        pixels = random.integers(0, 256, (20 + number, 30, 3), np.uint8)
        image = Image.fromarray(pixels).convert(("RGB", "L", "RGBA")[number % 3])
        paths.append(folder / f"{number}.png")
        image.save(paths[-1])
    return paths


@pytest.fixture(params=["run", "export"])
def model(request):
    """The model of a run, and of its export."""
    return load(request.getfixturevalue(request.param), "cpu")


@pytest.fixture
def sets(vocabulary, monkeypatch):
    """A SCAN model that sees photos as the 16 cells of a tiny backbone."""
    monkeypatch.setattr(pretrained, "build_backbone", lambda name: Tiny())
    torch.manual_seed(0)
    settings = SCANSettings(joint=5, image=RegionBackboneSettings(), words=len(vocabulary))
    return Model.from_matcher(settings.build().eval(), vocabulary)


@pytest.fixture
def copy(run, tmp_path):
    shutil.copytree(run, tmp_path / "copy")
    return tmp_path / "copy"
