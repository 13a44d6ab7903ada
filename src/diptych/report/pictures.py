"""Pictures for people to look at: many on one sheet, or one small enough to live inside a page."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from diptych.data.corpus import Corpus, Picture
from diptych.data.images import PictureFile, decode
from diptych.errors import ImageError
from diptych.files import atomic_write

_PAPER, _TILE, _INK, _FAINT = "#fbfaf8", "#ebe9e4", "#23211e", "#8a867e"
_MARGIN, _GAP = 20, 14
_CAPTION_SIZE, _TITLE_SIZE, _LEADING = 13, 17, 1.4
_TITLE_LINES = 3
_JPEG_QUALITY = 85

# Told apart on photos and from each other, also by most who see fewer colours; black letters can be read on each.
HUES = ("#ffb000", "#3d8bff", "#dc267f", "#00b37a", "#fe6100", "#8f5bff", "#00b8d9", "#b5d100")
BLACK = "#000000"

_SMALLEST = 640  # pixels of the longer side of a picture with boxes: labels on a smaller one could not be read

_Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


def contact_sheet(
    path: Path,
    pictures: Sequence[Picture],
    captions: Sequence[str],
    *,
    title: str = "",
    side: int = 160,
    columns: int = 5,
) -> None:
    """Write one PNG with the pictures in rows, whole and undistorted, each above its caption."""
    columns = max(1, min(columns, len(pictures)))
    rows = -(-len(pictures) // columns)
    width = 2 * _MARGIN + columns * (side + _GAP) - _GAP
    title_font, font = ImageFont.load_default(_TITLE_SIZE), ImageFont.load_default(_CAPTION_SIZE)
    title_height, caption_height = round(_TITLE_SIZE * _LEADING), round(_CAPTION_SIZE * _LEADING) + 6
    headline = _wrapped(title, title_font, width - 2 * _MARGIN)
    top = _MARGIN + len(headline) * title_height + (_GAP if headline else 0)
    step = side + caption_height + _GAP

    sheet = Image.new("RGB", (width, top + rows * step - (_GAP if rows else 0) + _MARGIN), _PAPER)
    pen = ImageDraw.Draw(sheet)
    for i, line in enumerate(headline):
        pen.text((_MARGIN, _MARGIN + i * title_height), line, _INK, title_font)
    for i, (picture, caption) in enumerate(zip(pictures, captions, strict=True)):
        left, upper = _MARGIN + i % columns * (side + _GAP), top + i // columns * step
        sheet.paste(_tile(picture, side), (left, upper))
        pen.text((left, upper + side + 6), _fitted(caption, font, side), _INK, font)
    with atomic_write(path) as temporary:
        sheet.save(temporary, format="PNG")


@dataclass(frozen=True)
class Outline:
    """A box to draw on a photo, left, top, right, bottom in its pixels, with what stands beside it and its colour."""

    box: tuple[float, float, float, float]
    label: str
    colour: str


def outlined(photo: Image.Image, outlines: Sequence[Outline]) -> Image.Image:
    """The photo with boxes drawn and labelled; a small photo is enlarged, and every label lies inside."""
    scale = max(1.0, _SMALLEST / max(photo.size))
    sheet = _scaled(photo, scale).copy()
    pen = ImageDraw.Draw(sheet)
    line = max(3, max(sheet.size) // 240)
    letters = max(15, max(sheet.size) // 44)
    font = ImageFont.load_default(letters)
    boxes = [_fitting([edge * scale for edge in outline.box], sheet.size) for outline in outlines]
    for outline, box in zip(outlines, boxes, strict=True):
        pen.rectangle(box, outline=BLACK, width=line + 2)  # a dark edge, so that no colour is lost on its like
        pen.rectangle((box[0] + 1, box[1] + 1, box[2] - 1, box[3] - 1), outline=outline.colour, width=line)
    taken: list[tuple[int, int, int, int]] = []
    for outline, box in zip(outlines, boxes, strict=True):
        text = _fitted(outline.label, font, sheet.width - 12)
        size = (round(font.getlength(text)) + 12, round(letters * _LEADING))
        place = _free_place(box, size, sheet.size, taken)
        taken.append(place)
        pen.rectangle(place, fill=outline.colour)
        pen.text((place[0] + 6, (place[1] + place[3]) / 2), text, BLACK, font, anchor="lm")
    return sheet


def thumbnail(picture: Picture, side: int = 128) -> str:
    """The picture within a square of this side as a data: URI, a grey tile where it cannot be decoded."""
    return data_uri(small_picture(picture, side))


def small_picture(picture: Picture, side: int) -> Image.Image:
    """The picture within a square of this side, a grey tile where it cannot be decoded."""
    try:
        image = _decoded(picture, side)
        return _scaled(image, min(1.0, side / max(image.size)))
    except ImageError:
        return _unreadable(side)


def data_uri(image: Image.Image) -> str:
    """An image as a data: URI that a page can hold."""
    # Drawings are smaller and sharper as PNG, photos many times smaller as JPEG.
    encoded = {"png": io.BytesIO(), "jpeg": io.BytesIO()}
    image.save(encoded["png"], format="PNG", optimize=True)
    image.save(encoded["jpeg"], format="JPEG", quality=_JPEG_QUALITY, optimize=True)
    kind = min(encoded, key=lambda name: encoded[name].tell())
    return f"data:image/{kind};base64,{base64.b64encode(encoded[kind].getvalue()).decode('ascii')}"


def image_thumbnail(corpus: Corpus, row: int) -> str | None:
    """The picture of a corpus' image as a data: URI, or None where the corpus has stored features alone."""
    return None if corpus.pictures is None else thumbnail(corpus.pictures[row])


def _fitting(box: Sequence[float], size: tuple[int, int]) -> tuple[int, int, int, int]:
    """A box in whole pixels of a sheet, large enough to be drawn."""
    left, top = (min(max(0, round(edge)), length - 4) for edge, length in zip(box[:2], size, strict=True))
    right, bottom = (min(round(edge), length) - 1 for edge, length in zip(box[2:], size, strict=True))
    return left, top, max(right, left + 3), max(bottom, top + 3)


def _free_place(
    box: tuple[int, int, int, int],
    size: tuple[int, int],
    sheet: tuple[int, int],
    taken: Sequence[tuple[int, int, int, int]],
) -> tuple[int, int, int, int]:
    """Where a label of this size goes: above its box, in it, below it, or the nearest height that is free of others."""
    left = max(0, min(box[0], sheet[0] - size[0]))
    lowest = max(0, sheet[1] - size[1])

    def at(top: int) -> tuple[int, int, int, int]:
        return left, top, left + size[0] - 1, top + size[1] - 1

    def free(place: tuple[int, int, int, int]) -> bool:
        return all(
            place[2] < other[0] or other[2] < place[0] or place[3] < other[1] or other[3] < place[1] for other in taken
        )

    wanted = [box[1] - size[1], box[1], box[3] + 1, box[3] - size[1]]
    others = sorted(range(0, lowest + 1, max(1, size[1] // 2)), key=lambda top: abs(top - box[1]))
    tops = [top for top in [*wanted, *others] if 0 <= top <= lowest] or [0]
    return next((at(top) for top in tops if free(at(top))), at(tops[0]))


def _decoded(picture: Picture, side: int) -> Image.Image:
    return decode(picture.path, side) if isinstance(picture, PictureFile) else picture.load()


def _scaled(image: Image.Image, scale: float) -> Image.Image:
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    return image if size == image.size else image.resize(size, Image.Resampling.LANCZOS)


def _tile(picture: Picture, side: int) -> Image.Image:
    """The whole picture as large as it fits, in the middle of a square."""
    try:
        image = _decoded(picture, side)
    except ImageError:
        return _unreadable(side)
    image = _scaled(image, side / max(image.size))
    tile = Image.new("RGB", (side, side), _TILE)
    tile.paste(image, ((side - image.width) // 2, (side - image.height) // 2))
    return tile


def _unreadable(side: int) -> Image.Image:
    tile = Image.new("RGB", (side, side), _TILE)
    font = ImageFont.load_default(max(8, min(_CAPTION_SIZE, side // 7)))
    ImageDraw.Draw(tile).text((side / 2, side / 2), "unreadable", _FAINT, font, anchor="mm")
    return tile


def _wrapped(text: str, font: _Font, width: int) -> list[str]:
    """The text in a few lines of this width in pixels; what does not fit the last one is cut off."""
    words, lines = text.split(), list[str]()
    while words and len(lines) < _TITLE_LINES - 1:
        count = 1
        while count < len(words) and font.getlength(" ".join(words[: count + 1])) <= width:
            count += 1
        lines.append(_fitted(" ".join(words[:count]), font, width))
        words = words[count:]
    return [*lines, _fitted(" ".join(words), font, width)] if words else lines


def _fitted(text: str, font: _Font, width: int) -> str:
    """The text on one line, cut with an ellipsis where it is wider than this many pixels."""
    text = " ".join(text.split())[: 4 * width]  # beyond that no character could be seen
    if font.getlength(text) <= width:
        return text
    keep = 0
    while keep < len(text) and font.getlength(f"{text[: keep + 1]}…") <= width:
        keep += 1
    return f"{text[:keep].rstrip()}…"
