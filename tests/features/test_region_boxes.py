"""Boxes of regions: those that are stored with annotated regions, and those that a model's regions have."""

from dataclasses import replace

import numpy as np
import pytest

from diptych.data.corpus import Features
from diptych.data.formats.scenes import make_scenes
from diptych.errors import RecipeError
from diptych.features import extract as extraction
from diptych.features import proposals
from diptych.features.crops import Crops
from diptych.features.image_input import ImageInput
from diptych.features.readers import StoreOptions, image_reader
from diptych.features.region_boxes import AnnotatedBoxes, ProposedBoxes, region_boxes
from diptych.features.regions import Regions, grid_boxes
from support.backbones import TinyBackbone
from support.extraction import CPU, expected_regions, extract_tiny
from support.pictures import BrokenPicture, propose_from_colour, save_photo

COUNT, BOXES = 12, 3
PHOTOS = make_scenes(train=1, val=1, test=3, texts=1).split("test")
SQUARE = (3, 32, 32)


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch):
    monkeypatch.setattr(extraction, "CROPS_ON_CPU", 4)


@pytest.fixture
def pictures(tmp_path):
    return [save_photo(tmp_path / f"{number}.png", number) for number in range(COUNT)]


@pytest.fixture
def boxes():
    """Three boxes per picture; the last box of every other picture is missing."""
    corners = np.sort(np.random.default_rng(0).random((COUNT, BOXES, 2, 2)), axis=2).astype(np.float32)
    boxes = corners.reshape(COUNT, BOXES, 4)
    boxes[::2, 2] = 0
    return boxes


def extract_annotated(pictures, boxes, folder, backbone=None, progress=None):
    regions = Regions(method="annotated", count=BOXES)
    return extract_tiny(
        pictures, folder, backbone, crops="whole", regions=regions, workers=1, progress=progress, boxes=boxes
    )


def assert_right(stored, pictures, boxes):
    rows = np.arange(len(stored.readable))
    np.testing.assert_array_equal(stored.boxes[rows], boxes[stored.readable])
    for row, image in enumerate(stored.readable):
        vectors = stored.features[np.array([row])][0]
        np.testing.assert_allclose(vectors, expected_regions(pictures[image], boxes[image]), atol=1e-6)


def test_each_picture_has_its_annotated_regions(pictures, boxes, tmp_path):
    stored = extract_annotated(pictures, boxes, tmp_path / "store")
    assert stored.computed == COUNT
    assert stored.readable.tolist() == list(range(COUNT))
    assert_right(stored, pictures, boxes)
    assert not stored.features[np.arange(COUNT)][::2, 2].any()
    backbone = TinyBackbone()
    again = extract_annotated(pictures[::-1], boxes[::-1], tmp_path / "store", backbone)
    assert backbone.shown == again.computed == 0
    assert_right(again, pictures[::-1], boxes[::-1])


def test_a_changed_box_adds_a_row_and_changes_no_other(pictures, boxes, tmp_path):
    extract_annotated(pictures, boxes, tmp_path / "store")
    moved = boxes.copy()
    moved[3, 0] = (0, 0, 0.5, 0.5)
    stored = extract_annotated(pictures, moved, tmp_path / "store")
    assert stored.computed == 1
    assert_right(stored, pictures, moved)
    back = extract_annotated(pictures, boxes, tmp_path / "store")  # the earlier rows are still there
    assert back.computed == 0
    assert_right(back, pictures, boxes)


def test_one_picture_with_several_sets_of_boxes_has_a_row_for_each(pictures, boxes, tmp_path):
    same = [pictures[0]] * 4
    annotated = np.stack([boxes[1], boxes[2], boxes[1], boxes[3]])
    stored = extract_annotated(same, annotated, tmp_path / "store")
    assert stored.computed == 3
    assert_right(stored, same, annotated)


def test_an_interrupted_extraction_is_continued(pictures, boxes, tmp_path):
    def stop(done, total):
        assert total == COUNT
        if done >= 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        extract_annotated(pictures, boxes, tmp_path / "store", progress=stop)
    stored = extract_annotated(pictures, boxes, tmp_path / "store")
    assert 0 < stored.computed < COUNT
    assert_right(stored, pictures, boxes)
    uninterrupted = extract_annotated(pictures, boxes, tmp_path / "uninterrupted")
    rows = np.arange(COUNT)
    np.testing.assert_array_equal(stored.features[rows], uninterrupted.features[rows])


def test_an_unreadable_picture_does_not_shift_the_others(pictures, boxes, tmp_path):
    pictures[5].path.write_bytes(b"no image")
    for computed in (COUNT - 1, 0):
        stored = extract_annotated(pictures, boxes, tmp_path / "store")
        assert stored.computed == computed
        assert list(stored.skipped) == [5]
        assert str(pictures[5].path) in stored.skipped[5]
        assert stored.readable.tolist() == [image for image in range(COUNT) if image != 5]
        assert_right(stored, pictures, boxes)


def test_annotated_regions_without_boxes_are_refused(pictures, tmp_path):
    with pytest.raises(RecipeError, match="annotated boxes are not proposals"):
        extract_annotated(pictures, None, tmp_path / "store")


def test_the_key_of_annotated_regions_depends_on_the_picture_and_on_all_of_its_boxes():
    boxes = np.random.default_rng(0).random((2, BOXES, 4))
    source = AnnotatedBoxes(boxes)
    keys = {source.key(0, "a"), source.key(0, "b"), source.key(1, "a")}
    for number in range(BOXES * 4):
        moved = boxes.copy()
        moved[0].flat[number] += 0.01
        keys.add(AnnotatedBoxes(moved).key(0, "a"))
        assert AnnotatedBoxes(moved).key(1, "a") == source.key(1, "a")
    assert len(keys) == 3 + BOXES * 4
    assert AnnotatedBoxes(boxes.astype(np.float32)[:, ::1]).key(0, "a") == source.key(0, "a")


def test_the_key_of_proposed_regions_is_the_hash_of_the_picture():
    assert ProposedBoxes().key(3, "digest") == "digest"


def test_nothing_is_proposed_unless_the_regions_are_boxes(monkeypatch):
    monkeypatch.setattr(proposals, "proposer", propose_from_colour)
    photo = PHOTOS.pictures[0].load()
    for regions in (None, Regions(), Regions(method="crops")):
        source = ProposedBoxes()
        source.prepare(regions)
        assert source.boxes(0, photo) is None
    search = Regions(method="selective-search", count=2)
    source = ProposedBoxes()
    source.prepare(search)
    np.testing.assert_array_equal(source.boxes(0, photo), propose_from_colour(search)(photo))


def test_proposed_boxes_are_those_of_the_store(tmp_path, monkeypatch):
    monkeypatch.setattr(proposals, "proposer", propose_from_colour)
    search = ImageInput("crops", SQUARE, Crops(name="whole"), Regions(method="selective-search", count=2))
    store = StoreOptions(tmp_path, CPU, workers=0, create=True)
    boxes = region_boxes(PHOTOS, search, TinyBackbone())
    assert boxes.shape == (3, 2, 4)
    np.testing.assert_array_equal(boxes, image_reader(PHOTOS, search, TinyBackbone(), store=store).boxes)
    broken = replace(PHOTOS, pictures=[PHOTOS.pictures[0], BrokenPicture(), PHOTOS.pictures[2]])
    expected = boxes * np.array([1, 0, 1])[:, None, None]
    np.testing.assert_array_equal(region_boxes(broken, search, TinyBackbone()), expected)


@pytest.mark.parametrize(("crops", "cells"), [(Crops(name="whole"), 16), (Crops(name="1C", side=64), 64)])
def test_the_boxes_of_a_grid_are_its_cells_for_every_image(crops, cells):
    side = crops.side or 32
    boxes = region_boxes(PHOTOS, ImageInput("crops", (3, side, side), crops, Regions()), TinyBackbone().eval())
    assert boxes.shape == (3, cells, 4)
    for row in boxes:
        np.testing.assert_array_equal(row, grid_boxes(cells, crops, side))


def test_the_boxes_that_came_with_a_corpus():
    features = ImageInput("features", (2, 3))
    boxes = np.random.default_rng(0).random((3, 2, 4)).astype(np.float32)
    regions = Features([np.ones((3, 2, 3), np.float32)])
    corpus = replace(PHOTOS, pictures=None, features=regions, region_boxes=Features([boxes]))
    np.testing.assert_array_equal(region_boxes(corpus, features, None), boxes)
    np.testing.assert_array_equal(region_boxes(corpus.take(np.array([2]), np.array([2])), features, None), boxes[2:])
    assert region_boxes(replace(corpus, region_boxes=None), features, None) is None


def test_an_input_without_regions_has_no_boxes():
    assert region_boxes(PHOTOS, ImageInput("crops", SQUARE, Crops()), TinyBackbone()) is None
    assert region_boxes(PHOTOS, ImageInput("pixels", SQUARE), None) is None
    views = ImageInput("crops", SQUARE, Crops(name="mirrored"), Regions(method="crops"))
    assert region_boxes(PHOTOS, views, TinyBackbone()) is None
