"""How a stage reads its images: from a feature store, as long as the backbone is frozen and the crops are fixed.

With `crops = "one"`, the maps that the frozen first steps of a partly frozen backbone compute are stored as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from diptych.data.corpus import Corpus, Picture
from diptych.data.read_ahead import read_ahead
from diptych.features.backbone import Backbone
from diptych.features.frozen_steps import frozen_steps
from diptych.features.map_reader import map_reader
from diptych.features.readers import InputReader, StoreOptions, image_reader
from diptych.model import Model
from diptych.models.layers.standardise import Statistics
from diptych.progress import ProgressCallback
from diptych.ranks import ALONE, Ranks
from diptych.training.recipe import Stage

AT_ONCE = 256  # vectors that are measured in one batch


class _Few(dict[int, tuple[int, int]]):
    """The first of many images that are smaller than the crop."""

    def __setitem__(self, image: int, size: tuple[int, int]) -> None:
        if len(self) < AT_ONCE:
            super().__setitem__(image, size)


@dataclass(frozen=True)
class StageImages:
    """Chooses the readers of one stage, after the stage has set which parameters are trainable."""

    model: Model
    stage: Stage
    stores: Path  # the folder of the feature stores
    workers: int
    progress: ProgressCallback  # of computing features
    report: Callable[[str], None]
    ranks: Ranks = ALONE  # that compute features together
    # By the corpus' id; the corpus is kept, so that no other one gets its id.
    _store_readers: dict[int, tuple[Corpus, InputReader]] = field(default_factory=dict, init=False, repr=False)
    # By the reader's id: how many enlarged images have been reported.
    _reported: dict[int, int] = field(default_factory=dict, init=False, repr=False)

    def for_training(self, corpus: Corpus) -> InputReader:
        """The reader of the training images."""
        image_input = self.model.matcher.image_input
        if (backbone := self._backbone_with_stored_maps()) is not None:
            return map_reader(corpus, image_input, backbone, self._store(), one=True)
        if self.stage.crops is not None:
            return image_reader(corpus, image_input, random=self.stage.crops)
        return self.for_encoding(corpus)

    def for_stream(self, pictures: Sequence[Picture]) -> InputReader:
        """The reader of training images that are in memory for one batch only: nothing of them is stored or kept."""
        matcher = self.model.matcher
        reader = image_reader(
            pictures, matcher.image_input, matcher.pretrained, random=self.stage.crops, keep_pixels=False
        )
        reader.enlarged = _Few()
        return reader

    def for_encoding(self, corpus: Corpus) -> InputReader:
        """The reader of images without random crops, for evaluation: stored features if the backbone is frozen."""
        if id(corpus) in self._store_readers:
            return self._store_readers[id(corpus)][1]
        backbone, image_input = self.model.matcher.pretrained, self.model.matcher.image_input
        reader: InputReader
        if (partly_frozen := self._backbone_with_stored_maps()) is not None:
            reader = map_reader(corpus, image_input, partly_frozen, self._store())
        elif backbone is None or any(parameter.requires_grad for parameter in backbone.parameters()):
            return image_reader(corpus, image_input, backbone)
        else:
            reader = image_reader(corpus, image_input, backbone, store=self._store())
        self.report_enlarged(reader, corpus.image_ids)
        self._store_readers[id(corpus)] = corpus, reader
        return reader

    def _backbone_with_stored_maps(self) -> Backbone | None:
        """The backbone, if the stage draws one of the fixed crops, and trains some but not the first of its steps."""
        matcher = self.model.matcher
        backbone = matcher.pretrained
        if self.stage.crops != "one" or backbone is None or not matcher.reads_maps:
            return None
        return backbone if 0 < frozen_steps(backbone) < len(backbone.steps) else None

    def _store(self) -> StoreOptions:
        return StoreOptions(self.stores, self.model.device, self.workers, self.progress, create=True, ranks=self.ranks)

    @torch.inference_mode()
    def standardise(self, corpus: Corpus) -> None:
        """Measure the vectors of the training images for a model that standardises them; they must not be yet."""
        standardised, image_input = self.model.matcher.standardised_images, self.model.matcher.image_input
        if standardised is None:
            return
        self.model.matcher.eval()
        reader, device = self.for_encoding(corpus), self.model.device
        at_once = AT_ONCE if image_input.regions is None else max(1, AT_ONCE // image_input.regions.count)
        chunks = np.split(np.arange(len(corpus.image_ids)), range(at_once, len(corpus.image_ids), at_once))
        statistics = Statistics(len(standardised.layer.mean), device)
        for values, _ in read_ahead(reader.read, chunks, self.workers):
            statistics.add(standardised.encode(torch.from_numpy(values).to(device)))
        standardised.layer.measured(*statistics.result())

    def report_enlarged(self, reader: InputReader, image_ids: Sequence[str]) -> None:
        """Report the photos that are smaller than the crop, if the reader has met more of them since the last call."""
        enlarged = sorted(reader.enlarged.items())
        if len(enlarged) <= self._reported.get(id(reader), 0):
            return
        self._reported[id(reader)] = len(enlarged)
        first, (width, height) = enlarged[0]
        photos, were = ("1 photo is", "was") if len(enlarged) == 1 else (f"{len(enlarged):,} photos are", "were")
        self.report(
            f"{photos} smaller than the crop and {were} enlarged; the first is {image_ids[first]} ({width} x {height})"
        )
