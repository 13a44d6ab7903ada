"""Phrase localisation: from a model, photos and phrases to the regions that fit them best.

A photo's regions are encoded once and each distinct phrase once; all phrases of a photo are scored with all of its
regions in one product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from diptych.data.corpus import Corpus, Floats, Integers, Picture
from diptych.data.images import PictureFile
from diptych.data.open import open_corpus
from diptych.data.phrases import Mentions, find_mentions
from diptych.data.sampling.pairs import read_ahead
from diptych.errors import DataError, ImageError, RunError, ScoreError
from diptych.evaluation.localisation.phrase_metrics import MIN_OVERLAP, GroundingResult, correct_regions, phrase_ranks
from diptych.features.readers import InputReader, image_reader
from diptych.model import Model
from diptych.models.matcher import Matcher
from diptych.progress import ProgressCallback

PHOTOS_AT_ONCE = 16

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class LocatedRegion:
    """A region found for a phrase: left, top, right, bottom, and its score, higher is better."""

    box: Box
    score: float

    def within(self, width: int, height: int) -> LocatedRegion:
        """A place that is relative to a photo in the whole pixels of one of this size; it has at least one of them."""
        left, right = _pixels(self.box[0], self.box[2], width)
        top, bottom = _pixels(self.box[1], self.box[3], height)
        return LocatedRegion((left, top, right, bottom), self.score)


@torch.inference_mode()
def localise_phrases(
    model: Model, boxes: Floats, regions: Floats, phrases: Sequence[str], top: int = 1
) -> list[list[LocatedRegion]]:
    """The `top` best of a photo's regions for each phrase, best first; boxes and places are relative to the photo.

    `boxes` is (regions, 4) and `regions` (regions, size), as a reader of the model's image input gives them.
    """
    there = valid_regions(boxes, regions)
    if not len(there) or not len(phrases):
        return [[] for _ in phrases]
    values = torch.from_numpy(regions[there]).to(model.device)
    scores = model.matcher.score(model.matcher.encode_images(values), model.torch_engine.text_tensor(phrases))
    best, places = scores.topk(min(top, len(there)), dim=0)  # (top, phrases)
    corners = [(left, top, right, bottom) for left, top, right, bottom in boxes[there].tolist()]
    return [
        [LocatedRegion(corners[place], score) for place, score in zip(own, found, strict=True)]
        for own, found in zip(places.T.tolist(), best.T.tolist(), strict=True)
    ]


def valid_regions(boxes: Floats, regions: Floats) -> Integers:
    """The rows of a photo's regions that are there: they have an area, and a vector that is not all zeros."""
    return np.flatnonzero((boxes[:, 2:] > boxes[:, :2]).all(1) & regions.any(1))


def localise_in_picture(
    model: Model, picture: Picture, phrases: Sequence[str], top: int = 1
) -> list[list[LocatedRegion]]:
    """The `top` best places of each phrase in a picture of no corpus, best first, in pixels of the picture.

    Its regions are proposed, pooled and encoded once for all phrases.
    """
    check_can_localise(model.matcher)
    check_phrases(model, phrases)
    reader = image_reader([picture], model.matcher.image_input, model.matcher.pretrained)
    values, readable = reader.read(np.array([0]))
    if not readable.all():
        raise ImageError(reader.skipped[0])
    assert reader.boxes is not None  # the model reads proposed regions
    if not len(valid_regions(reader.boxes[0], values[0])):
        name = str(picture.path) if isinstance(picture, PictureFile) else "the photo"
        raise DataError(f"{name}: no proposed region to look for phrases in; try a larger or clearer photo")
    size = picture.load().size
    found = localise_phrases(model, reader.boxes[0], values[0], phrases, top)
    return [[place.within(*size) for place in places] for places in found]


def evaluate_phrases(
    run: Model | Path | str,
    corpus: Corpus | Path | str,
    split: str = "test",
    *,
    overlap: float = MIN_OVERLAP,
    device: str = "auto",
    stores: Path | None = None,
    workers: int = 2,
    progress: ProgressCallback | None = None,
) -> GroundingResult:
    """Measure how well a run finds the phrases of a split of a corpus; what `stores` holds is not computed again."""
    corpus = (corpus if isinstance(corpus, Corpus) else open_corpus(corpus)).split(split)
    model = run if isinstance(run, Model) else Model.load(run, device, stores=stores)
    mentions = find_mentions(corpus)
    check_can_localise(model.matcher)
    reader = model.torch_engine.image_reader(corpus, workers, progress)
    return measure_phrases(model, mentions, reader, corpus.image_ids, progress, overlap=overlap, workers=workers)


@torch.inference_mode()
def measure_phrases(
    model: Model,
    mentions: Mentions,
    reader: InputReader,
    image_ids: Sequence[str],
    progress: ProgressCallback | None = None,
    *,
    overlap: float = MIN_OVERLAP,
    workers: int = 2,
) -> GroundingResult:
    """Measure the mentions of a corpus on the regions that a reader gives, together with their boxes.

    The mentions of a photo that cannot be read are left out, and the photo is named; those of a photo that has no
    regions are misses. `progress` is told how many photos of how many are done.
    """
    boxes = reader.boxes
    assert boxes is not None  # the model reads proposed regions
    work = _Measuring(model, mentions, image_ids, overlap)
    photos = np.unique(mentions.images)
    chunks = np.split(photos, range(PHOTOS_AT_ONCE, len(photos), PHOTOS_AT_ONCE))
    done = 0
    for chunk, (values, readable) in zip(chunks, read_ahead(reader.read, chunks, workers), strict=True):
        if len(values):
            encoded = model.matcher.encode_images(torch.from_numpy(values).to(model.device))
            for photo, regions, own in zip(chunk[readable].tolist(), values, encoded, strict=True):
                there = valid_regions(boxes[photo], regions)
                work.measure(photo, boxes[photo][there], own[torch.from_numpy(there).to(own.device)])
        done += len(chunk)
        if progress:
            progress(done, len(photos))
    return work.result(set(photos.tolist()), reader.skipped, reader.empty)


class _Measuring:
    """The ranks of mentions, photo by photo."""

    def __init__(self, model: Model, mentions: Mentions, image_ids: Sequence[str], overlap: float) -> None:
        self._mentions, self._ids, self._overlap = mentions, image_ids, overlap
        self._score = model.matcher.score
        words: dict[str, int] = {}  # many mentions say the same
        self._phrase_of = np.array([words.setdefault(phrase, len(words)) for phrase in mentions.phrases], np.int64)
        self._phrases = model.torch_engine.text_tensor(list(words))
        order = np.argsort(mentions.images, kind="stable")
        photos, starts = np.unique(mentions.images[order], return_index=True)
        self._rows = dict(zip(photos.tolist(), np.split(order, starts[1:]), strict=True))
        self._ranks = np.full(len(mentions), np.inf)
        self._boxes = np.zeros((len(mentions), 4), np.float32)
        self._empty: set[int] = set()

    def measure(self, photo: int, boxes: Floats, regions: Tensor) -> None:
        """Rank the regions of one photo, with their boxes, for all of its mentions."""
        if not len(boxes):
            self._empty.add(photo)
            return
        rows = self._rows[photo]
        texts = torch.from_numpy(self._phrase_of[rows]).to(self._phrases.device)
        scores = self._score(regions, self._phrases[texts]).float().cpu().numpy()  # (regions, mentions)
        try:
            self._ranks[rows] = phrase_ranks(scores, correct_regions(boxes, self._mentions.boxes[rows], self._overlap))
        except ScoreError as reason:
            raise ScoreError(f"{self._ids[photo]}: {reason}") from None
        self._boxes[rows] = boxes[scores.argmax(0)]

    def result(self, photos: set[int], skipped: dict[int, str], empty: set[int]) -> GroundingResult:
        """What was found; photos without a region are misses, those that could not be read are left out."""
        empty = (empty & photos) | self._empty
        lost = sorted(photos & (skipped.keys() - empty))
        rows = np.flatnonzero(~np.isin(self._mentions.images, lost))
        return GroundingResult(
            ranks=self._ranks[rows],
            images=self._mentions.images[rows],
            kinds=[self._mentions.kinds[row] for row in rows.tolist()],
            rows=rows,
            boxes=self._boxes[rows],
            overlap=self._overlap,
            skipped={self._ids[photo]: skipped[photo] for photo in lost},
            empty=[self._ids[photo] for photo in sorted(empty)],
        )


def check_can_localise(matcher: Matcher) -> None:
    """Refuse a model that cannot score the proposed regions of a photo one by one."""
    if not matcher.localises or matcher.pretrained is None:
        raise RunError(
            "the model scores whole images, not each of their proposed regions; "
            "train a recipe for phrases, such as two-branch-phrases-small"
        )


def check_phrases(model: Model, phrases: Sequence[str]) -> None:
    """Refuse a phrase that is nothing to the model: it has no words, or none that the model knows."""
    for phrase, known in zip(phrases, model.known_texts(phrases).tolist(), strict=True):
        if not phrase.strip():
            raise DataError("a phrase is empty; name a thing in words, such as 'a red ball'")
        if not known:
            raise DataError(f"{phrase!r}: the run knows none of its words; use words of the data it was trained on")


def _pixels(first: float, last: float, length: int) -> tuple[int, int]:
    """Both ends of a stretch in pixels, at least one apart and inside."""
    low = min(max(round(first * length), 0), length - 1)
    return low, min(max(round(last * length), low + 1), length)
