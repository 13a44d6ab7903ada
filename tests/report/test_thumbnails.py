from __future__ import annotations

import base64
import io
from dataclasses import dataclass

import numpy as np
import pytest
from PIL import Image

from diptych.data.images import PictureFile
from diptych.errors import ImageError
from diptych.report.thumbnails import thumbnail_uri

RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)


@dataclass
class Drawn:
    """A picture in memory; without an image it cannot be decoded."""

    image: Image.Image | None

    def load(self) -> Image.Image:
        if self.image is None:
            raise ImageError("gone.jpg: an empty file (0 bytes); copy it again")
        return self.image


def plain(colour, width=40, height=40) -> Drawn:
    return Drawn(Image.new("RGB", (width, height), colour))


def decoded(uri: str) -> Image.Image:
    head, body = uri.split(",")
    image = Image.open(io.BytesIO(base64.b64decode(body, validate=True)))
    assert head == f"data:image/{image.format.lower()};base64"
    return image.convert("RGB")


def noise(width=300, height=200) -> Image.Image:
    values = np.random.default_rng(0).normal(128, 40, (10, 15, 3)).clip(0, 255)
    return Image.fromarray(values.astype(np.uint8)).resize((width, height), Image.Resampling.BICUBIC)


def test_drawings_become_png_and_photos_jpeg():
    drawing, photo = thumbnail_uri(plain(RED)), thumbnail_uri(Drawn(noise()))
    assert drawing.startswith("data:image/png;base64,")
    assert photo.startswith("data:image/jpeg;base64,")
    assert decoded(drawing).getpixel((20, 20)) == RED
    assert len(drawing) < 300
    assert len(photo) < 12_000
    assert thumbnail_uri(Drawn(noise())) == photo


@pytest.mark.parametrize(
    ("size", "expected"), [((300, 200), (128, 85)), ((200, 400), (64, 128)), ((30, 20), (30, 20)), ((1, 999), (1, 128))]
)
def test_a_thumbnail_fits_its_square_and_is_never_enlarged(size, expected):
    assert decoded(thumbnail_uri(plain(GREEN, *size))).size == expected
    assert max(decoded(thumbnail_uri(plain(GREEN, *size), side=16)).size) == 16


def test_a_thumbnail_of_a_file_looks_like_the_file(tmp_path):
    noise(1200, 900).save(tmp_path / "photo.jpg", quality=90)
    small = decoded(thumbnail_uri(PictureFile(tmp_path / "photo.jpg")))
    assert small.size == (128, 96)
    expected = noise(1200, 900).resize((128, 96), Image.Resampling.LANCZOS)
    assert np.abs(np.asarray(small, float) - np.asarray(expected, float)).mean() < 6


def test_a_thumbnail_of_something_unreadable_is_a_grey_tile(tmp_path):
    (tmp_path / "empty.jpg").touch()
    tile = np.asarray(decoded(thumbnail_uri(PictureFile(tmp_path / "empty.jpg"), side=64))).astype(int)
    assert tile.shape == (64, 64, 3)
    assert (tile.max(2) - tile.min(2)).max() < 14
    assert (tile.max(2) < 180).sum() > 10
