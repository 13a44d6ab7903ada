"""The data of a stage that trains on images and texts, and how it is validated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

import numpy as np

from diptych.data.corpus import Corpus
from diptych.data.sampling.batch import PairBatch, PairReader
from diptych.data.sampling.negatives import NegativeTexts
from diptych.data.sampling.neighbours import SecondPositives
from diptych.data.sampling.pairs import BatchExtension, EpochExtension, Pairs, PairSampler
from diptych.errors import DataError
from diptych.evaluation.runs import validation_metrics
from diptych.models.text_inputs import TextInputs
from diptych.progress import ProgressCallback
from diptych.training.inputs.base_encodings import BaseEncodings
from diptych.training.inputs.images import StageImages
from diptych.training.inputs.texts import StageTexts
from diptych.training.recipe import Batches, Stage


class Sampler(Protocol):
    """Draws the batches of an epoch, as a pure function of a seed and the epoch number."""

    def __len__(self) -> int:
        """The number of batches per epoch."""
        ...

    def epoch(self, number: int) -> Sequence[Pairs]:
        """The batches of one epoch."""
        ...


class StageData(Protocol):
    """The batches of a stage, and its validation, which selects the best snapshot."""

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

    def describe(self, metrics: dict[str, float]) -> str:
        """The main measures in one line."""
        ...


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
        *,
        extensions: Sequence[EpochExtension] = (),
        base: BaseEncodings | None = None,
    ) -> None:
        """With `base`, batches hold what the model's frozen base computes instead of the model's inputs."""
        known = texts.known(list(train.texts))
        if len(known) < len(train.texts):
            if extensions:  # their lists number all training texts
                raise DataError(
                    f"{corpus.name}: the stage draws from lists of all training texts, and some of them have no known "
                    "word; remove those from the data, or lower text.threshold"
                )
            train = train.take(np.arange(len(train.image_ids)), known)
        self._engine, self._workers = images.model.torch_engine, images.workers
        self._ids, self._images = train.image_ids, images.for_training(train)
        self._report_enlarged = partial(images.report_enlarged, self._images, self._ids)
        self._is_first_validation = True
        table = texts.table(train.texts)
        features = texts.features(table)
        self._val = corpus.split("val").matched()
        self._val_images, self._val_texts = images.for_encoding(self._val), texts.inputs(self._val.texts)
        if base is not None:
            self._engine = base.engine
            self._images, features = base.images(train, self._images), base.texts(TextInputs(table, features))
            self._val_images = base.images(self._val, self._val_images)
            self._val_texts = replace(self._val_texts, features=base.texts(self._val_texts))
        self.read = PairReader(train.text_groups, self._images, table, features).read
        self.sampler: Sampler = PairSampler(
            train, stage.batches.size, seed, extensions, _batch_extensions(train, stage.batches)
        )

    def why_skipped(self, image: int) -> tuple[str, str]:
        """The name of an image that a batch left out, and the reason."""
        return self._ids[image], self._images.skipped[image]

    def validate(self, progress: ProgressCallback) -> dict[str, float]:
        """Recall in both directions on val."""
        if self._is_first_validation:  # by now random crops have shown which photos are small
            self._report_enlarged()
            self._is_first_validation = False
        inputs = self._val_images, self._val_texts
        return validation_metrics(self._engine.encode_corpus(self._val, self._workers, progress, *inputs))

    def describe(self, metrics: dict[str, float]) -> str:
        """The main measures in one line."""
        return f"rsum {metrics['rsum']:.1f}  R@1 {metrics['i2t_r1']:.1f} / {metrics['t2i_r1']:.1f}"


def _batch_extensions(train: Corpus, batches: Batches) -> list[BatchExtension]:
    """What a recipe's `batches` table adds to each batch."""
    extensions: list[BatchExtension] = []
    if batches.neighbours:
        extensions.append(SecondPositives(train.image_groups, train.text_groups))
    if batches.rivals:
        extensions.append(NegativeTexts(train.text_groups, batches.rivals))
    return extensions
