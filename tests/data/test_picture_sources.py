"""Whatever Python has of a picture becomes upright RGB pixels, or an error that says why not."""

import io
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from diptych.data.images import PictureFile
from diptych.data.picture_sources import LazyPicture, as_picture, decode_stored, image_path
from diptych.errors import DataError, ImageError

RED = np.tile(np.array([200, 10, 30], np.uint8), (6, 8, 1))  # (height, width, 3)
ORIENTATION = 0x0112


def png(image):
    content = io.BytesIO()
    image.save(content, "PNG")
    return content.getvalue()


class Drawn:
    def __init__(self, result):
        self.result = result

    def load(self):
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


def pixels(value):
    image = as_picture(value, "x").load()
    assert image.mode == "RGB"
    return np.asarray(image)


@pytest.mark.parametrize(
    "value",
    [
        RED,
        Image.fromarray(RED),
        png(Image.fromarray(RED)),
        {"bytes": png(Image.fromarray(RED)), "path": None},
        Drawn(Image.fromarray(RED)),
        Image.fromarray(RED).convert("RGBA"),
        np.dstack([RED, np.full((6, 8), 255, np.uint8)]),
        np.asfortranarray(RED),
    ],
    ids=["array", "PIL", "bytes", "stored", "load", "RGBA", "array of four", "other order"],
)
def test_every_kind_of_picture_has_the_same_pixels(value):
    np.testing.assert_array_equal(pixels(value), RED)


def test_grey_arrays_and_files(tmp_path):
    grey = RED[:, :, 0]
    np.testing.assert_array_equal(pixels(grey), np.dstack([grey] * 3))
    np.testing.assert_array_equal(pixels(grey[:, :, None]), np.dstack([grey] * 3))
    Image.fromarray(RED).save(tmp_path / "a.png")
    for path in (tmp_path / "a.png", str(tmp_path / "a.png"), PictureFile(tmp_path / "a.png")):
        assert as_picture(path, "x") == PictureFile(tmp_path / "a.png")
    np.testing.assert_array_equal(pixels({"bytes": None, "path": str(tmp_path / "a.png")}), RED)


def test_an_opened_photo_is_turned_upright_like_its_file(tmp_path):
    tags = Image.Exif()
    tags[ORIENTATION] = 6
    Image.fromarray(RED).save(tmp_path / "a.jpg", exif=tags)
    upright = PictureFile(tmp_path / "a.jpg").load()
    with Image.open(tmp_path / "a.jpg") as opened:
        assert opened.size == (8, 6)
        loaded = as_picture(opened, "x").load()
    assert loaded.size == (6, 8)
    np.testing.assert_array_equal(np.asarray(loaded), np.asarray(upright))
    assert as_picture(Drawn(Image.open(tmp_path / "a.jpg")), "x").load().size == (6, 8)


def test_a_photo_that_was_opened_may_be_loaded_by_many_threads(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (300, 300, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "a.png")
    ready = threading.Barrier(8)
    with Image.open(tmp_path / "a.png") as opened, ThreadPoolExecutor(8) as pool:
        picture = as_picture(opened, "x")

        def load(_):
            ready.wait()
            return np.asarray(picture.load())

        for loaded in pool.map(load, range(8)):
            np.testing.assert_array_equal(loaded, noise)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "no image"),
        (7, "the image is of type int; give a path, a PIL image"),
        ({}, "the image is of type dict"),
        ({"url": "x"}, "the image is of type dict"),
        (RED / 255, "an array of float64; convert its pixels to uint8"),
        (RED.transpose(2, 0, 1), r"shape \(3, 6, 8\); it must be \(height, width\)"),
        (RED[:0], r"shape \(0, 8, 3\)"),
        ("https://example.com/a.jpg", "'https://example.com/a.jpg' is a URL, and Diptych never downloads"),
        ("s3://bucket/a.jpg", "is a URL"),
        ("data:image/png;base64,AAAA", "is a URL"),
    ],
)
def test_what_is_no_picture(value, message):
    with pytest.raises(DataError, match=message):
        as_picture(value, "x")


def test_a_path_of_bytes_and_what_is_no_path(tmp_path):
    class Odd:
        def __fspath__(self):
            return b"a.jpg"

    with pytest.raises(DataError, match="of type bytes"):
        image_path(Odd())
    assert image_path(RED) is None
    assert image_path("C:/a.jpg") == "C:/a.jpg"  # a drive, not a scheme


@pytest.mark.parametrize(
    ("picture", "message"),
    [
        (as_picture(b"not an image", "x"), "x: not an image in a known format"),
        (as_picture(b"", "x"), "x: an empty file"),
        (as_picture(Drawn(ValueError("two\nlines")), "x"), r"x: cannot be loaded \(ValueError: two lines\)"),
        (as_picture(Drawn(ImageError("x: known")), "x"), "^x: known$"),
        (as_picture(Drawn("text"), "x"), r"x: load\(\) returned of type str, not a PIL image"),
        (as_picture(Image.new("F", (2, 2)), "x"), "x: floating-point pixels"),
        (as_picture({"bytes": None, "path": None}, "x"), "x: neither bytes nor a path"),
        (as_picture({"path": "/no/such.png"}, "x"), "/no/such.png: no such file"),
        (as_picture({"path": "https://a/b.png"}, "x"), "x: 'https://a/b.png' is a URL"),
    ],
)
def test_pictures_that_cannot_be_loaded(picture, message):
    with pytest.raises(ImageError, match=message) as caught:
        picture.load()
    assert "\n" not in str(caught.value)


def test_nothing_is_decoded_before_it_is_loaded():
    opened = []
    picture = LazyPicture("x", lambda: opened.append(1) or Image.fromarray(RED))
    assert opened == []
    picture.load()
    assert opened == [1]
    np.testing.assert_array_equal(np.asarray(decode_stored({"bytes": png(Image.fromarray(RED))}, "x")), RED)
