"""Proposed and annotated regions by number, against pooling each box of each photo by itself."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diptych.data.corpus import Features
from diptych.data.formats.scenes import make_scenes
from diptych.data.phrases import find_mentions
from diptych.data.sampling.regions import annotated_boxes
from diptych.errors import ImageError
from diptych.features import proposals
from diptych.features.backbone import Backbone
from diptych.features.crops import Crops, fixed_crops
from diptych.features.image_input import ImageInput
from diptych.features.photo_regions import PhotoRegions, photo_regions
from diptych.features.regions import Regions
from diptych.features.roi_align import roi_align

CPU = torch.device("cpu")
SEARCH = Regions(method="selective-search", count=3)
WANTED = ImageInput("crops", (3, 32, 32), Crops(name="whole"), SEARCH)


class Tiny(Backbone):
    """A map of 4 x 4 cells: their mean colour."""

    name, side, size, grid, any_side = "tiny", 32, 3, (16, 3), True

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(1 / 256))
        self.shown = 0

    def regions(self, pixels):
        self.shown += len(pixels)
        cells = pixels.float().unfold(2, 8, 8).unfold(3, 8, 8).mean((4, 5))
        return (cells * self.scale).flatten(2).transpose(1, 2)

    def forward(self, pixels):
        return self.regions(pixels).mean(1)


class Broken:
    def load(self):
        raise ImageError("broken.jpg: truncated")


def two_boxes(regions):
    """Stands for OpenCV: two boxes that depend on the photo, and one place that stays empty."""

    def propose(photo):
        red, green, blue = (float(value) / 256 for value in photo.resize((1, 1)).getpixel((0, 0)))
        return np.array([[0, 0, 1, 1], [red / 2, green / 2, 0.5 + blue / 2, 1], [0, 0, 0, 0]], np.float32)

    return propose


@pytest.fixture(autouse=True)
def proposing(monkeypatch):
    monkeypatch.setattr(proposals, "proposer", two_boxes)


@pytest.fixture
def corpus():
    return make_scenes(6, 0, 0, images=2, texts=2)


def found(corpus, stores, backbone=None):
    backbone = backbone or Tiny()
    annotated = annotated_boxes(find_mentions(corpus), len(corpus.image_ids))
    return photo_regions(corpus, annotated, backbone, WANTED, stores, workers=1, device=CPU), annotated


def pooled(picture, boxes):
    squares = torch.from_numpy(fixed_crops(picture.load(), Crops(name="whole"), Tiny.side))
    maps = Tiny().regions(squares).detach().transpose(1, 2).reshape(1, 3, 4, 4)
    return roi_align(maps, torch.from_numpy(boxes[None]))[0].numpy()


def assert_right(regions, corpus, annotated, missing=()):
    """Every region of every photo by its number, in any order."""
    photos = len(corpus.image_ids)
    numbers = np.random.default_rng(0).permutation(photos * regions.places)
    values, readable = regions.read(numbers)
    assert readable.tolist() == [number // regions.places not in missing for number in numbers.tolist()]
    expected = {}
    for photo in set(range(photos)) - set(missing):
        picture = corpus.pictures[photo]
        proposed = two_boxes(SEARCH)(picture.load())
        np.testing.assert_array_equal(regions.boxes[photo], proposed)
        np.testing.assert_array_equal(regions.annotated[photo, : annotated.shape[1]], annotated[photo])
        expected[photo] = pooled(picture, np.concatenate([proposed, regions.annotated[photo]]))
    for value, number in zip(values, numbers[readable].tolist(), strict=True):
        photo, place = divmod(number, regions.places)
        np.testing.assert_allclose(value, expected[photo][place], rtol=1e-3, atol=1e-4)  # halves of floats are stored


def test_a_region_is_found_by_its_number(corpus, tmp_path):
    regions, annotated = found(corpus, tmp_path)
    assert regions.places == 3 + 8  # room for a few boxes more
    assert regions.annotated.shape == (12, 8, 4)
    assert not regions.annotated[:, annotated.shape[1] :].any()
    assert regions.photos.tolist() == list(range(12))
    assert regions.skipped == {}
    assert_right(regions, corpus, annotated)
    network = Tiny()
    again, _ = found(corpus, tmp_path, network)
    assert_right(again, corpus, annotated)
    assert network.shown == 0
    assert len(list(tmp_path.iterdir())) == 2  # a store of proposals and one of what was told


def test_photos_that_cannot_be_read_move_nobody(corpus, tmp_path):
    corpus.pictures[0] = corpus.pictures[7] = Broken()
    regions, annotated = found(corpus, tmp_path)
    assert regions.photos.tolist() == [photo for photo in range(12) if photo not in (0, 7)]
    assert regions.skipped == dict.fromkeys((0, 7), "broken.jpg: truncated")
    assert not regions.boxes[[0, 7]].any()
    assert_right(regions, corpus, annotated, missing=(0, 7))


def test_a_photo_must_be_readable_on_both_sides(corpus, tmp_path):
    """One that was there for the proposals and is gone for the annotated boxes has none."""
    calls = []

    class Flickering:
        def __init__(self, picture):
            self.picture = picture

        def load(self):
            calls.append(1)
            if len(calls) > 1:
                raise ImageError("gone.jpg: is gone")
            return self.picture.load()

    original = corpus.pictures[4]
    corpus.pictures[4] = Flickering(original)
    regions, annotated = found(corpus, tmp_path)
    assert regions.skipped == {4: "gone.jpg: is gone"}
    assert 4 not in regions.photos
    assert_right(regions, corpus, annotated, missing=(4,))


@given(st.lists(st.integers(0, 4 * 5 - 1), max_size=12), st.sets(st.integers(0, 3)))
def test_numbers_are_photo_times_places_plus_place(numbers, missing):
    """Vectors that say whose they are: the photo, and the place."""
    photos = np.array(sorted(set(range(4)) - missing), np.int64)
    says = np.stack(np.broadcast_arrays(photos[:, None], np.arange(5)), axis=2).astype(np.float32)
    row = np.full(4, -1)
    row[photos] = np.arange(len(photos))
    boxes = np.zeros((4, 2, 4), np.float32), np.zeros((4, 3, 4), np.float32)
    vectors = Features([says[:, :2]]), Features([says[:, 2:]])
    regions = PhotoRegions(*boxes, photos, dict.fromkeys(missing, "broken"), *vectors, row)
    values, readable = regions.read(np.array(numbers, np.int64))
    assert readable.tolist() == [number // 5 not in missing for number in numbers]
    assert values.tolist() == [list(divmod(number, 5)) for number in numbers if number // 5 not in missing]
