"""Regions at places that the data tells: stored by picture and boxes, computed once, gone on with."""

import numpy as np
import pytest
import torch
from PIL import Image

from diptych.data.images import PictureFile
from diptych.errors import RecipeError
from diptych.features import extract as extraction
from diptych.features.backbone import Backbone
from diptych.features.crops import Crops, fixed_crops
from diptych.features.extract import extract
from diptych.features.region_boxes import AnnotatedBoxes
from diptych.features.regions import Regions
from diptych.features.roi_align import roi_align
from diptych.features.store import FeatureStoreSpec

CPU = torch.device("cpu")
COUNT, ROOM = 12, 3
TOLD = Regions(method="annotated", count=ROOM)


class Tiny(Backbone):
    """Sees squares of 32 pixels as 4 x 4 cells of three colours, and counts what it is shown."""

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


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch):
    monkeypatch.setattr(extraction, "SQUARES_ON_CPU", 4)


@pytest.fixture
def pictures(tmp_path):
    made = []
    for number in range(COUNT):
        pixels = np.random.default_rng(number).integers(0, 256, (40, 48, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
        made.append(PictureFile(tmp_path / f"{number}.png"))
    return made


@pytest.fixture
def boxes():
    """Three boxes a picture, the last of every other one being none."""
    corners = np.sort(np.random.default_rng(0).random((COUNT, ROOM, 2, 2)), axis=2).astype(np.float32)
    boxes = corners.reshape(COUNT, ROOM, 4)
    boxes[::2, 2] = 0
    return boxes


def run(pictures, boxes, folder, backbone=None, progress=None):
    backbone = backbone or Tiny()
    making = FeatureStoreSpec.for_backbone("tiny", backbone, Crops(name="whole"), regions=TOLD, dtype="float32")
    return extract(pictures, backbone, making, folder, workers=1, device=CPU, progress=progress, boxes=boxes)


def expected(picture, boxes):
    """The boxes of one picture alone, pooled from its own map."""
    squares = torch.from_numpy(fixed_crops(picture.load(), Crops(name="whole"), Tiny.side))
    cells = Tiny().regions(squares).detach()  # (1, 16, 3)
    return roi_align(cells.transpose(1, 2).reshape(1, 3, 4, 4), torch.from_numpy(boxes[None]))[0].numpy()


def assert_right(stored, pictures, boxes):
    rows = np.arange(len(stored.readable))
    np.testing.assert_array_equal(stored.boxes[rows], boxes[stored.readable])
    for row, image in enumerate(stored.readable):
        found = stored.features[np.array([row])][0]
        np.testing.assert_allclose(found, expected(pictures[image], boxes[image]), atol=1e-6)


def test_each_picture_has_the_regions_that_it_was_told(pictures, boxes, tmp_path):
    stored = run(pictures, boxes, tmp_path / "store")
    assert stored.computed == COUNT
    assert stored.readable.tolist() == list(range(COUNT))
    assert_right(stored, pictures, boxes)
    assert not stored.features[np.arange(COUNT)][::2, 2].any()
    network = Tiny()
    again = run(pictures[::-1], boxes[::-1], tmp_path / "store", network)
    assert network.shown == again.computed == 0
    assert_right(again, pictures[::-1], boxes[::-1])


def test_another_box_is_another_row_and_nobody_else_s(pictures, boxes, tmp_path):
    run(pictures, boxes, tmp_path / "store")
    moved = boxes.copy()
    moved[3, 0] = (0, 0, 0.5, 0.5)
    stored = run(pictures, moved, tmp_path / "store")
    assert stored.computed == 1
    assert_right(stored, pictures, moved)
    back = run(pictures, boxes, tmp_path / "store")  # the rows of before are still there
    assert back.computed == 0
    assert_right(back, pictures, boxes)


def test_one_picture_with_several_sets_of_boxes_has_them_all(pictures, boxes, tmp_path):
    same = [pictures[0]] * 4
    told = np.stack([boxes[1], boxes[2], boxes[1], boxes[3]])
    stored = run(same, told, tmp_path / "store")
    assert stored.computed == 3
    assert_right(stored, same, told)


def test_what_was_interrupted_is_gone_on_with(pictures, boxes, tmp_path):
    def stop(done, total):
        assert total == COUNT
        if done >= 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(pictures, boxes, tmp_path / "store", progress=stop)
    stored = run(pictures, boxes, tmp_path / "store")
    assert 0 < stored.computed < COUNT
    assert_right(stored, pictures, boxes)
    whole = run(pictures, boxes, tmp_path / "whole")
    rows = np.arange(COUNT)
    np.testing.assert_array_equal(stored.features[rows], whole.features[rows])


def test_a_picture_that_cannot_be_read_moves_nobody(pictures, boxes, tmp_path):
    pictures[5].path.write_bytes(b"no image")
    for computed in (COUNT - 1, 0):
        stored = run(pictures, boxes, tmp_path / "store")
        assert stored.computed == computed
        assert list(stored.skipped) == [5]
        assert str(pictures[5].path) in stored.skipped[5]
        assert stored.readable.tolist() == [image for image in range(COUNT) if image != 5]
        assert_right(stored, pictures, boxes)


def test_told_places_without_boxes_are_no_proposals(pictures, tmp_path):
    with pytest.raises(RecipeError, match="annotated boxes are not proposals"):
        run(pictures, None, tmp_path / "store")


def test_a_row_is_known_by_the_picture_and_all_of_its_boxes():
    boxes = np.random.default_rng(0).random((2, ROOM, 4))
    find = AnnotatedBoxes(boxes)
    keys = {find.key(0, "a"), find.key(0, "b"), find.key(1, "a")}
    for place in range(ROOM * 4):
        moved = boxes.copy()
        moved[0].flat[place] += 0.01
        keys.add(AnnotatedBoxes(moved).key(0, "a"))
        assert AnnotatedBoxes(moved).key(1, "a") == find.key(1, "a")
    assert len(keys) == 3 + ROOM * 4
    assert AnnotatedBoxes(boxes.astype(np.float32)[:, ::1]).key(0, "a") == find.key(0, "a")
