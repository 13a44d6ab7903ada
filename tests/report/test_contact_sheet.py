from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from diptych.errors import ImageError
from diptych.report.contact_sheet import contact_sheet

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


def test_pictures_are_arranged_in_rows_in_order(tmp_path):
    colours = [RED, GREEN, BLUE, (255, 255, 0), (0, 255, 255)]
    sheet = sheet_of(tmp_path / "sheet.png", [plain(c) for c in colours], list("abcde"), side=60, columns=2)
    boxes = [box(sheet, colour) for colour in colours]
    assert {(right - left, bottom - top) for left, top, right, bottom in boxes} == {(60, 60)}
    lefts, tops = [b[0] for b in boxes], [b[1] for b in boxes]
    assert lefts[0] == lefts[2] == lefts[4]
    assert lefts[1] == lefts[3] > boxes[0][2]
    assert tops[0] == tops[1]
    assert tops[2] == tops[3]
    assert boxes[0][3] < tops[2]
    assert boxes[2][3] < tops[4]
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
def test_a_picture_keeps_its_aspect_ratio_and_is_centred(tmp_path, width, height):
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
    assert not letters[[0, -1]].any()
    assert not letters[:, [0, -1]].any()


def test_pictures_without_captions_are_refused_and_nothing_is_written(tmp_path):
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
