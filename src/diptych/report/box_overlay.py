"""Photos with labelled boxes drawn on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFont

from diptych.report.contact_sheet import truncated
from diptych.report.thumbnails import scaled

# Distinguishable on photos and from each other, also with most colour vision deficiencies; black text is readable on
# each of them.
BOX_COLOURS = ("#ffb000", "#3d8bff", "#dc267f", "#00b37a", "#fe6100", "#8f5bff", "#00b8d9", "#b5d100")
BLACK = "#000000"

_SMALLEST_SIDE = 640  # pixels of the longer side; labels on a smaller picture would be unreadable
_LEADING = 1.4

PixelBox = tuple[int, int, int, int]  # left, top, right, bottom


@dataclass(frozen=True)
class LabelledBox:
    """A box to draw on a photo: left, top, right, bottom in its pixels, a label and a colour."""

    box: tuple[float, float, float, float]
    label: str
    colour: str


def draw_boxes(photo: Image.Image, labelled: Sequence[LabelledBox]) -> Image.Image:
    """A copy of the photo with labelled boxes; small photos are enlarged, and labels stay within the picture."""
    scale = max(1.0, _SMALLEST_SIDE / max(photo.size))
    canvas = scaled(photo, scale).copy()
    pen = ImageDraw.Draw(canvas)
    line_width = max(3, max(canvas.size) // 240)
    font_size = max(15, max(canvas.size) // 44)
    font = ImageFont.load_default(font_size)
    boxes = [_whole_pixels([edge * scale for edge in each.box], canvas.size) for each in labelled]
    for each, box in zip(labelled, boxes, strict=True):
        pen.rectangle(box, outline=BLACK, width=line_width + 2)  # visible where the photo has the box's colour
        pen.rectangle((box[0] + 1, box[1] + 1, box[2] - 1, box[3] - 1), outline=each.colour, width=line_width)
    taken: list[PixelBox] = []
    for each, box in zip(labelled, boxes, strict=True):
        text = truncated(each.label, font, canvas.width - 12)
        size = (round(font.getlength(text)) + 12, round(font_size * _LEADING))
        label = _free_position(box, size, canvas.size, taken)
        taken.append(label)
        pen.rectangle(label, fill=each.colour)
        pen.text((label[0] + 6, (label[1] + label[3]) / 2), text, BLACK, font, anchor="lm")
    return canvas


def _whole_pixels(box: Sequence[float], size: tuple[int, int]) -> PixelBox:
    """A box in whole pixels of a canvas of this size, large enough to be drawn."""
    left, top = (min(max(0, round(edge)), length - 4) for edge, length in zip(box[:2], size, strict=True))
    right, bottom = (min(round(edge), length) - 1 for edge, length in zip(box[2:], size, strict=True))
    return left, top, max(right, left + 3), max(bottom, top + 3)


def _free_position(
    box: PixelBox, size: tuple[int, int], canvas: tuple[int, int], taken: Sequence[PixelBox]
) -> PixelBox:
    """Where to put a label: above its box, inside, below, or at the nearest height without other labels."""
    left = max(0, min(box[0], canvas[0] - size[0]))
    lowest = max(0, canvas[1] - size[1])

    def label_at(top: int) -> PixelBox:
        return left, top, left + size[0] - 1, top + size[1] - 1

    def is_free(label: PixelBox) -> bool:
        return all(
            label[2] < other[0] or other[2] < label[0] or label[3] < other[1] or other[3] < label[1] for other in taken
        )

    preferred = [box[1] - size[1], box[1], box[3] + 1, box[3] - size[1]]
    others = sorted(range(0, lowest + 1, max(1, size[1] // 2)), key=lambda top: abs(top - box[1]))
    tops = [top for top in [*preferred, *others] if 0 <= top <= lowest] or [0]
    return next((label_at(top) for top in tops if is_free(label_at(top))), label_at(tops[0]))
