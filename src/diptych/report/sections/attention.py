"""What each word of a caption attends to, drawn on the photo, for models whose words and regions attend to others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import Tensor
from torch.nn.functional import cosine_similarity

from diptych.data.corpus import Corpus, Floats
from diptych.features.region_boxes import region_boxes
from diptych.models.encodings import Encoded
from diptych.models.matcher import Matcher
from diptych.report.pictures import data_uri, small_picture
from diptych.report.run_page import AttendedPhoto, AttentionSection, Word
from diptych.text.tokenisers.treebank import tokenise

SIDE = 128  # pixels of a photo's longer side
WORDS = 30  # of a caption that are shown

_BLUR = 0.045  # of the side: cells of a grid flow into each other
_NIGHT, _DARKNESS = "#16181d", 0.82

_HOW = {
    "t2i": "Each word weighs the regions of the photo. The more a place weighs the brighter it is, and brightest is "
    "what weighs most for this word. Beside the word stands its cosine with all that it looks at.",
    "i2t": "Each region of the photo weighs the words. The more a word weighs for a place the brighter that is, and "
    "brightest is where it weighs most.",
}


def attention_section(encoded: Encoded, rows: Sequence[int]) -> AttentionSection | None:
    """Some photos, each with the own caption that scores highest; none where the model has no attention to show."""
    matcher, corpus = encoded.matcher(), encoded.corpus
    if corpus is None or matcher.attention_direction is None:
        return None
    if corpus.pictures is None:
        return AttentionSection("The corpus has stored features alone: there is no photo to show what words look at.")
    part = corpus.take(np.array(rows), np.arange(0))
    boxes = region_boxes(part, matcher.image_input, matcher.pretrained)
    if boxes is None or not boxes.any():
        return AttentionSection("The corpus does not say where its regions lie: what words look at cannot be shown.")
    photos = [_photo(encoded, corpus, matcher, row, own) for row, own in zip(rows, boxes, strict=True) if own.any()]
    return AttentionSection(_HOW[matcher.attention_direction], photos)


@torch.no_grad()
def _photo(encoded: Encoded, corpus: Corpus, matcher: Matcher, row: int, boxes: Floats) -> AttendedPhoto:
    assert corpus.pictures is not None
    image = encoded.images[row]
    text = _best_caption(encoded, matcher, row)
    weights, cosines = word_attention(matcher, image, encoded.texts[text])
    small = small_picture(corpus.pictures[row], SIDE)
    places = enumerate(tokenise(corpus.texts[text])[:WORDS], start=1)  # <start> stands before the first word
    words = [
        Word(word, data_uri(lit(small, boxes, weights[place])), None if cosines is None else float(cosines[place]))
        for place, word in places
    ]
    return AttendedPhoto(corpus.image_ids[row], data_uri(small), words)


def _best_caption(encoded: Encoded, matcher: Matcher, row: int) -> int:
    own = np.flatnonzero(encoded.text_groups == encoded.image_groups[row])
    scores = matcher.score(encoded.images[row : row + 1], encoded.texts[torch.from_numpy(own)])[0]
    return int(own[int(scores.argmax())])


def word_attention(matcher: Matcher, image: Tensor, text: Tensor) -> tuple[Floats, Floats | None]:
    """How much each region of an encoded image weighs for each word of an encoded text, (words, regions).

    Beside it the cosine of each word with what it attends to, (words,); where regions attend to words it has none.
    """
    weights = matcher.attention(image, text)
    if matcher.attention_direction != "t2i":
        return weights.cpu().numpy(), None
    return weights.cpu().numpy(), cosine_similarity(weights @ image, text, dim=1).cpu().numpy()


def lit(photo: Image.Image, boxes: Floats, weights: Floats) -> Image.Image:
    """The photo in the dark, lit where regions weigh much: a place is as bright as the mean of the regions over it.

    Boxes are relative to the photo: left, top, right, bottom. The mean, so that a place is not bright for lying in many
    regions; what no region covers stays dark.
    """
    width, height = photo.size
    total, count = np.zeros((2, height, width))
    for (left, top, right, bottom), weight in zip(boxes.tolist(), weights.tolist(), strict=True):
        place = (slice(round(top * height), round(bottom * height)), slice(round(left * width), round(right * width)))
        total[place] += weight
        count[place] += 1
    mean = total / np.maximum(count, 1)
    light = Image.fromarray((255 * mean / max(mean.max(), np.finfo(np.float32).tiny)).astype(np.uint8))
    light = light.filter(ImageFilter.GaussianBlur(_BLUR * max(photo.size)))
    night = Image.blend(photo, Image.new("RGB", photo.size, _NIGHT), _DARKNESS)
    return Image.composite(photo, night, light)
