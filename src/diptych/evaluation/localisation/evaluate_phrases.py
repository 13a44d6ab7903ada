"""Evaluation of phrase localisation: how well a run finds the annotated phrases of a corpus.

The regions of each photo are encoded once, and so is each distinct phrase; all mentions of a photo are scored with all
of its regions in one product.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from diptych.data.corpus import Corpus, Floats
from diptych.data.phrases import Mentions, find_mentions
from diptych.data.read_ahead import read_ahead
from diptych.errors import ScoreError
from diptych.evaluation.localisation.phrase_metrics import MIN_OVERLAP, GroundingResult, correct_regions, phrase_ranks
from diptych.evaluation.runs import FEATURES, open_for_run, open_run
from diptych.features.readers import InputReader
from diptych.model import Model
from diptych.models.explain.localise import check_can_localise, valid_regions
from diptych.models.text_inputs import TextInputs
from diptych.progress import ProgressCallback

PHOTOS_AT_ONCE = 16


def evaluate_phrases(
    run: Model | Path | str,
    corpus: Corpus | Path | str,
    split: str = "test",
    *,
    overlap: float = MIN_OVERLAP,
    device: str = "auto",
    features: Path | str | None = FEATURES,
    workers: int = 2,
    progress: ProgressCallback | None = None,
) -> GroundingResult:
    """Measure how well a run finds the phrases of one split of a corpus, or of the data at an address.

    `features` is a folder of feature stores: features of the run's backbone are read from it, and those that it lacks
    are added to it. With None, all features are computed.
    """
    corpus = open_for_run(corpus, run).split(split)
    model = open_run(run, device, features)
    mentions = find_mentions(corpus)
    check_can_localise(model.matcher)
    reader = model.torch_engine.image_reader(corpus, workers, progress)
    return measure_phrases(model, mentions, reader, corpus.image_ids, progress, overlap=overlap, workers=workers)


def distinct_phrases(mentions: Mentions) -> list[str]:
    """The phrases of mentions, many of which share one, each once."""
    return list(dict.fromkeys(mentions.phrases))


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
    texts: TextInputs | None = None,
) -> GroundingResult:
    """Measure the mentions of a corpus on the regions and boxes of a reader.

    Mentions in an unreadable photo are left out, and the photo is named; mentions in a photo without regions are
    misses. `progress` receives the number of photos done and the total. `texts` are the inputs of the distinct phrases,
    `distinct_phrases(mentions)`, if they are known already.
    """
    boxes = reader.boxes
    assert boxes is not None  # the model reads proposed regions
    ranking = _MentionRanking(model, mentions, image_ids, overlap, texts)
    photos = np.unique(mentions.images)
    chunks = np.split(photos, range(PHOTOS_AT_ONCE, len(photos), PHOTOS_AT_ONCE))
    done = 0
    for chunk, (values, readable) in zip(chunks, read_ahead(reader.read, chunks, workers), strict=True):
        if len(values):
            encoded = model.matcher.encode_images(torch.from_numpy(values).to(model.device))
            for photo, regions, encoded_regions in zip(chunk[readable].tolist(), values, encoded, strict=True):
                valid = valid_regions(boxes[photo], regions)
                rows = torch.from_numpy(valid).to(encoded_regions.device)
                ranking.add_photo(photo, boxes[photo][valid], encoded_regions[rows])
        done += len(chunk)
        if progress:
            progress(done, len(photos))
    return ranking.result(set(photos.tolist()), reader.skipped, reader.empty)


class _MentionRanking:
    """The ranks of all mentions, filled photo by photo."""

    def __init__(
        self,
        model: Model,
        mentions: Mentions,
        image_ids: Sequence[str],
        overlap: float,
        texts: TextInputs | None,
    ) -> None:
        self._mentions, self._image_ids, self._overlap = mentions, image_ids, overlap
        self._score = model.matcher.score
        distinct = distinct_phrases(mentions)
        numbers = {phrase: number for number, phrase in enumerate(distinct)}
        self._phrase_of = np.array([numbers[phrase] for phrase in mentions.phrases], np.int64)
        self._phrases = model.torch_engine.text_tensor(distinct, inputs=texts)
        order = np.argsort(mentions.images, kind="stable")
        photos, starts = np.unique(mentions.images[order], return_index=True)
        self._rows = dict(zip(photos.tolist(), np.split(order, starts[1:]), strict=True))
        self._ranks = np.full(len(mentions), np.inf)
        self._boxes = np.zeros((len(mentions), 4), np.float32)
        self._empty: set[int] = set()

    def add_photo(self, photo: int, boxes: Floats, regions: Tensor) -> None:
        """Rank the encoded regions of one photo, with their boxes, for all of its mentions."""
        if not len(boxes):
            self._empty.add(photo)
            return
        rows = self._rows[photo]
        texts = torch.from_numpy(self._phrase_of[rows]).to(self._phrases.device)
        scores = self._score(regions, self._phrases[texts]).float().cpu().numpy()  # (regions, mentions)
        try:
            self._ranks[rows] = phrase_ranks(scores, correct_regions(boxes, self._mentions.boxes[rows], self._overlap))
        except ScoreError as reason:
            raise ScoreError(f"{self._image_ids[photo]}: {reason}") from None
        self._boxes[rows] = boxes[scores.argmax(0)]

    def result(self, photos: set[int], skipped: dict[int, str], empty: set[int]) -> GroundingResult:
        """The result without the mentions in unreadable photos; those in photos without a region are misses."""
        empty = (empty & photos) | self._empty
        unreadable = sorted(photos & (skipped.keys() - empty))
        rows = np.flatnonzero(~np.isin(self._mentions.images, unreadable))
        return GroundingResult(
            ranks=self._ranks[rows],
            images=self._mentions.images[rows],
            kinds=[self._mentions.kinds[row] for row in rows.tolist()],
            rows=rows,
            boxes=self._boxes[rows],
            overlap=self._overlap,
            skipped={self._image_ids[photo]: skipped[photo] for photo in unreadable},
            empty=[self._image_ids[photo] for photo in sorted(empty)],
        )
