"""What a stage trains on and is measured on: images and texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np

from diptych.data.corpus import Corpus, Integers
from diptych.data.sampling.offline import OfflineSampler
from diptych.data.sampling.pairs import PairBatch, PairReader, Pairs, PairSampler
from diptych.errors import DataError
from diptych.evaluation.runs import validation_metrics
from diptych.model import Model
from diptych.progress import ProgressCallback
from diptych.text.vocabulary import UNKNOWN, TokenTable
from diptych.training.inputs.images import StageImages
from diptych.training.inputs.texts import TextFeatures, known_texts, text_features
from diptych.training.recipe import Stage


class Sampler(Protocol):
    """Draws the batches of an epoch, a pure function of a seed and the epoch's number."""

    def __len__(self) -> int:
        """The number of batches an epoch."""
        ...

    def epoch(self, number: int) -> Sequence[Pairs]:
        """The batches of one epoch."""
        ...


class StageData(Protocol):
    """The batches of a stage, and the measure that its best snapshot is chosen by."""

    sampler: Sampler

    def read(self, pairs: Pairs) -> PairBatch:
        """Read one batch; safe to call from several threads."""
        ...

    def why_skipped(self, image: int) -> tuple[str, str]:
        """The name of an image that a batch left out, and the reason."""
        ...

    def validate(self, progress: ProgressCallback) -> dict[str, float]:
        """Measure the model on val."""
        ...


@dataclass(frozen=True)
class StageTexts:
    """What a stage does with its texts: ids of their words, or what a fitted tower makes of them."""

    model: Model
    stores: Path  # the folder that holds what is computed once
    progress: Callable[[str, int, int], None]
    say: Callable[[str], None]

    def known(self, texts: list[str]) -> Integers:
        """The rows of the texts that are something to the model; who is left out is told."""
        tower = self.model.matcher.fitted_text_tower
        if tower is None:
            return np.arange(len(texts))
        known = known_texts(tower, self.model.vocabulary.encode_all(texts), self.model.device)
        if not known.all():
            rows = np.flatnonzero(~known)
            self.say(f"left out {_counted(rows)} without a known word; the first is {texts[rows[0]]!r}")
        if not known.any():
            raise DataError("none of the training texts has a known word; name word vectors of their language")
        return np.flatnonzero(known)

    def table(self, texts: Sequence[str]) -> TokenTable:
        """The ids of the texts that are trained on; those without a known word are told, and stay in it."""
        table = self.model.vocabulary.encode_all(texts)
        known = np.logical_or.reduceat(table.flat > UNKNOWN, table.offsets[:-1])  # (texts,); none is without an id
        if not known.all():
            rows = np.flatnonzero(~known)
            told = f"kept {_counted(rows)} without a known word, as good as empty to the model"
            self.say(f"{told}; the first is {texts[rows[0]]!r}")
        return table

    def features(self, table: TokenTable) -> TextFeatures | None:
        """What a fitted tower makes of all texts, once and for all; nothing where that is cheap, or trained on."""
        tower = self.model.matcher.fitted_text_tower
        if tower is None or not tower.caches_features:
            return None
        return text_features(tower, table, self.model.device, self.stores, partial(self.progress, "text features"))


def _counted(rows: Integers) -> str:
    return "1 training text" if len(rows) == 1 else f"{len(rows):,} training texts"


class ImageTextData:
    """Pairs of images and texts; measured by retrieval in both directions."""

    def __init__(
        self,
        corpus: Corpus,
        train: Corpus,
        stage: Stage,
        seed: tuple[int, int],
        images: StageImages,
        texts: StageTexts,
        offline: OfflineSampler | None,
    ) -> None:
        known = texts.known(list(train.texts))
        if len(known) < len(train.texts):
            if offline is not None:  # the numbers in its lists are those of all texts
                raise DataError(
                    f"{corpus.name}: offline negatives were mined among all training texts, and some of them have no "
                    "known word; take those out of the data, or lower text.threshold"
                )
            train = train.take(np.arange(len(train.image_ids)), known)
        self._model, self._workers = images.model, images.workers
        self._ids, self._images = train.image_ids, images.for_training(train)
        self._enlarged = partial(images.report_enlarged, self._images, self._ids)
        self._told = False
        table = texts.table(train.texts)
        self.read = PairReader(train.text_groups, self._images, table, texts.features(table)).read
        batches = stage.batches
        self.sampler: Sampler = PairSampler(
            train, batches.size, seed, offline, neighbours=batches.neighbours, rivals=batches.rivals
        )
        self._val = corpus.split("val").matched()
        self._val_images = images.for_encoding(self._val)

    def why_skipped(self, image: int) -> tuple[str, str]:
        """The name of an image that a batch left out, and the reason."""
        return self._ids[image], self._images.skipped[image]

    def validate(self, progress: ProgressCallback) -> dict[str, float]:
        """Recall in both directions on val; after the first epoch, random crops have shown which photos are small."""
        if not self._told:
            self._enlarged()
            self._told = True
        return validation_metrics(self._model.encode_corpus(self._val, self._workers, progress, self._val_images))
