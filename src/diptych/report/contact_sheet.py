"""Contact sheets: many pictures with captions on one PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from diptych.data.corpus import Picture
from diptych.data.images import load_for_side
from diptych.errors import ImageError
from diptych.files import atomic_write
from diptych.report.thumbnails import TILE_COLOUR, scaled, unreadable_tile

_PAPER, _INK = "#fbfaf8", "#23211e"
_MARGIN, _GAP = 20, 14
_CAPTION_SIZE, _TITLE_SIZE, _LEADING = 13, 17, 1.4
_TITLE_LINES = 3

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


def contact_sheet(
    path: Path,
    pictures: Sequence[Picture],
    captions: Sequence[str],
    *,
    title: str = "",
    side: int = 160,
    columns: int = 5,
) -> None:
    """Write one PNG with the pictures in rows, uncropped, each above its caption."""
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
        pen.text((left, upper + side + 6), truncated(caption, font, side), _INK, font)
    with atomic_write(path) as temporary:
        sheet.save(temporary, format="PNG")


def _tile(picture: Picture, side: int) -> Image.Image:
    """The uncropped picture, scaled to fit a square and centred in it."""
    try:
        image = load_for_side(picture, side)
    except ImageError:
        return unreadable_tile(side)
    image = scaled(image, side / max(image.size))
    tile = Image.new("RGB", (side, side), TILE_COLOUR)
    tile.paste(image, ((side - image.width) // 2, (side - image.height) // 2))
    return tile


def _wrapped(text: str, font: Font, width: int) -> list[str]:
    """The text in at most three lines of this width in pixels; the last one is truncated."""
    words, lines = text.split(), list[str]()
    while words and len(lines) < _TITLE_LINES - 1:
        count = 1
        while count < len(words) and font.getlength(" ".join(words[: count + 1])) <= width:
            count += 1
        lines.append(truncated(" ".join(words[:count]), font, width))
        words = words[count:]
    return [*lines, truncated(" ".join(words), font, width)] if words else lines


def truncated(text: str, font: Font, width: int) -> str:
    """The text on one line, truncated with an ellipsis if it is wider than this many pixels."""
    text = " ".join(text.split())[: 4 * width]  # no more characters could fit; measuring long texts is slow
    if font.getlength(text) <= width:
        return text
    keep = 0
    while keep < len(text) and font.getlength(f"{text[: keep + 1]}…") <= width:
        keep += 1
    return f"{text[:keep].rstrip()}…"
