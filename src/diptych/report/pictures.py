"""Pictures for people to look at: many on one sheet, or one small enough to live inside a page."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from diptych.data.corpus import Corpus, Picture
from diptych.data.images import PictureFile, decode
from diptych.errors import ImageError
from diptych.files import replacing

_PAPER, _TILE, _INK, _FAINT = "#fbfaf8", "#ebe9e4", "#23211e", "#8a867e"
_MARGIN, _GAP = 20, 14
_CAPTION_SIZE, _TITLE_SIZE, _LEADING = 13, 17, 1.4
_TITLE_LINES = 3
_JPEG_QUALITY = 85

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
    with replacing(path) as temporary:
        sheet.save(temporary, format="PNG")


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
