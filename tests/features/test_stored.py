from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from diptych.data.corpus import Features
from diptych.data.formats.scenes import make_scenes
from diptych.errors import ImageError
from diptych.features import proposals
from diptych.features.backbone import Backbone
from diptych.features.crops import Crops, fixed_crops
from diptych.features.image_input import ImageInput
from diptych.features.readers import StoreOptions, image_reader
from diptych.features.region_boxes import region_boxes
from diptych.features.regions import Regions, grid_boxes
from diptych.features.store import has_store, spec_for

CPU = torch.device("cpu")
SEARCH = Regions(method="selective-search", count=2)
PHOTOS = make_scenes(train=1, val=1, test=3, texts=1).split("test")
SQUARE = (3, 32, 32)
VIEWS = ImageInput("crops", SQUARE, Crops(name="mirrored"), Regions(method="crops"))


class Tiny(Backbone):
    name, side, size, grid, any_side = "tiny", 32, 3, (16, 3), True

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(1 / 256))

    def regions(self, pixels):
        cells = pixels.float().unfold(2, 8, 8).unfold(3, 8, 8).mean((4, 5))
        return (cells * self.scale).flatten(2).transpose(1, 2)

    def forward(self, pixels):
        return self.regions(pixels).mean(1)


class Broken:
    def load(self):
        raise ImageError("broken.jpg: truncated")


def one_box(regions):
    def propose(photo):
        red, green, blue = (float(value) / 256 for value in photo.resize((1, 1)).getpixel((0, 0)))
        return np.array([[0, 0, 1, 1], [red / 2, green / 2, 0.5 + blue / 2, 1]], np.float32)

    return propose


@pytest.fixture(autouse=True)
def proposing(monkeypatch):
    monkeypatch.setattr(proposals, "proposer", one_box)


def new_store(folder):
    return StoreOptions(folder, CPU, workers=0, create=True)


def test_the_boxes_of_proposals_are_those_of_the_store(tmp_path):
    wanted = ImageInput("crops", SQUARE, Crops(name="whole"), SEARCH)
    stored = image_reader(PHOTOS, wanted, Tiny(), store=new_store(tmp_path))
    found = region_boxes(PHOTOS, wanted, Tiny())
    assert found.shape == (3, 2, 4)
    np.testing.assert_array_equal(found, stored.boxes)
    broken = replace(PHOTOS, pictures=[PHOTOS.pictures[0], Broken(), PHOTOS.pictures[2]])
    np.testing.assert_array_equal(region_boxes(broken, wanted, Tiny()), found * np.array([1, 0, 1])[:, None, None])


@pytest.mark.parametrize(("crops", "cells"), [(Crops(name="whole"), 16), (Crops(name="1C", side=64), 64)])
def test_the_boxes_of_a_grid_are_its_cells_for_every_image(crops, cells):
    side = crops.side or 32
    found = region_boxes(PHOTOS, ImageInput("crops", (3, side, side), crops, Regions()), Tiny().eval())
    assert found.shape == (3, cells, 4)
    for own in found:
        np.testing.assert_array_equal(own, grid_boxes(cells, crops, side))


def test_the_boxes_that_came_with_a_corpus():
    wanted = ImageInput("features", (2, 3))
    boxes = np.random.default_rng(0).random((3, 2, 4)).astype(np.float32)
    regions = Features([np.ones((3, 2, 3), np.float32)])
    corpus = replace(PHOTOS, pictures=None, features=regions, region_boxes=Features([boxes]))
    np.testing.assert_array_equal(region_boxes(corpus, wanted, None), boxes)
    np.testing.assert_array_equal(region_boxes(corpus.take(np.array([2]), np.array([2])), wanted, None), boxes[2:])
    assert region_boxes(replace(corpus, region_boxes=None), wanted, None) is None


def test_what_has_no_regions_has_no_boxes():
    assert region_boxes(PHOTOS, ImageInput("crops", SQUARE, Crops()), Tiny()) is None
    assert region_boxes(PHOTOS, ImageInput("pixels", SQUARE), None) is None
    assert region_boxes(PHOTOS, VIEWS, Tiny()) is None


def test_stored_regions_that_are_missing_leave_the_image_out(tmp_path, monkeypatch):
    wanted = ImageInput("crops", SQUARE, Crops(name="whole"), SEARCH)
    nothing = {1: np.zeros((2, 4), np.float32)}
    calls = iter(range(3))
    monkeypatch.setattr(
        proposals, "proposer", lambda regions: lambda photo: nothing.get(next(calls), one_box(0)(photo))
    )
    found = image_reader(PHOTOS, wanted, Tiny(), store=new_store(tmp_path))
    values, readable = found.read(np.arange(3))
    assert readable.tolist() == [True, False, True]
    assert len(values) == 2
    assert found.skipped[1].startswith(f"{PHOTOS.image_ids[1]}: has no regions")


def test_views_are_read_as_they_are_in_full_numbers(tmp_path):
    assert not has_store(tmp_path, spec_for(Tiny(), VIEWS))
    reader = image_reader(PHOTOS, VIEWS, Tiny(), store=new_store(tmp_path))
    assert has_store(tmp_path, spec_for(Tiny(), VIEWS))
    mean = ImageInput("crops", SQUARE, Crops(name="mirrored"))
    assert not has_store(tmp_path, spec_for(Tiny(), mean))
    assert reader.boxes is None
    assert np.load(tmp_path / "tiny-mirrored-crops" / "part-00000.npy").dtype == np.float32
    values, readable = reader.read(np.array([2, 0]))
    assert readable.all()
    with torch.no_grad():
        for row, photo in zip(values, (2, 0), strict=True):
            squares = fixed_crops(PHOTOS.pictures[photo].load(), Crops(name="mirrored"), 32)
            np.testing.assert_allclose(row, Tiny()(torch.from_numpy(squares)), rtol=1e-5)


def test_a_black_photo_has_views_all_the_same(tmp_path):
    class Black:
        def load(self):
            return Image.new("RGB", (40, 40))

    corpus = replace(PHOTOS, pictures=[Black(), *PHOTOS.pictures[1:]])
    reader = image_reader(corpus, VIEWS, Tiny(), store=new_store(tmp_path))
    values, readable = reader.read(np.arange(3))
    assert readable.all()
    assert not values[0].any()
