"""Pictures are known by their content, and a picture that cannot be loaded never moves the rows of others."""

import io
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from diptych.data.formats.scenes import make_scenes
from diptych.data.images import PictureFile
from diptych.errors import ImageError
from diptych.features import picture_loader
from diptych.features.crops import Crops, fixed_crops
from diptych.features.hashes import HashCache
from diptych.features.picture_loader import PictureLoader
from diptych.features.region_boxes import ProposedBoxes
from diptych.features.store import FeatureStore, FeatureStoreSpec
from support.backbones import TinyBackbone
from support.extraction import expected_rows, extract_tiny, rows_of
from support.pictures import BrokenPicture, save_photo


@pytest.fixture
def loader_of(tmp_path):
    def make(pictures):
        spec = FeatureStoreSpec.for_backbone(TinyBackbone(), Crops(name="mirrored"))
        store = FeatureStore.open_or_create(tmp_path / "store", spec, (6,))
        return PictureLoader(pictures, store, HashCache(tmp_path / "cache.json"), 32, ProposedBoxes())

    return make


def test_a_picture_is_loaded_as_its_crops(loader_of, tmp_path):
    pictures = [save_photo(tmp_path / "large.png", 1), save_photo(tmp_path / "small.png", 2, (31, 50))]
    large, small = loader_of(pictures).load(np.array([0, 1]))
    assert (large.image, small.image) == (0, 1)
    for loaded, picture in ((large, pictures[0]), (small, pictures[1])):
        np.testing.assert_array_equal(loaded.crops, fixed_crops(picture.load(), Crops(name="mirrored"), 32))
        assert loaded.boxes is None
        assert loaded.reason is None
    assert (large.enlarged, small.enlarged) == (None, (31, 50))


def test_equal_pictures_are_loaded_once(loader_of, tmp_path):
    pictures = [save_photo(tmp_path / f"{number}.png", 7) for number in range(2)]
    first, second = loader_of(pictures).load(np.array([1, 0]))
    assert first.key == second.key
    assert first.crops is not None
    assert (second.image, second.crops, second.reason) == (0, None, None)


def test_only_damaged_content_is_a_permanent_reason(loader_of, tmp_path):
    (tmp_path / "damaged.png").write_bytes(b"no image")
    pictures = [PictureFile(tmp_path / "damaged.png"), PictureFile(tmp_path / "gone.png"), BrokenPicture()]
    damaged, gone, broken = loader_of(pictures).load(np.arange(3))
    assert [each.is_permanent for each in (damaged, gone, broken)] == [True, False, False]
    assert damaged.reason.startswith("not an image in a known format")  # the path is added when it is reported
    assert gone.reason == "no such file"
    assert broken.reason == "broken.jpg: truncated"
    assert damaged.key is not None
    assert gone.key is broken.key is None


@pytest.fixture
def pictures(tmp_path):
    return [save_photo(tmp_path / f"{number}.png", number) for number in range(12)]


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "features"


def test_a_file_that_changes_while_it_is_read_is_skipped_until_the_next_run(pictures, folder, tmp_path, monkeypatch):
    def load_and_change(picture, crops, side):
        if picture.path.name == "2.png":
            save_photo(picture.path, 77)
        return picture.load()

    with monkeypatch.context() as patch:
        patch.setattr(picture_loader, "load_for_crops", load_and_change)
        stored = extract_tiny(pictures, folder)
    assert stored.skipped == {2: f"{tmp_path / '2.png'}: changed while it was read; run the command again"}
    stored = extract_tiny(pictures, folder)
    assert stored.skipped == {}
    assert stored.computed == 1
    np.testing.assert_array_equal(rows_of(stored), expected_rows(pictures))


@pytest.mark.usefixtures("trusted_clock")
def test_renamed_equal_and_changed_photos(pictures, folder, tmp_path):
    first = rows_of(extract_tiny(pictures, folder))
    (tmp_path / "5.png").rename(tmp_path / "renamed.png")
    moved = [*pictures[:5], PictureFile(tmp_path / "renamed.png"), *pictures[6:]]
    stored = extract_tiny(moved, folder)
    assert stored.computed == 0
    np.testing.assert_array_equal(rows_of(stored), first)

    (tmp_path / "copy.png").write_bytes((tmp_path / "7.png").read_bytes())
    stored = extract_tiny([PictureFile(tmp_path / "copy.png"), *moved], folder)
    assert stored.computed == 0
    np.testing.assert_array_equal(rows_of(stored)[0], first[7])

    save_photo(tmp_path / "7.png", 1234)
    stored = extract_tiny(moved, folder)
    assert stored.computed == 1
    np.testing.assert_array_equal(rows_of(stored), expected_rows(moved))
    assert not np.array_equal(rows_of(stored)[7], first[7])
    np.testing.assert_array_equal(np.delete(rows_of(stored), 7, 0), np.delete(first, 7, 0))


def test_an_edit_that_keeps_size_and_time_is_noticed(folder, tmp_path):
    """A file that was written just now is hashed again: two edits within a tick of the clock have the same stamp."""
    path = tmp_path / "a.ppm"
    first, second = (f"P6 40 36 255\n{letter * 40 * 36 * 3}".encode() for letter in "ab")
    path.write_bytes(first)
    when = path.stat().st_mtime_ns
    extract_tiny([PictureFile(path)], folder)
    path.write_bytes(second)
    os.utime(path, ns=(when, when))
    stored = extract_tiny([PictureFile(path)], folder)
    assert stored.computed == 1
    np.testing.assert_array_equal(rows_of(stored), expected_rows([PictureFile(path)]))


@pytest.mark.usefixtures("trusted_clock")
def test_unreadable_images_are_skipped_with_the_reason(pictures, folder, tmp_path):
    (tmp_path / "3.png").write_bytes((tmp_path / "3.png").read_bytes()[:300])
    (tmp_path / "4.png").write_bytes(b"no image at all")
    (tmp_path / "5.png").unlink()
    (tmp_path / "6.png").unlink()
    (tmp_path / "6.png").mkdir()
    (tmp_path / "7.png").write_bytes((tmp_path / "4.png").read_bytes())
    reasons = {}
    for image in (3, 4, 5, 6, 7):
        with pytest.raises(ImageError) as raised:
            pictures[image].load()
        reasons[image] = str(raised.value)
    good = [image for image in range(12) if image not in reasons]
    for computed in (7, 0):
        backbone = TinyBackbone()
        stored = extract_tiny(pictures, folder, backbone)
        assert stored.skipped == reasons
        assert stored.readable.tolist() == good
        assert stored.computed == computed
        assert (backbone.shown > 0) == (computed > 0)
        np.testing.assert_array_equal(rows_of(stored), expected_rows([pictures[image] for image in good]))
    save_photo(tmp_path / "5.png", 5)
    assert 5 not in extract_tiny(pictures, folder).skipped


def test_a_damaged_image_is_tried_once(folder, tmp_path, monkeypatch):
    bad = PictureFile(tmp_path / "bad.png")
    bad.path.write_bytes(b"no image at all")
    first = extract_tiny([bad], folder)
    monkeypatch.setattr(picture_loader, "load_for_crops", None)
    moved = PictureFile(bad.path.rename(tmp_path / "moved.png"))
    again = extract_tiny([moved], folder)
    assert again.skipped[0] == first.skipped[0].replace("bad.png", "moved.png")


def test_small_photos_are_listed_with_their_size(folder, tmp_path):
    sizes = [(32, 32), (31, 90), (90, 31), (3, 5)]
    pictures = [save_photo(tmp_path / f"{number}.png", number, size) for number, size in enumerate(sizes)]
    for _ in range(2):
        assert extract_tiny(pictures, folder).enlarged == {1: (31, 90), 2: (90, 31), 3: (3, 5)}


def test_pictures_that_are_not_files_are_known_by_their_pixels(folder):
    pictures = make_scenes(train=5, val=0, test=0).pictures
    first = extract_tiny(pictures, folder)
    assert first.computed == 5
    np.testing.assert_array_equal(rows_of(first), expected_rows(pictures))
    again = extract_tiny(pictures[::-1], folder)
    assert again.computed == 0
    np.testing.assert_array_equal(rows_of(again), rows_of(first)[::-1])


def content(kind):
    """The bytes of an image, chosen by a number; those of a damaged one for a negative number."""
    if kind < 0:
        return b"damaged" * -kind
    buffer = io.BytesIO()
    Image.new("RGB", (16, 16), (kind * 40, 255 - kind * 30, kind)).save(buffer, "png")
    return buffer.getvalue()


@settings(max_examples=20)
@given(
    runs=st.lists(st.lists(st.integers(-2, 5), max_size=20), min_size=1, max_size=3),
    missing=st.sets(st.integers(0, 19), max_size=3),
    workers=st.integers(0, 3),
)
def test_no_picture_gets_the_features_of_another(tmp_path_factory, runs, missing, workers):
    """In any order, with equal images, skipped neighbours, and earlier runs over other images."""
    root = tmp_path_factory.mktemp("orders")
    for number, kinds in enumerate(runs):
        pictures = [PictureFile(root / f"{number}-{image}") for image in range(len(kinds))]
        for image, kind in enumerate(kinds):
            if image not in missing:
                pictures[image].path.write_bytes(content(kind))
        stored = extract_tiny(pictures, root / "features", workers=workers)
        good = [image for image, kind in enumerate(kinds) if kind >= 0 and image not in missing]
        assert stored.readable.tolist() == good
        assert sorted(stored.skipped) == [image for image in range(len(kinds)) if image not in good]
        assert all(str(pictures[image].path) in reason for image, reason in stored.skipped.items())
        if good:
            np.testing.assert_array_equal(rows_of(stored), expected_rows([pictures[image] for image in good]))
    spec = FeatureStoreSpec.for_backbone(TinyBackbone(), Crops())
    distinct = {kind for kinds in runs for image, kind in enumerate(kinds) if kind >= 0 and image not in missing}
    assert len(FeatureStore.open(root / "features", spec)) == len(distinct)
