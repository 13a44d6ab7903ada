"""Each reader by itself, and which of them `image_reader` chooses."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from diptych.data.corpus import Features
from diptych.data.formats.scenes import make_scenes
from diptych.data.images import DecodedPicture, PictureFile, square_pixels
from diptych.errors import DataError, ImageError
from diptych.features import proposals, readers
from diptych.features.crops import Crops, fixed_crops, random_crop, random_window
from diptych.features.image_input import ImageInput
from diptych.features.readers import (
    CropReader,
    FeatureReader,
    PixelReader,
    ProposalReader,
    RegionReader,
    StoreOptions,
    image_reader,
)
from diptych.features.regions import Regions
from diptych.features.roi_align import pool_cells
from diptych.features.store import has_store, spec_for
from support.backbones import TinyBackbone
from support.extraction import CPU
from support.pictures import BrokenPicture, propose_from_colour


@pytest.fixture(scope="module")
def pictures():
    drawn = list(make_scenes(train=4, val=1, test=1).split("train").pictures)
    return [drawn[0], BrokenPicture(), *drawn[1:]]


@pytest.mark.parametrize("name", ["1C", "10C"])
def test_an_unreadable_image_does_not_shift_the_crops_of_others(pictures, name):
    crops = Crops(name=name)
    values, readable = CropReader(pictures, crops, 28).read(np.array([3, 1, 0]))
    assert readable.tolist() == [True, False, True]
    assert values.shape == (2, crops.count, 3, 28, 28)
    assert (values[0] == fixed_crops(pictures[3].load(), crops, 28)).all()
    assert (values[1] == fixed_crops(pictures[0].load(), crops, 28)).all()


@pytest.mark.parametrize(
    ("kind", "resize", "drawn"),
    [("RC", "square", random_crop), ("RC", "short", random_crop), ("window", "short", random_window)],
)
def test_random_crops_depend_only_on_the_draw_and_the_image(pictures, kind, resize, drawn):
    reader = CropReader(pictures, Crops(resize=resize), 28, random=kind)
    values, readable = reader.read(np.array([0, 1, 2]), (7, 1, 3, 0))
    assert readable.tolist() == [True, False, True]
    assert values.shape == (2, 1, 3, 28, 28)
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence([7, 1, 3, 0, 2])))
    assert (values[1, 0] == drawn(pictures[2].load(), resize, 28, random)).all()
    alone, _ = reader.read(np.array([2]), (7, 1, 3, 0))
    assert (alone[0] == values[1]).all()
    draws = {reader.read(np.array([2]), (7, 1, 3, step))[0].tobytes() for step in range(8)}
    assert len(draws) > 4
    assert reader.skipped == {1: "broken.jpg: truncated"}


class Flaky:
    """A picture that cannot be read the first time."""

    def __init__(self, picture):
        self.picture, self.failed = picture, False

    def load(self):
        if not self.failed:
            self.failed = True
            raise ImageError("flaky.jpg: gone for a moment")
        return self.picture.load()


@pytest.mark.parametrize("random", [None, "RC", "window"])
def test_an_image_that_failed_once_stays_skipped(pictures, random):
    flaky = [pictures[0], Flaky(pictures[2]), pictures[3]]
    reader = CropReader(flaky, Crops(), 28, random)
    first, readable = reader.read(np.array([0, 1, 2]), (1,))
    again, still = reader.read(np.array([0, 1, 2]), (1,))
    assert readable.tolist() == still.tolist() == [True, False, True]
    assert np.array_equal(first, again)


def test_nothing_readable_is_an_empty_batch(pictures):
    values, readable = CropReader(pictures, Crops(), 28).read(np.array([1]))
    assert values.shape == (0, 1, 3, 28, 28)
    assert not readable.any()


def test_a_photo_smaller_than_the_crop_is_enlarged(tmp_path):
    Image.new("RGB", (9, 5), "red").save(tmp_path / "tiny.png")
    reader = CropReader([PictureFile(tmp_path / "tiny.png")], Crops(), 28)
    values, readable = reader.read(np.array([0]))
    assert readable.all()
    assert (values[0, 0, 0] == 255).all()


@pytest.mark.parametrize("random", [None, "RC", "window"])
@pytest.mark.parametrize("resize", ["square", "short"])
def test_images_smaller_than_the_crop_are_recorded(tmp_path, random, resize):
    sizes = [(400, 300), (27, 90), (28, 28), (1, 1), (1, 5000), (64, 128)]
    for number, size in enumerate(sizes):
        Image.new("RGB", size, "red").save(tmp_path / f"{number}.jpg")
    pictures = [PictureFile(tmp_path / f"{number}.jpg") for number in range(len(sizes))]
    reader = CropReader(pictures, Crops(name="mirrored", resize=resize), 28, random)
    assert reader.enlarged == {}
    values, _ = reader.read(np.array([0, 4, 1]), (3,))
    assert values.shape == (3, 1 if random else 2, 3, 28, 28)
    assert (values[:, :, 0] > 200).all()
    assert reader.enlarged == {4: (1, 5000), 1: (27, 90)}
    for _ in range(2):
        assert reader.read(np.arange(6), (4,))[1].all()
        assert reader.enlarged == {4: (1, 5000), 1: (27, 90), 3: (1, 1)}
    assert reader.skipped == {}


@pytest.mark.parametrize(("random", "resize", "full_size"), [("RC", "short", True), ("window", "short", False)])
def test_only_a_crop_of_the_original_photo_needs_all_of_its_pixels(tmp_path, monkeypatch, random, resize, full_size):
    Image.new("RGB", (640, 480), "red").save(tmp_path / "large.jpg")
    seen = []
    for name in ("random_crop", "random_window"):
        drawn = getattr(readers, name)
        monkeypatch.setattr(readers, name, lambda photo, *rest, drawn=drawn: seen.append(photo) or drawn(photo, *rest))
    CropReader([PictureFile(tmp_path / "large.jpg")], Crops(resize=resize), 28, random).read(np.array([0]), (1,))
    assert len(seen) == 1
    assert (seen[0].size == (640, 480)) is full_size
    assert min(seen[0].size) >= 32


def test_views_without_a_store_are_crops(pictures):
    wanted = ImageInput("crops", (3, 28, 28), Crops(name="mirrored"), Regions(method="crops"))
    values, _ = image_reader(pictures, wanted, TinyBackbone()).read(np.array([0, 2]))
    assert (values.dtype, values.shape) == (np.uint8, (2, 2, 3, 28, 28))
    assert np.array_equal(values[:, 1], values[:, 0, ..., ::-1])


def test_a_corpus_that_does_not_fit_the_model_is_refused():
    drawn = make_scenes(train=2, val=1, test=1)
    with pytest.raises(DataError, match="has pictures, and the run reads features that came with its data"):
        image_reader(drawn, ImageInput("features", (8,)))
    with pytest.raises(DataError, match="the id of an image"):
        image_reader(drawn.pictures, ImageInput("features", (8,)))


def test_an_image_without_regions_is_skipped_and_recorded_as_empty():
    rows = np.random.default_rng(0).random((5, 3, 2)).astype(np.float32)
    rows[1] = 0
    rows[2, 0] = 0  # another region is there
    rows[4, 1:] = 0  # one region is enough
    names = [f"image {number}" for number in range(5)]
    reader = RegionReader(Features([rows]), names)
    for _ in range(2):
        values, readable = reader.read(np.array([4, 1, 2, 0]))
        assert readable.tolist() == [True, False, True, True]
        np.testing.assert_array_equal(values, rows[[4, 2, 0]])
    assert list(reader.skipped) == [1]
    assert reader.skipped[1].startswith("image 1: has no regions, all of its rows are zeros; ")
    assert reader.empty == {1}
    values, readable = reader.read(np.array([3]))
    np.testing.assert_array_equal(values, rows[[3]])
    values, readable = reader.read(np.array([1]))
    assert values.shape == (0, 3, 2)
    assert not readable.any()


def test_unreadable_images_are_not_empty():
    rows = np.ones((3, 2, 2), np.float32)
    rows[1] = 0
    ids = ["zero", "one", "two", "three"]
    reader = RegionReader(Features([rows]), ids, np.array([0, 2, 3]), {1: "one.jpg: truncated"})
    values, readable = reader.read(np.arange(4))
    assert readable.tolist() == [True, False, False, True]
    assert len(values) == 2
    assert reader.skipped[1] == "one.jpg: truncated"
    assert reader.skipped[2].startswith("two: has no regions")
    assert reader.empty == {2}


def test_regions_that_came_with_a_corpus_are_read_as_regions(pictures):
    rows = np.ones((2, 3, 4), np.float32)
    rows[1] = 0
    scenes = make_scenes(train=2, val=1, test=1).split("train")
    corpus = replace(scenes, pictures=None, features=Features([rows]))
    reader = image_reader(corpus, ImageInput("features", (3, 4)))
    assert reader.read(np.arange(2))[1].tolist() == [True, False]
    assert corpus.image_ids[1] in reader.skipped[1]
    one = replace(scenes, pictures=None, features=Features([rows[:, 0]]))
    assert image_reader(one, ImageInput("features", (4,))).read(np.arange(2))[1].all()  # one vector may be zero


def test_proposals_are_found_once_and_pooled_from_the_map(pictures, monkeypatch):
    asked = []

    def propose(photo):
        asked.append(photo)
        return np.array([[0, 0, 1, 1], [0, 0, 1 - 0.45 * len(asked), 1], [0, 0, 0, 0]], np.float32)

    monkeypatch.setattr(proposals, "proposer", lambda regions: propose)
    wanted = ImageInput("crops", (3, 32, 32), Crops(name="whole"), Regions(method="selective-search", count=3))
    reader = image_reader(pictures, wanted, TinyBackbone())
    assert reader.boxes.shape == (5, 3, 4)
    assert not reader.boxes.any()
    values, readable = reader.read(np.array([3, 1, 0]))
    assert readable.tolist() == [True, False, True]
    assert values.shape == (2, 3, 6)
    assert len(asked) == 2
    assert reader.boxes[[3, 0], 1, 2].tolist() == pytest.approx([0.55, 0.1])
    assert not reader.boxes[[1, 2, 4]].any()
    assert reader.skipped == {1: "broken.jpg: truncated"}
    squares = torch.from_numpy(
        np.concatenate([fixed_crops(pictures[row].load(), Crops(name="whole"), 32) for row in (3, 0)])
    )
    with torch.inference_mode():
        pooled = pool_cells(reader._backbone.regions(squares), torch.from_numpy(reader.boxes[[3, 0]]))
    np.testing.assert_allclose(values, pooled.numpy(), rtol=1e-6)
    nothing, readable = reader.read(np.array([1]))
    assert nothing.shape == (0, 3, 6)
    assert not readable.any()


PHOTOS = make_scenes(train=1, val=1, test=3, texts=1).split("test")
SQUARE = (3, 32, 32)
SEARCH = ImageInput("crops", SQUARE, Crops(name="whole"), Regions(method="selective-search", count=2))
GRID = ImageInput("crops", SQUARE, Crops(name="whole"), Regions())
VIEWS = ImageInput("crops", SQUARE, Crops(name="mirrored"), Regions(method="crops"))
POOLED = ImageInput("crops", SQUARE, Crops())


def new_store(folder):
    return StoreOptions(folder, CPU, workers=0, create=True)


@pytest.fixture
def _fake_proposals(monkeypatch):
    monkeypatch.setattr(proposals, "proposer", propose_from_colour)


@pytest.mark.usefixtures("_fake_proposals")
@pytest.mark.parametrize(
    ("image_input", "without_store", "with_store"),
    [
        (ImageInput("pixels", SQUARE), PixelReader, PixelReader),
        (POOLED, CropReader, FeatureReader),
        (VIEWS, CropReader, FeatureReader),
        (GRID, CropReader, RegionReader),
        (SEARCH, ProposalReader, RegionReader),
    ],
    ids=["pixels", "pooled", "views", "grid", "proposals"],
)
def test_the_reader_follows_from_the_input_and_the_store(tmp_path, image_input, without_store, with_store):
    backbone = TinyBackbone()
    missing = StoreOptions(tmp_path, CPU, workers=0)
    assert type(image_reader(PHOTOS, image_input, backbone)) is without_store
    assert type(image_reader(PHOTOS, image_input, backbone, store=missing)) is without_store
    assert list(tmp_path.iterdir()) == []
    assert type(image_reader(PHOTOS, image_input, backbone, store=new_store(tmp_path))) is with_store
    assert type(image_reader(PHOTOS, image_input, backbone, store=missing)) is with_store  # no longer missing
    assert type(image_reader(PHOTOS.pictures, image_input, backbone, store=missing)) is with_store
    if image_input.kind == "crops":
        random = image_reader(PHOTOS, image_input, backbone, store=missing, random="RC")
        assert type(random) is CropReader
        assert random.read(np.array([0]), (1,))[0].shape == (1, 1, *SQUARE)


def test_a_store_of_other_weights_is_not_read(tmp_path):
    image_reader(PHOTOS, POOLED, TinyBackbone(), store=new_store(tmp_path))
    other = TinyBackbone()
    with torch.no_grad():
        other.scale.mul_(2)
    assert type(image_reader(PHOTOS, POOLED, other, store=StoreOptions(tmp_path, CPU))) is CropReader


def test_a_corpus_without_pictures_has_no_crops():
    corpus = replace(PHOTOS, pictures=None, features=Features([np.ones((3, 4), np.float32)]))
    with pytest.raises(DataError, match="has stored features but no pictures"):
        image_reader(corpus, POOLED, TinyBackbone())
    with pytest.raises(DataError, match=r"features of shape \(4,\), the model reads \(5,\)"):
        image_reader(corpus, ImageInput("features", (5,)))


def test_a_reader_without_boxes_or_enlarged_images_says_so():
    for reader in (PixelReader(PHOTOS.pictures, 32), CropReader(PHOTOS.pictures, Crops(), 32)):
        reader.read(np.arange(3))
        assert reader.boxes is None
        assert (reader.skipped, reader.enlarged, reader.empty) == ({}, {}, set())


def test_stored_boxes_belong_to_the_images_that_were_read():
    boxes = np.random.default_rng(0).random((2, 1, 4)).astype(np.float32)
    rows = Features([np.ones((2, 1, 3), np.float32)])
    reader = FeatureReader(rows, np.array([2, 0]), {1: "broken"}, boxes=Features([boxes]))
    np.testing.assert_array_equal(reader.boxes, [boxes[1], np.zeros((1, 4)), boxes[0]])
    np.testing.assert_array_equal(FeatureReader(rows, boxes=Features([boxes])).boxes, boxes)


@given(st.permutations(range(8)), st.sets(st.integers(0, 7), max_size=7), st.lists(st.integers(0, 7)))
def test_stored_features_keep_their_image_whatever_is_missing(order, missing, images):
    readable = np.array([image for image in order if image not in missing], np.int64)
    features = Features([readable[:, None].astype(np.float32)])  # each row holds the number of its image
    reader = FeatureReader(features, readable, dict.fromkeys(missing, "broken"))
    values, is_readable = reader.read(np.array(images, np.int64))
    assert is_readable.tolist() == [image not in missing for image in images]
    assert values[:, 0].tolist() == [image for image in images if image not in missing]


class Counting:
    """A picture that counts how often it is decoded."""

    def __init__(self, picture):
        self.picture, self.decoded = picture, 0

    def load(self):
        self.decoded += 1
        return self.picture.load()


@pytest.mark.parametrize("fits", [True, False])
def test_pixels_are_decoded_once_if_all_of_them_fit_into_memory(monkeypatch, fits):
    monkeypatch.setattr(readers, "PIXEL_CACHE_BYTES", 4 * 3 * 32 * 32 - (not fits))
    pictures = [*map(Counting, PHOTOS.pictures), BrokenPicture()]
    reader = PixelReader(pictures, 32)
    for images in ([2, 3, 0], [0, 2, 2]):
        values, readable = reader.read(np.array(images))
        assert readable.tolist() == [image != 3 for image in images]
        for value, image in zip(values, (image for image in images if image != 3), strict=True):
            np.testing.assert_array_equal(value, square_pixels(PHOTOS.pictures[image], 32))
    assert [picture.decoded for picture in pictures[:3]] == ([1, 0, 1] if fits else [2, 0, 3])
    assert reader.skipped == {3: "broken.jpg: truncated"}


def test_a_store_reader_knows_small_photos_and_boxes(tmp_path, monkeypatch):
    monkeypatch.setattr(proposals, "proposer", propose_from_colour)
    Image.new("RGB", (20, 50), "red").save(tmp_path / "small.png")
    pictures = [PHOTOS.pictures[0], BrokenPicture(), PictureFile(tmp_path / "small.png")]
    reader = image_reader(replace(PHOTOS, pictures=pictures), SEARCH, TinyBackbone(), store=new_store(tmp_path / "s"))
    assert reader.enlarged == {2: (20, 50)}
    assert reader.skipped == {1: "broken.jpg: truncated"}
    propose = propose_from_colour(SEARCH.regions)
    expected = [propose(pictures[0].load()), np.zeros((2, 4)), propose(pictures[2].load())]
    np.testing.assert_array_equal(reader.boxes, expected)


def test_stored_regions_that_are_all_zeros_are_skipped(tmp_path, monkeypatch):
    proposed = propose_from_colour(SEARCH.regions)
    calls = iter(range(3))

    def propose(photo):
        return proposed(photo) * (next(calls) != 1)

    monkeypatch.setattr(proposals, "proposer", lambda regions: propose)
    reader = image_reader(PHOTOS, SEARCH, TinyBackbone(), store=new_store(tmp_path))
    values, readable = reader.read(np.arange(3))
    assert readable.tolist() == [True, False, True]
    assert len(values) == 2
    assert reader.skipped[1].startswith(f"{PHOTOS.image_ids[1]}: has no regions")
    assert reader.empty == {1}


def test_views_are_stored_in_single_precision(tmp_path):
    assert not has_store(tmp_path, spec_for(TinyBackbone(), VIEWS))
    reader = image_reader(PHOTOS, VIEWS, TinyBackbone(), store=new_store(tmp_path))
    assert has_store(tmp_path, spec_for(TinyBackbone(), VIEWS))
    mean = ImageInput("crops", SQUARE, Crops(name="mirrored"))
    assert not has_store(tmp_path, spec_for(TinyBackbone(), mean))
    assert np.load(tmp_path / "tiny-mirrored-crops" / "part-00000.npy").dtype == np.float32
    values, readable = reader.read(np.array([2, 0]))
    assert readable.all()
    with torch.no_grad():
        for row, photo in zip(values, (2, 0), strict=True):
            squares = fixed_crops(PHOTOS.pictures[photo].load(), Crops(name="mirrored"), 32)
            np.testing.assert_allclose(row, TinyBackbone()(torch.from_numpy(squares)), rtol=1e-5)


def test_the_views_of_a_black_photo_are_not_empty(tmp_path):
    black = DecodedPicture(Image.new("RGB", (40, 40)))
    corpus = replace(PHOTOS, pictures=[black, *PHOTOS.pictures[1:]])
    values, readable = image_reader(corpus, VIEWS, TinyBackbone(), store=new_store(tmp_path)).read(np.arange(3))
    assert readable.all()
    assert not values[0].any()
