"""How a stage reads its images: while the backbone is frozen and the crops are fixed, from the feature store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from diptych.data.corpus import Corpus
from diptych.data.reader import ImageReader
from diptych.features.reader import CropReader, pictures_of
from diptych.features.stored import stored_reader
from diptych.models.trained import Trained
from diptych.training.recipe import Stage

Watch = Callable[[int, int], None]


@dataclass(frozen=True)
class StageImages:
    """Makes the readers of one stage; call after the stage's parts were made trainable."""

    trained: Trained
    stage: Stage
    stores: Path  # the folder that holds feature stores
    workers: int
    watch: Watch  # told how many features of how many are computed
    say: Callable[[str], None]

    def for_training(self, corpus: Corpus) -> ImageReader:
        """The reader of the training images."""
        wanted = self.trained.matcher.image_input
        if self.stage.crops == "RC":
            assert wanted.crops is not None  # checked before training began
            return CropReader(pictures_of(corpus), wanted.crops, wanted.shape[-1], random=True)
        return self.for_encoding(corpus)

    def for_encoding(self, corpus: Corpus) -> ImageReader:
        """The reader of images that are encoded as they are: stored features of a frozen backbone, or the images."""
        backbone, crops = self.trained.matcher.pretrained, self.trained.matcher.image_input.crops
        if backbone is None or crops is None or any(parameter.requires_grad for parameter in backbone.parameters()):
            return self.trained.reader(corpus)
        reader, stored = stored_reader(
            corpus,
            backbone,
            crops,
            self.stores,
            workers=self.workers,
            device=self.trained.device,
            watch=self.watch,
        )
        if stored.enlarged:
            first, (width, height) = next(iter(stored.enlarged.items()))
            self.say(
                f"{len(stored.enlarged)} photos are smaller than the crop and were enlarged; "
                f"the first is {corpus.image_ids[first]} ({width} x {height})"
            )
        return reader
