"""Proposed and annotated regions by number, against pooling each box of each photo by itself."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.data.corpus import Features
from diptych.data.formats.scenes import make_scenes
from diptych.data.phrases import find_mentions
from diptych.data.sampling.regions import annotated_boxes
from diptych.errors import ImageError
from diptych.features import proposals
from diptych.features.crops import Crops
from diptych.features.image_input import ImageInput
from diptych.features.photo_regions import PhotoRegions, photo_regions
from diptych.features.regions import Regions
from support.backbones import TinyBackbone
from support.extraction import CPU, expected_regions
from support.pictures import BrokenPicture, propose_from_colour

SEARCH = Regions(method="selective-search", count=3)
INPUT = ImageInput("crops", (3, 32, 32), Crops(name="whole"), SEARCH)


@pytest.fixture(autouse=True)
def _fake_proposals(monkeypatch):
    monkeypatch.setattr(proposals, "proposer", propose_from_colour)


@pytest.fixture
def corpus():
    return make_scenes(6, 0, 0, images=2, texts=2)


def found(corpus, stores, backbone=None):
    backbone = backbone or TinyBackbone()
    annotated = annotated_boxes(find_mentions(corpus), len(corpus.image_ids))
    return photo_regions(corpus, annotated, backbone, INPUT, stores, workers=1, device=CPU), annotated


def assert_right(regions, corpus, annotated, missing=()):
    """Every region of every photo by its number, in any order."""
    photos = len(corpus.image_ids)
    numbers = np.random.default_rng(0).permutation(photos * regions.per_photo)
    values, readable = regions.read(numbers)
    assert readable.tolist() == [number // regions.per_photo not in missing for number in numbers.tolist()]
    expected = {}
    for photo in set(range(photos)) - set(missing):
        picture = corpus.pictures[photo]
        proposed = propose_from_colour(SEARCH)(picture.load())
        np.testing.assert_array_equal(regions.boxes[photo], proposed)
        np.testing.assert_array_equal(regions.annotated[photo, : annotated.shape[1]], annotated[photo])
        expected[photo] = expected_regions(picture, np.concatenate([proposed, regions.annotated[photo]]))
    for value, number in zip(values, numbers[readable].tolist(), strict=True):
        photo, region = divmod(number, regions.per_photo)
        np.testing.assert_allclose(value, expected[photo][region], rtol=1e-3, atol=1e-4)  # stored as float16


def test_a_region_is_found_by_its_number(corpus, tmp_path):
    regions, annotated = found(corpus, tmp_path)
    assert regions.per_photo == 3 + 8  # rounded up to a multiple of 8
    assert regions.annotated.shape == (12, 8, 4)
    assert not regions.annotated[:, annotated.shape[1] :].any()
    assert regions.photos.tolist() == list(range(12))
    assert regions.skipped == {}
    assert_right(regions, corpus, annotated)
    backbone = TinyBackbone()
    again, _ = found(corpus, tmp_path, backbone)
    assert_right(again, corpus, annotated)
    assert backbone.shown == 0
    assert len(list(tmp_path.iterdir())) == 2  # one store of proposed and one of annotated regions


def test_unreadable_photos_do_not_shift_the_others(corpus, tmp_path):
    corpus.pictures[0] = corpus.pictures[7] = BrokenPicture()
    regions, annotated = found(corpus, tmp_path)
    assert regions.photos.tolist() == [photo for photo in range(12) if photo not in (0, 7)]
    assert regions.skipped == dict.fromkeys((0, 7), "broken.jpg: truncated")
    assert not regions.boxes[[0, 7]].any()
    assert_right(regions, corpus, annotated, missing=(0, 7))


def test_a_photo_must_be_readable_for_both_stores(corpus, tmp_path):
    """A photo that is deleted between the two extractions is skipped."""
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
def test_a_number_is_photo_times_regions_per_photo_plus_region(numbers, missing):
    """Each vector holds the numbers of its photo and its region."""
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
