"""Thumbnails of a corpus' pictures, as images or as data: URIs that a page can contain."""

from __future__ import annotations

import base64
import io

from PIL import Image, ImageDraw, ImageFont

from diptych.data.corpus import Corpus, Picture
from diptych.data.images import load_for_side
from diptych.errors import ImageError

THUMBNAIL_SIDE = 128  # pixels of the longer side
TILE_COLOUR = "#ebe9e4"  # behind pictures that are not square, and instead of unreadable ones

_FAINT, _FONT_SIZE = "#8a867e", 13
_JPEG_QUALITY = 85


def corpus_thumbnail_uri(corpus: Corpus, row: int) -> str | None:
    """The thumbnail of an image of a corpus, or None if the corpus has stored features only."""
    return None if corpus.pictures is None else thumbnail_uri(corpus.pictures[row])


def thumbnail_uri(picture: Picture, side: int = THUMBNAIL_SIDE) -> str:
    """The thumbnail of a picture as a data: URI."""
    return data_uri(thumbnail(picture, side))


def thumbnail(picture: Picture, side: int) -> Image.Image:
    """The picture, shrunk to fit a square of this side; a grey tile if it cannot be decoded."""
    try:
        image = load_for_side(picture, side)
        return scaled(image, min(1.0, side / max(image.size)))
    except ImageError:
        return unreadable_tile(side)


def data_uri(image: Image.Image) -> str:
    """An image as a data: URI, in whichever of PNG and JPEG is smaller."""
    # Drawings are smaller and sharper as PNG, photos many times smaller as JPEG.
    encoded = {"png": io.BytesIO(), "jpeg": io.BytesIO()}
    image.save(encoded["png"], format="PNG", optimize=True)
    image.save(encoded["jpeg"], format="JPEG", quality=_JPEG_QUALITY, optimize=True)
    kind = min(encoded, key=lambda name: encoded[name].tell())
    return f"data:image/{kind};base64,{base64.b64encode(encoded[kind].getvalue()).decode('ascii')}"


def scaled(image: Image.Image, scale: float) -> Image.Image:
    """The image with both sides multiplied by `scale`, at least one pixel each."""
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    return image if size == image.size else image.resize(size, Image.Resampling.LANCZOS)


def unreadable_tile(side: int) -> Image.Image:
    """A grey square that says "unreadable", shown instead of a picture that cannot be decoded."""
    tile = Image.new("RGB", (side, side), TILE_COLOUR)
    font = ImageFont.load_default(max(8, min(_FONT_SIZE, side // 7)))
    ImageDraw.Draw(tile).text((side / 2, side / 2), "unreadable", _FAINT, font, anchor="mm")
    return tile
