"""What each word of a caption attends to, drawn on the photo, for models in which words and regions attend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import Tensor
from torch.nn.functional import cosine_similarity

from diptych.data.corpus import Corpus, Floats
from diptych.features.region_boxes import region_boxes
from diptych.models.encoded_corpus import EncodedCorpus
from diptych.models.matcher import Matcher
from diptych.report.thumbnails import data_uri, thumbnail
from diptych.text.tokenisers.tokeniser import Tokeniser

SIDE = 128  # pixels of a photo's longer side
WORDS = 30  # words of a caption that are shown

_BLUR = 0.045  # relative to the longer side: smooths the borders between grid cells
_SHADE, _SHADE_OPACITY = "#16181d", 0.82

_NOTES = {
    "t2i": "Each word attends to the regions of the photo. The brighter an area, the more weight it has for the word; "
    "the brightest area has the largest weight. The number beside the word is the cosine of the word and the attended "
    "regions.",
    "i2t": "Each region of the photo attends to the words. The brighter an area, the more weight it gives to the word; "
    "the brightest area gives the largest weight.",
}


@dataclass(frozen=True)
class AttendedWord:
    """A word of a caption, the photo lit by its attention (a data: URI), and its cosine with the attended regions.

    The cosine is None for models whose regions attend to words.
    """

    text: str
    picture: str
    cosine: float | None = None


@dataclass(frozen=True)
class AttendedPhoto:
    """A photo, by its id and a data: URI, with the words of one of its captions."""

    name: str
    picture: str
    words: Sequence[AttendedWord]


@dataclass(frozen=True)
class AttentionSection:
    """Photos with the attention of each word; the note explains them, or why there are none."""

    note: str
    photos: Sequence[AttendedPhoto] = ()


def attention_section(encoded: EncodedCorpus, rows: Sequence[int], tokeniser: Tokeniser) -> AttentionSection | None:
    """These photos, each with its caption of the highest score; None if the model has no attention."""
    matcher, corpus = encoded.matcher(), encoded.corpus
    if corpus is None or matcher.attention_direction is None:
        return None
    if corpus.pictures is None:
        return AttentionSection("Not available: the corpus has stored features, but no photos.")
    part = corpus.take(np.array(rows), np.arange(0))
    boxes = region_boxes(part, matcher.image_input, matcher.pretrained)
    if boxes is None or not boxes.any():
        return AttentionSection("Not available: the corpus has no boxes for its regions.")
    photos = [
        _photo(encoded, corpus, row, row_boxes, tokeniser)
        for row, row_boxes in zip(rows, boxes, strict=True)
        if row_boxes.any()
    ]
    return AttentionSection(_NOTES[matcher.attention_direction], photos)


@torch.no_grad()
def _photo(encoded: EncodedCorpus, corpus: Corpus, row: int, boxes: Floats, tokeniser: Tokeniser) -> AttendedPhoto:
    assert corpus.pictures is not None
    matcher = encoded.matcher()
    image = encoded.images[row]
    text = _best_caption(encoded, matcher, row)
    weights, cosines = word_attention(matcher, image, encoded.texts[text])
    photo = thumbnail(corpus.pictures[row], SIDE)
    positions = enumerate(tokeniser.tokens(corpus.texts[text])[1:-1][:WORDS], start=1)  # without <start> and <end>
    words = [
        AttendedWord(
            word,
            data_uri(illuminate(photo, boxes, weights[position])),
            None if cosines is None else float(cosines[position]),
        )
        for position, word in positions
    ]
    return AttendedPhoto(corpus.image_ids[row], data_uri(photo), words)


def _best_caption(encoded: EncodedCorpus, matcher: Matcher, row: int) -> int:
    captions = np.flatnonzero(encoded.text_groups == encoded.image_groups[row])
    scores = matcher.score(encoded.images[row : row + 1], encoded.texts[torch.from_numpy(captions)])[0]
    return int(captions[int(scores.argmax())])


def word_attention(matcher: Matcher, image: Tensor, text: Tensor) -> tuple[Floats, Floats | None]:
    """The weight of each region of an encoded image for each word of an encoded text, (words, regions).

    The second array is the cosine of each word with what it attends to, (words,), or None if regions attend to words.
    """
    weights = matcher.attention(image, text)
    if matcher.attention_direction != "t2i":
        return weights.cpu().numpy(), None
    return weights.cpu().numpy(), cosine_similarity(weights @ image, text, dim=1).cpu().numpy()


def illuminate(photo: Image.Image, boxes: Floats, weights: Floats) -> Image.Image:
    """The darkened photo, lit in proportion to the mean weight of the regions that cover a pixel.

    Boxes are left, top, right, bottom, relative to the photo. The mean is used instead of the sum so that a pixel does
    not become bright merely because many regions cover it; a pixel that no region covers stays dark.
    """
    width, height = photo.size
    total, count = np.zeros((2, height, width))
    for (left, top, right, bottom), weight in zip(boxes.tolist(), weights.tolist(), strict=True):
        area = (slice(round(top * height), round(bottom * height)), slice(round(left * width), round(right * width)))
        total[area] += weight
        count[area] += 1
    mean = total / np.maximum(count, 1)
    light = Image.fromarray((255 * mean / max(mean.max(), np.finfo(np.float32).tiny)).astype(np.uint8))
    light = light.filter(ImageFilter.GaussianBlur(_BLUR * max(photo.size)))
    dark = Image.blend(photo, Image.new("RGB", photo.size, _SHADE), _SHADE_OPACITY)
    return Image.composite(photo, dark, light)
