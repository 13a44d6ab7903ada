"""Phrase localisation: the regions of a photo that match phrases best.

The regions of a photo are encoded once, and all phrases are scored with all regions in one product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from diptych.data.corpus import Floats, Integers, Picture
from diptych.errors import DataError, ImageError, RunError
from diptych.features.readers import image_reader
from diptych.models.encode import check_count
from diptych.models.engines.torch_engine import TorchEngine
from diptych.models.matcher import Matcher

Box = tuple[float, float, float, float]  # left, top, right, bottom


@dataclass(frozen=True)
class LocatedRegion:
    """A region found for a phrase, with its score; higher is better."""

    box: Box
    score: float

    def to_pixels(self, width: int, height: int) -> LocatedRegion:
        """The same region in pixels of a photo of this size, from coordinates relative to it; at least one pixel."""
        left, right = _to_pixels(self.box[0], self.box[2], width)
        top, bottom = _to_pixels(self.box[1], self.box[3], height)
        return LocatedRegion((left, top, right, bottom), self.score)


@torch.inference_mode()
def localise_phrases(
    engine: TorchEngine, boxes: Floats, regions: Floats, phrases: Sequence[str], top: int = 1
) -> list[list[LocatedRegion]]:
    """The `top` best regions of a photo for each phrase, best first, with boxes relative to the photo.

    `boxes` is (regions, 4) and `regions` (regions, size), as a reader of the model's image input returns them.
    """
    valid = valid_regions(boxes, regions)
    if not len(valid) or not len(phrases):
        return [[] for _ in phrases]
    values = torch.from_numpy(regions[valid]).to(engine.device)
    scores = engine.matcher.score(engine.matcher.encode_images(values), engine.text_tensor(phrases))
    best_scores, best_rows = scores.topk(min(top, len(valid)), dim=0)  # (top, phrases)
    corners = [(left, top, right, bottom) for left, top, right, bottom in boxes[valid].tolist()]
    return [
        [LocatedRegion(corners[row], score) for row, score in zip(rows, row_scores, strict=True)]
        for rows, row_scores in zip(best_rows.T.tolist(), best_scores.T.tolist(), strict=True)
    ]


def valid_regions(boxes: Floats, regions: Floats) -> Integers:
    """The rows of a photo's regions that are not padding: they have an area and a vector that is not all zeros.

    >>> valid_regions(np.array([[0, 0, 1, 1], [0, 0, 0, 0], [0, 0, 1, 0.5]]), np.array([[3, 1], [2, 2], [0, 0]]))
    array([0])
    """
    return np.flatnonzero((boxes[:, 2:] > boxes[:, :2]).all(1) & regions.any(1))


def localise_in_picture(
    engine: TorchEngine, picture: Picture, phrases: Sequence[str], top: int = 1
) -> list[list[LocatedRegion]]:
    """The `top` best regions of any picture for each phrase, best first, with boxes in pixels of the picture.

    The regions are proposed, pooled and encoded once for all phrases. The matcher must be one that localises.
    """
    check_count("top", top, 1)
    check_phrases(engine, phrases)
    reader = image_reader([picture], engine.matcher.image_input, engine.matcher.pretrained)
    values, readable = reader.read(np.array([0]))
    if not readable.all():
        raise ImageError(reader.skipped[0])
    assert reader.boxes is not None  # the model reads proposed regions
    if not len(valid_regions(reader.boxes[0], values[0])):
        name = getattr(picture, "path", "the photo")
        raise DataError(f"{name}: no region was proposed to look for phrases in; try a larger or clearer photo")
    width, height = picture.load().size
    found = localise_phrases(engine, reader.boxes[0], values[0], phrases, top)
    return [[region.to_pixels(width, height) for region in regions] for regions in found]


def check_can_localise(matcher: Matcher) -> None:
    """Raise a RunError if the model cannot score the proposed regions of a photo one by one."""
    if not matcher.localises or matcher.pretrained is None:
        raise RunError(
            "the model scores whole images, not each of their proposed regions; "
            "train a recipe for phrases, such as two-branch-phrases-small"
        )


def check_phrases(engine: TorchEngine, phrases: Sequence[str]) -> None:
    """Raise a DataError if a phrase is empty or has no word that the model knows."""
    for phrase, known in zip(phrases, engine.known_texts(phrases).tolist(), strict=True):
        if not phrase.strip():
            raise DataError("a phrase is empty; describe a thing, such as 'a red ball'")
        if not known:
            raise DataError(f"{phrase!r}: the run knows none of its words; use words of the training texts")


def _to_pixels(first: float, last: float, length: int) -> tuple[int, int]:
    """Both ends of a relative interval in pixels, within the picture and at least one pixel apart."""
    low = min(max(round(first * length), 0), length - 1)
    return low, min(max(round(last * length), low + 1), length)
