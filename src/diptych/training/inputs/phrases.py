"""What a stage on phrases trains on and is measured on: regions of photos and what is said of them."""

from __future__ import annotations

import numpy as np

from diptych.data.corpus import Corpus
from diptych.data.phrases import Mentions, find_mentions
from diptych.data.sampling.pairs import PairReader
from diptych.data.sampling.regions import Places, RegionSampler, annotated_boxes
from diptych.errors import DataError, RecipeError
from diptych.evaluation.localisation.evaluate_phrases import measure_phrases
from diptych.features.photo_regions import PhotoRegions, photo_regions
from diptych.features.readers import StoreOptions, image_reader
from diptych.models.matcher import Matcher
from diptych.progress import ProgressCallback
from diptych.training.inputs.images import StageImages
from diptych.training.inputs.pairs import Sampler, StageTexts
from diptych.training.recipe import Stage


class PhraseData:
    """Pairs of a region and a phrase, each phrase with rivals from its photo; measured by localisation."""

    def __init__(
        self,
        corpus: Corpus,
        train: Corpus,
        stage: Stage,
        seed: tuple[int, int],
        images: StageImages,
        texts: StageTexts,
    ) -> None:
        assert stage.phrases is not None
        self._model, self._workers = images.model, images.workers
        every = find_mentions(train)
        regions = _regions(train, every, images)
        places = Places(every, regions.boxes, regions.per_photo, stage.phrases)
        named = every.take(texts.known(list(every.phrases)))
        self._ids, self._skipped = train.image_ids, regions.skipped
        if regions.skipped:
            first = next(iter(regions.skipped.values()))
            if not len(regions.photos):
                raise DataError(f"{corpus.name}: none of the training photos can be read; the first is {first}")
            images.say(f"left out {len(regions.skipped):,} training photos that cannot be read; the first is {first}")
            named = named.take(np.flatnonzero(np.isin(named.images, regions.photos)))
        table = texts.table(named.phrases)
        self.read = PairReader(named.entities, regions, table, texts.features(table)).read
        self.sampler: Sampler = RegionSampler(
            named, places, stage.batches.size, seed, stage.phrases, stage.batches.neighbours
        )
        val = corpus.split("val")
        self._val, self._val_ids = find_mentions(val), val.image_ids
        matcher = images.model.matcher
        store = StoreOptions(images.stores, images.model.device, images.workers, images.progress)
        self._val_regions = image_reader(val, matcher.image_input, matcher.pretrained, store=store)

    def why_skipped(self, image: int) -> tuple[str, str]:
        """The name of a photo that a batch left out, and the reason; there is none, since all were looked at before."""
        return self._ids[image], self._skipped[image]

    def validate(self, progress: ProgressCallback) -> dict[str, float]:
        """Localisation recall on val."""
        found = measure_phrases(
            self._model,
            self._val,
            self._val_regions,
            self._val_ids,
            progress,
            workers=self._workers,
        )
        return found.metrics


def _regions(corpus: Corpus, named: Mentions, images: StageImages) -> PhotoRegions:
    """The proposed and the annotated regions of the training photos."""
    model = images.model
    backbone = model.matcher.pretrained
    assert backbone is not None  # checked before training began
    return photo_regions(
        corpus,
        annotated_boxes(named, len(corpus.image_ids)),
        backbone,
        model.matcher.image_input,
        images.stores,
        workers=images.workers,
        device=model.device,
        progress=images.progress,
    )


def check_phrases(stage: Stage, matcher: Matcher) -> None:
    """Refuse a stage whose phrases and model do not go together."""
    if stage.phrases is not None and not matcher.localises:
        raise RecipeError(
            "phrases: the model reads whole images; use a two-branch model with model.image.name = 'regions'"
        )
    if stage.phrases is None and matcher.localises:
        raise RecipeError(
            "phrases: the model reads regions of photos, and the stage has no such table; set phrases = {}"
        )
