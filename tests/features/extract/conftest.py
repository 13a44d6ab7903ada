"""Photos, a network that takes no time, and an extraction of the features of one with the other."""

import numpy as np
import pytest
import torch
from PIL import Image

from diptych.data.images import PictureFile
from diptych.features import extract as extraction
from diptych.features import hashes
from diptych.features.backbone import Backbone
from diptych.features.crops import Crops, fixed_crops
from diptych.features.extract import extract
from diptych.features.store import FeatureStoreSpec

CPU = torch.device("cpu")
AT_ONCE = 16


class Tiny(Backbone):
    """Sees squares of 14 pixels as four cells of three colours, and writes down how many it is shown at once."""

    side, size, grid = 14, 3, (4, 3)

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(1 / 256))
        self.batches = []

    @property
    def shown(self):
        return sum(self.batches)

    def regions(self, pixels):
        self.batches.append(len(pixels))
        cells = pixels.float().unfold(2, 7, 7).unfold(3, 7, 7).mean((4, 5))  # (images, 3, 2, 2)
        return (cells * self.scale).flatten(2).transpose(1, 2)

    def forward(self, pixels):
        return self.regions(pixels).mean(1)


def photo(path, seed, size=(20, 16)):
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    Image.fromarray(pixels).save(path, "png")
    return PictureFile(path)


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch):
    monkeypatch.setattr(extraction, "SQUARES_ON_CPU", AT_ONCE)


@pytest.fixture
def pictures(tmp_path):
    return [photo(tmp_path / f"{number}.png", number) for number in range(40)]


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "features"


@pytest.fixture
def later(monkeypatch):
    monkeypatch.setattr(hashes, "CLOCK_RESOLUTION", -(10**12))


@pytest.fixture
def part_a_batch(monkeypatch):
    monkeypatch.setattr(extraction, "PART_SECONDS", 0)


def run(pictures, folder, backbone=None, *, crops="1C", regions=None, dtype="float32", workers=2, progress=None):
    backbone = backbone or Tiny()
    making = FeatureStoreSpec.for_backbone("tiny", backbone, Crops(name=crops), regions=regions, dtype=dtype)
    return extract(pictures, backbone, making, folder, workers=workers, device=CPU, progress=progress)


def expected(pictures, *, crops="1C", regions=None, dtype="float32"):
    """Each picture alone."""
    network = Tiny()
    rows = []
    for picture in pictures:
        squares = torch.from_numpy(fixed_crops(picture.load(), Crops(name=crops), Tiny.side))
        rows.append((network.regions if regions else network)(squares).detach().mean(0).numpy())
    return np.stack(rows).astype(dtype).astype(np.float32)


def values(stored):
    return stored.features[np.arange(len(stored.features))]


@pytest.fixture(scope="session")
def tiny():
    return Tiny


@pytest.fixture(scope="session", name="photo")
def photo_fixture():
    return photo


@pytest.fixture(scope="session")
def extracted():
    return run


@pytest.fixture(scope="session", name="expected")
def expected_fixture():
    return expected


@pytest.fixture(scope="session", name="values")
def values_fixture():
    return values
