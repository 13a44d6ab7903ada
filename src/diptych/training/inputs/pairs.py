"""The data of a stage that trains on images and texts, and how it is validated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

import numpy as np

from diptych.data.corpus import Corpus
from diptych.data.sampling.batch import PairReader
from diptych.data.sampling.negatives import NegativeTexts
from diptych.data.sampling.neighbours import SecondPositives
from diptych.data.sampling.pairs import BatchExtension, EpochExtension, Pairs, PairSampler
from diptych.errors import DataError
from diptych.models.text_inputs import TextInputs
from diptych.progress import ProgressCallback
from diptych.ranks import ALONE, Ranks
from diptych.training.inputs.base_encodings import BaseEncodings
from diptych.training.inputs.images import StageImages
from diptych.training.inputs.texts import StageTexts
from diptych.training.inputs.validation import RetrievalOnVal, describe_retrieval
from diptych.training.recipe import Batches as BatchSettings
from diptych.training.recipe import Stage


class Batches(Protocol):
    """The batches of an epoch: a list, or what reads them from shards."""

    def __getitem__(self, part: slice, /) -> Iterable[Pairs]:
        """The batches from one of them on: `batches[start:]`."""
        ...


class Sampler(Protocol):
    """Draws the batches of an epoch, as a pure function of a seed and the epoch number."""

    def __len__(self) -> int:
        """The number of batches per epoch."""
        ...

    def epoch(self, number: int) -> Batches:
        """The batches of one epoch."""
        ...


class StageData(Protocol):
    """The batches of a stage, and its validation, which selects the best snapshot."""

    sampler: Sampler
    reader: PairReader

    @property
    def chance(self) -> Mapping[str, float]:
        """The metrics that a random order would have on val, as far as they are known."""
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

    def __init__(  # noqa: PLR0913 (options, by keyword only)
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
        ranks: Ranks = ALONE,
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
        self._ids, self._images = train.image_ids, images.for_training(train)
        self._report_enlarged = partial(images.report_enlarged, self._images, self._ids)
        self._is_first_validation = True
        table = texts.table(train.texts)
        features = texts.features(table)
        self._validation = RetrievalOnVal(corpus, images, texts, base, ranks)
        if base is not None:
            self._images, features = base.images(train, self._images), base.texts(TextInputs(table, features))
        self.reader = PairReader(train.text_groups, self._images, table, features)
        self.sampler: Sampler = PairSampler(
            train, stage.batches.size, seed, extensions, _batch_extensions(train, stage.batches)
        )

    @property
    def chance(self) -> Mapping[str, float]:
        """The recall of a random order."""
        return self._validation.chance

    def why_skipped(self, image: int) -> tuple[str, str]:
        """The name of an image that a batch left out, and the reason."""
        return self._ids[image], self._images.skipped[image]

    def validate(self, progress: ProgressCallback) -> dict[str, float]:
        """Recall in both directions on val."""
        if self._is_first_validation:  # by now random crops have shown which photos are small
            self._report_enlarged()
            self._is_first_validation = False
        return self._validation.measure(progress)

    def describe(self, metrics: dict[str, float]) -> str:
        """The main measures in one line."""
        return describe_retrieval(metrics)


def _batch_extensions(train: Corpus, batches: BatchSettings) -> list[BatchExtension]:
    """What a recipe's `batches` table adds to each batch."""
    extensions: list[BatchExtension] = []
    if batches.neighbours:
        extensions.append(SecondPositives(train.image_groups, train.text_groups))
    if batches.rivals:
        extensions.append(NegativeTexts(train.text_groups, batches.rivals))
    return extensions
