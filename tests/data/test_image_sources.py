"""Images as users pass them: what is accepted, and one sentence for everything else."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from diptych.data.image_sources import as_picture, as_pictures
from diptych.data.images import decode
from diptych.errors import DataError, ImageError

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 9, 3), np.uint8)


@pytest.fixture
def photo(tmp_path):
    Image.fromarray(PIXELS).save(tmp_path / "photo.png")
    return tmp_path / "photo.png"


@pytest.fixture
def opened():
    """Opens an image file as a user does, and closes it after the test."""
    with ExitStack() as stack:
        yield lambda path: stack.enter_context(Image.open(path))


def refused(images):
    with pytest.raises(DataError) as error:
        as_pictures(images)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_paths_images_and_arrays_are_the_same_picture(photo, opened):
    sources = [photo, str(photo), opened(photo), Image.fromarray(PIXELS), PIXELS, PIXELS[::-1][::-1]]
    for picture in as_pictures(sources):
        loaded = picture.load()
        assert loaded.mode == "RGB"
        np.testing.assert_array_equal(np.asarray(loaded), PIXELS)


def test_any_iterable_of_images_is_a_list(photo):
    assert len(as_pictures(np.stack([PIXELS, PIXELS]))) == 2
    assert len(as_pictures(np.array([str(photo)] * 3))) == 3
    assert len(as_pictures(path for path in [photo])) == 1
    assert as_pictures(()) == []


def test_grey_arrays_become_rgb():
    grey = np.asarray(as_picture(PIXELS[:, :, 0]).load())
    np.testing.assert_array_equal(grey, np.repeat(PIXELS[:, :, :1], 3, 2))


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGBA", "CMYK", "YCbCr", "HSV", "LAB", "I;16"])
def test_an_image_of_any_mode_becomes_rgb(mode):
    image = Image.new("RGB", (4, 3), "white")
    image = Image.new("I;16", (4, 3), 65535) if mode == "I;16" else image.convert("L" if mode == "LA" else "RGB")
    if mode == "LAB":
        image = Image.new("LAB", (4, 3))
    loaded = as_picture(image if mode in ("I;16", "LAB") else image.convert(mode)).load()
    assert (loaded.mode, loaded.size) == ("RGB", (4, 3))
    if mode not in ("LAB", "HSV"):
        assert np.asarray(loaded).min() > 250


@pytest.mark.parametrize("orientation", range(1, 9))
def test_an_opened_image_is_turned_upright_once_as_a_file_is(tmp_path, opened, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(PIXELS).save(tmp_path / "turned.png", exif=exif)
    wanted = decode(tmp_path / "turned.png")
    given = opened(tmp_path / "turned.png")
    for image in (given, given, wanted, as_picture(given).load()):  # also if it is upright already
        loaded = as_picture(image).load()
        assert loaded.size == ((6, 9) if orientation >= 5 else (9, 6))
        np.testing.assert_array_equal(np.asarray(loaded), np.asarray(wanted))


def test_one_image_is_not_a_list(photo, opened):
    for image in (photo, str(photo), b"bytes", opened(photo), PIXELS, PIXELS[:, :, 0]):
        assert refused(image) == "images: one image, not a list; pass [image]"
    for wrong in (None, 3, {"a": photo}):
        assert refused(wrong) == f"images: {wrong!r:.40} is not a list of images"


@pytest.mark.parametrize("address", ["http://a/b.jpg", "https://a/b.jpg", "s3://bucket/b.jpg"])
def test_urls_are_never_downloaded(address, photo):
    assert refused([photo, address]) == (
        f"images[1]: {address!r} is a URL, and Diptych never downloads; save the file first"
    )


def test_what_is_not_an_image_is_named_by_its_position(photo):
    assert refused([photo, None]) == "images[1]: no image"
    for wrong in (3, [photo], object):
        assert refused([photo, wrong]).startswith("images[1]: the image is of type ")
        assert "; give a path, a PIL image, a uint8 array" in refused([photo, wrong])
    assert refused([""]) == "images[0]: the image is empty; give its path"
    assert refused([PIXELS / 255]).startswith(
        "images[0]: the image is an array of float64; convert its pixels to uint8"
    )
    for shape in ((3, 6, 9), (6, 9, 2), (6,), (1, 6, 9, 3), (0, 9, 3)):
        assert f"images[0]: the image is an array of shape {shape}; it must be" in refused([np.zeros(shape, np.uint8)])


def test_an_image_that_cannot_be_read_says_which(tmp_path, photo, opened):
    (tmp_path / "bad.jpg").write_bytes(b"nothing")
    with pytest.raises(ImageError, match=r"bad\.jpg: not an image in a known format"):
        as_picture(tmp_path / "bad.jpg").load()
    with pytest.raises(ImageError, match=r"none\.jpg: no such file"):
        as_picture("none.jpg").load()
    content = photo.read_bytes()
    (tmp_path / "cut.png").write_bytes(content[: len(content) // 2])
    with pytest.raises(ImageError, match=r"images\[1\]: damaged or cut short"):
        as_pictures([photo, opened(tmp_path / "cut.png")])[1].load()
    with Image.open(photo) as closed:
        pass
    with pytest.raises(ImageError, match=r"images\[0\]: its file was closed before it was decoded; pass the path"):
        as_pictures([closed])[0].load()
    with pytest.raises(ImageError, match=r"the image: floating-point pixels"):
        as_picture(Image.new("F", (2, 2))).load()


def test_an_image_that_is_too_large_is_not_decoded(photo, opened, monkeypatch):
    monkeypatch.setattr("diptych.data.large_photos.MAX_PIXELS", 53)
    with pytest.raises(ImageError, match=r"the image: 9 x 6 pixels, above the limit of 53 pixels"):
        as_picture(opened(photo)).load()


def test_threads_may_load_the_same_opened_image(tmp_path):
    large = np.random.default_rng(1).integers(0, 256, (400, 300, 3), np.uint8)
    Image.fromarray(large).save(tmp_path / "large.png")
    for _ in range(5):
        pictures = as_pictures([Image.open(tmp_path / "large.png")] * 4)
        loaded = [None] * 4
        barrier = threading.Barrier(4)

        def load(number, pictures=pictures, loaded=loaded, barrier=barrier):
            barrier.wait()
            loaded[number] = np.asarray(pictures[number].load())

        threads = [threading.Thread(target=load, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(np.array_equal(pixels, large) for pixels in loaded)


def test_a_path_is_any_path():
    assert as_picture("a/b.jpg") == as_picture(Path("a") / "b.jpg")
