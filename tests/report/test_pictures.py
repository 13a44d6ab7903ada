from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageColor

from diptych.data.images import PictureFile
from diptych.errors import ImageError
from diptych.report.pictures import BLACK, HUES, Outline, contact_sheet, outlined, thumbnail

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


def sheet_of(path: Path, *args, **options) -> np.ndarray:
    contact_sheet(path, *args, **options)
    with Image.open(path) as image:
        assert image.format == "PNG"
        return np.asarray(image.convert("RGB")).astype(int)  # (height, width, 3)


def box(sheet: np.ndarray, colour) -> tuple[int, int, int, int]:
    """Left, top, right and bottom (exclusive) of all that has this colour, nearly."""
    rows, columns = np.nonzero(np.abs(sheet - colour).max(2) < 40)
    return int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1


def ink(sheet: np.ndarray) -> np.ndarray:
    """Where letters are: (height, width) of booleans."""
    return sheet.max(2) < 130


def decoded(uri: str) -> Image.Image:
    head, body = uri.split(",")
    image = Image.open(io.BytesIO(base64.b64decode(body, validate=True)))
    assert head == f"data:image/{image.format.lower()};base64"
    return image.convert("RGB")


def test_pictures_stand_in_rows_in_their_order(tmp_path):
    colours = [RED, GREEN, BLUE, (255, 255, 0), (0, 255, 255)]
    sheet = sheet_of(tmp_path / "sheet.png", [plain(c) for c in colours], list("abcde"), side=60, columns=2)
    boxes = [box(sheet, colour) for colour in colours]
    assert {(right - left, bottom - top) for left, top, right, bottom in boxes} == {(60, 60)}
    lefts, tops = [b[0] for b in boxes], [b[1] for b in boxes]
    assert lefts[0] == lefts[2] == lefts[4]
    assert lefts[1] == lefts[3] > boxes[0][2]
    assert tops[0] == tops[1] and tops[2] == tops[3]
    assert boxes[0][3] < tops[2] and boxes[2][3] < tops[4]
    assert sheet.shape[1] - boxes[1][2] == lefts[0]  # the same margin on both sides
    assert [path.name for path in tmp_path.iterdir()] == ["sheet.png"]


def test_fewer_pictures_than_columns_make_a_narrow_sheet(tmp_path):
    one = sheet_of(tmp_path / "one.png", [plain(RED)], ["a"])
    five = sheet_of(tmp_path / "five.png", [plain(RED)] * 5, ["a"] * 5)
    seven = sheet_of(tmp_path / "seven.png", [plain(RED)] * 7, ["a"] * 7)
    assert one.shape[1] < five.shape[1] == seven.shape[1]
    assert one.shape[0] == five.shape[0] < seven.shape[0] - 160
    assert sheet_of(tmp_path / "none.png", [], []).size


@pytest.mark.parametrize(("width", "height"), [(200, 100), (50, 100), (20, 10), (1, 3000)])
def test_a_picture_keeps_its_shape_and_stands_in_the_middle(tmp_path, width, height):
    sheet = sheet_of(tmp_path / "sheet.png", [plain(RED, width, height)], [""], side=80)
    whole = sheet_of(tmp_path / "whole.png", [plain(RED)], [""], side=80)
    left, top, right, bottom = box(sheet, RED)
    outer_left, outer_top, outer_right, outer_bottom = box(whole, RED)
    assert max(right - left, bottom - top) == 80
    assert right - left == max(1, round(80 * min(1, width / height)))
    assert bottom - top == max(1, round(80 * min(1, height / width)))
    assert abs((left - outer_left) - (outer_right - right)) <= 1
    assert abs((top - outer_top) - (outer_bottom - bottom)) <= 1
    paper, tile = sheet[0, 0], sheet[outer_top, outer_left]
    assert (paper != tile).any() or (width, height) == (80, 80)
    assert tile.max() - tile.min() < 12  # neutral


@pytest.mark.parametrize("caption", ["a red square " * 40, "red" * 4000, "two\nlines " * 9, "日本 " * 90])
def test_a_long_caption_ends_within_its_tile(tmp_path, caption):
    pictures = [plain(RED), plain(GREEN)]
    sheet = sheet_of(tmp_path / "sheet.png", pictures, [caption, ""], side=90)
    left, _, right, bottom = box(sheet, RED)
    letters = ink(sheet[bottom:])
    columns = np.flatnonzero(letters.any(0))
    assert left <= columns.min()
    assert right - 15 < columns.max() + 1 <= right
    short = sheet_of(tmp_path / "short.png", pictures, ["red", ""], side=90)
    assert short.shape == sheet.shape
    assert 0 < ink(short[bottom:]).sum() < letters.sum()


def test_a_title_wraps_and_is_cut_after_some_lines(tmp_path):
    def titled(title):
        sheet = sheet_of(tmp_path / "sheet.png", [plain(RED)] * 2, ["", ""], side=90, title=title)
        left, top, right, _ = box(sheet, RED)
        columns = np.flatnonzero(ink(sheet[:top]).any(0))
        if title:
            assert left <= columns.min()
            assert columns.max() < right
        else:
            assert not len(columns)
        return sheet.shape[0]

    heights = [titled(title) for title in ("", "two dogs", "two dogs on a beach " * 2, "dogs " * 500, "d" * 500)]
    assert heights[0] < heights[1] < heights[2] <= heights[3]
    assert heights[3] - heights[1] < 60
    assert heights[4] == heights[1]


def test_an_unreadable_picture_is_a_grey_tile_that_says_so(tmp_path):
    sheet = sheet_of(tmp_path / "sheet.png", [plain(RED), Drawn(None), plain(BLUE)], ["a", "b", "c"], side=120)
    red, blue = box(sheet, RED), box(sheet, BLUE)
    tile = sheet[red[1] : red[3], red[2] + 14 : blue[0] - 14]
    assert tile.shape[:2] == (120, 120)
    assert (tile.max(2) - tile.min(2)).max() < 14
    letters = tile.max(2) < 180
    rows, columns = np.nonzero(letters)
    assert len(rows) > 30
    assert abs(columns.mean() - 60) < 4
    assert abs(rows.mean() - 60) < 4
    assert not letters[[0, -1]].any() and not letters[:, [0, -1]].any()


def test_a_caption_a_picture_or_nothing_is_written(tmp_path):
    with pytest.raises(ValueError, match="zip"):
        contact_sheet(tmp_path / "sheet.png", [plain(RED)] * 2, ["only one"])
    assert not list(tmp_path.iterdir())


@settings(max_examples=25)
@given(st.text(st.characters(), max_size=40), st.text(max_size=40))
def test_any_text_can_be_written(tmp_path_factory, caption, title):
    path = tmp_path_factory.mktemp("sheet") / "sheet.png"
    contact_sheet(path, [plain(RED)], [caption], title=title, side=40)
    first = path.read_bytes()
    contact_sheet(path, [plain(RED)], [caption], title=title, side=40)
    assert path.read_bytes() == first


def noise(width=300, height=200) -> Image.Image:
    values = np.random.default_rng(0).normal(128, 40, (10, 15, 3)).clip(0, 255)
    return Image.fromarray(values.astype(np.uint8)).resize((width, height), Image.Resampling.BICUBIC)


def test_drawings_become_png_and_photos_jpeg():
    drawing, photo = thumbnail(plain(RED)), thumbnail(Drawn(noise()))
    assert drawing.startswith("data:image/png;base64,")
    assert photo.startswith("data:image/jpeg;base64,")
    assert decoded(drawing).getpixel((20, 20)) == RED
    assert len(drawing) < 300
    assert len(photo) < 12_000
    assert thumbnail(Drawn(noise())) == photo


@pytest.mark.parametrize(
    ("size", "expected"), [((300, 200), (128, 85)), ((200, 400), (64, 128)), ((30, 20), (30, 20)), ((1, 999), (1, 128))]
)
def test_a_thumbnail_fits_its_square_and_is_never_enlarged(size, expected):
    assert decoded(thumbnail(plain(GREEN, *size))).size == expected
    assert max(decoded(thumbnail(plain(GREEN, *size), side=16)).size) == 16


def test_a_thumbnail_of_a_file_looks_like_the_file(tmp_path):
    noise(1200, 900).save(tmp_path / "photo.jpg", quality=90)
    small = decoded(thumbnail(PictureFile(tmp_path / "photo.jpg")))
    assert small.size == (128, 96)
    expected = noise(1200, 900).resize((128, 96), Image.Resampling.LANCZOS)
    assert np.abs(np.asarray(small, float) - np.asarray(expected, float)).mean() < 6


def test_a_thumbnail_of_something_unreadable_is_a_grey_tile(tmp_path):
    (tmp_path / "empty.jpg").touch()
    tile = np.asarray(decoded(thumbnail(PictureFile(tmp_path / "empty.jpg"), side=64))).astype(int)
    assert tile.shape == (64, 64, 3)
    assert (tile.max(2) - tile.min(2)).max() < 14
    assert (tile.max(2) < 180).sum() > 10


AMBER = (255, 176, 0)


def coloured(picture: Image.Image, colour: str) -> tuple[int, int, int, int]:
    """The box around all pixels of a colour: left, top, right, bottom."""
    rows, columns = np.nonzero((np.asarray(picture) == ImageColor.getrgb(colour)).all(2))
    return columns.min(), rows.min(), columns.max() + 1, rows.max() + 1


def test_boxes_are_drawn_where_they_are_and_a_small_photo_is_enlarged():
    drawn = outlined(Image.new("RGB", (320, 160), "white"), [Outline((80, 60, 160, 120), "", HUES[0])])
    assert drawn.size == (640, 320)
    left, _, right, bottom = coloured(drawn, HUES[0])  # above it stands the label
    assert np.abs(np.array([left, right, bottom]) - (160, 320, 240)).max() <= 2
    assert drawn.getpixel((240, 180)) == (255, 255, 255)  # the inside stays as it is
    assert drawn.getpixel((240, 122)) == AMBER
    large = Image.new("RGB", (1300, 900), "white")
    assert outlined(large, []).size == large.size
    assert (np.asarray(large) == 255).all()  # what was given is not drawn on
    outlined(large, [Outline((0, 0, 1300, 900), "all", HUES[1])])
    assert (np.asarray(large) == 255).all()


sides = st.integers(1, 900)
shares = st.lists(st.floats(0, 1), min_size=4, max_size=4)


@settings(max_examples=25)
@given(sides, sides, st.lists(st.tuples(shares, st.text(max_size=60)), max_size=5))
def test_any_box_and_label_can_be_drawn(width, height, wanted):
    outlines = [
        Outline((a * width, b * height, c * width, d * height), label, HUES[row])
        for row, ((a, b, c, d), label) in enumerate(wanted)
    ]
    assert max(outlined(Image.new("RGB", (width, height)), outlines).size) == max(640, width, height)


@pytest.mark.parametrize("corner", ["top left", "top right", "bottom left", "bottom right"])
def test_a_label_lies_inside_the_picture(corner):
    top, left = (0 if "top" in corner else 630), (0 if "left" in corner else 630)
    photo = Image.new("RGB", (640, 640), "white")
    drawn = outlined(photo, [Outline((left, top, left + 10, top + 10), "a label of some length", HUES[0])])
    box = coloured(drawn, HUES[0])
    assert box[2] - box[0] > 100  # all of it: none was cut off at the edge
    assert 20 < box[3] - box[1] < 60
    with_words = np.asarray(drawn)[box[1] : box[3], box[0] : box[2]]
    assert (with_words.max(2) < 60).sum() > 100  # dark letters on amber


def test_labels_of_the_same_place_do_not_cover_each_other():
    photo = Image.new("RGB", (640, 480), "white")
    drawn = outlined(photo, [Outline((100, 200, 300, 300), "the same words", colour) for colour in HUES[:5]])
    label = outlined(photo, [Outline((100, 200, 300, 300), "the same words", HUES[0])])
    size = (np.asarray(label)[:195] == ImageColor.getrgb(HUES[0])).all(2).sum()
    for colour in HUES[:4]:  # the box of the last lies over the others, but no label does
        own = (np.asarray(drawn) == ImageColor.getrgb(colour)).all(2).sum()
        assert own > 0.7 * size


def test_a_long_label_is_cut_and_letters_can_be_read():
    photo = Image.new("RGB", (640, 480), "white")
    box = coloured(outlined(photo, [Outline((10, 100, 50, 200), "many words " * 30, HUES[0])]), HUES[0])
    assert box[2] <= 640
    for colour in HUES:
        assert (light(colour) + 0.05) / (light(BLACK) + 0.05) > 4.5


def light(colour: str) -> float:
    """The relative luminance by which contrast is told."""
    parts = [value / 255 for value in ImageColor.getrgb(colour)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
