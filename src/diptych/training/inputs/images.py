"""How a stage reads its images: while the backbone is frozen and the crops are fixed, from the feature store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from diptych.data.corpus import Corpus
from diptych.data.reader import ImageReader
from diptych.errors import RecipeError
from diptych.features.readers import CropReader, pictures_of
from diptych.features.stored import stored_reader
from diptych.models.matcher import Matcher
from diptych.models.trained import Trained
from diptych.progress import ProgressCallback
from diptych.training.recipe import Stage


@dataclass(frozen=True)
class StageImages:
    """Makes the readers of one stage; call after the stage's parts were made trainable."""

    trained: Trained
    stage: Stage
    stores: Path  # the folder that holds feature stores
    workers: int
    progress: ProgressCallback  # told how many features of how many are computed
    say: Callable[[str], None]
    _stored: dict[int, tuple[Corpus, ImageReader]] = field(
        default_factory=dict, init=False, repr=False
    )  # by corpus, which is kept alive

    def for_training(self, corpus: Corpus) -> ImageReader:
        """The reader of the training images."""
        wanted = self.trained.matcher.image_input
        check_regions(self.stage, self.trained.matcher)
        if self.stage.crops is not None:
            assert wanted.crops is not None  # checked before training began
            return CropReader(pictures_of(corpus), wanted.crops, wanted.shape[-1], random=self.stage.crops)
        return self.for_encoding(corpus)

    def for_encoding(self, corpus: Corpus) -> ImageReader:
        """The reader of images that are encoded as they are: stored features of a frozen backbone, or the images."""
        if id(corpus) in self._stored:
            return self._stored[id(corpus)][1]
        backbone, wanted = self.trained.matcher.pretrained, self.trained.matcher.image_input
        if backbone is None or any(parameter.requires_grad for parameter in backbone.parameters()):
            return self.trained.reader(corpus)
        reader, stored = stored_reader(
            corpus,
            backbone,
            wanted,
            self.stores,
            workers=self.workers,
            device=self.trained.device,
            progress=self.progress,
        )
        self._say_enlarged(stored.enlarged, corpus.image_ids)
        self._stored[id(corpus)] = corpus, reader
        return reader

    def say_enlarged(self, reader: ImageReader, image_ids: Sequence[str]) -> None:
        """Say which photos were too small for the crop, of those that a reader of crops has read so far."""
        if isinstance(reader, CropReader):
            self._say_enlarged(dict(sorted(reader.enlarged.items())), image_ids)

    def _say_enlarged(self, enlarged: dict[int, tuple[int, int]], image_ids: Sequence[str]) -> None:
        if not enlarged:
            return
        first, (width, height) = next(iter(enlarged.items()))
        photos, were = ("1 photo is", "was") if len(enlarged) == 1 else (f"{len(enlarged):,} photos are", "were")
        self.say(
            f"{photos} smaller than the crop and {were} enlarged; the first is {image_ids[first]} ({width} x {height})"
        )


def check_regions(stage: Stage, matcher: Matcher) -> None:
    """Refuse a stage that would change what proposed regions are pooled from; its parts are already trainable."""
    regions, backbone = matcher.image_input.regions, matcher.pretrained
    if regions is None or not regions.proposed or backbone is None:
        return
    if stage.crops is not None:
        raise RecipeError(
            f'crops = "{stage.crops}": {regions.method} finds its boxes in the whole photo; leave the crops out'
        )
    if any(parameter.requires_grad for parameter in backbone.parameters()):
        raise RecipeError(
            f"trainable: {regions.method} reads its regions from a frozen backbone; leave the backbone out of it, "
            'or use regions = { method = "grid" }'
        )
