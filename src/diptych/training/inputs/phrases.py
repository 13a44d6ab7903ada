"""The data of a stage that trains on regions and phrases, and how it is validated."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from diptych.data.corpus import Corpus
from diptych.data.phrases import Mentions, find_mentions
from diptych.data.sampling.batch import PairReader
from diptych.data.sampling.regions import RegionRoles, RegionSampler, annotated_boxes
from diptych.errors import DataError
from diptych.evaluation.localisation.evaluate_phrases import distinct_phrases, measure_phrases
from diptych.features.photo_regions import PhotoRegions, photo_regions
from diptych.features.readers import StoreOptions, image_reader
from diptych.progress import ProgressCallback
from diptych.ranks import ALONE, Ranks
from diptych.training.inputs.images import StageImages
from diptych.training.inputs.pairs import Sampler
from diptych.training.inputs.texts import StageTexts
from diptych.training.recipe import Stage


class PhraseData:
    """Pairs of a region and a phrase, with negative regions of the same photo; measured by localisation."""

    def __init__(
        self,
        corpus: Corpus,
        train: Corpus,
        stage: Stage,
        seed: tuple[int, int],
        images: StageImages,
        texts: StageTexts,
        *,
        ranks: Ranks = ALONE,
    ) -> None:
        assert stage.phrases is not None
        self._model, self._workers, self._ranks = images.model, images.workers, ranks
        mentions = find_mentions(train)
        regions = _regions(train, mentions, images)
        roles = RegionRoles(mentions, regions.boxes, regions.per_photo, stage.phrases)
        mentions = mentions.take(texts.known(list(mentions.phrases)))
        self._ids, self._skipped = train.image_ids, regions.skipped
        if regions.skipped:
            first = next(iter(regions.skipped.values()))
            if not len(regions.photos):
                raise DataError(f"{corpus.name}: none of the training photos can be read; the first is {first}")
            images.report(
                f"left out {len(regions.skipped):,} training photos that cannot be read; the first is {first}"
            )
            mentions = mentions.take(np.flatnonzero(np.isin(mentions.images, regions.photos)))
        table = texts.table(mentions.phrases)
        self.reader = PairReader(mentions.entities, regions, table, texts.features(table))
        self.sampler: Sampler = RegionSampler(
            mentions, roles, stage.batches.size, seed, stage.phrases, stage.batches.neighbours
        )
        val = corpus.split("val")
        self._val, self._val_ids = find_mentions(val), val.image_ids
        self._val_texts = texts.inputs(distinct_phrases(self._val))
        matcher = images.model.matcher
        store = StoreOptions(images.stores, images.model.device, images.workers, images.progress)
        self._val_regions = image_reader(val, matcher.image_input, matcher.pretrained, store=store)

    @property
    def chance(self) -> Mapping[str, float]:
        """Unknown: it depends on how many proposals are right."""
        return {}

    def why_skipped(self, image: int) -> tuple[str, str]:
        """The name of a photo that a batch left out, and the reason."""
        return self._ids[image], self._skipped[image]

    def validate(self, progress: ProgressCallback) -> dict[str, float]:
        """Localisation recall on val, which the first rank measures for all."""
        return self._ranks.of_first(lambda: self._measure(progress))

    def _measure(self, progress: ProgressCallback) -> dict[str, float]:
        found = measure_phrases(
            self._model,
            self._val,
            self._val_regions,
            self._val_ids,
            progress,
            workers=self._workers,
            texts=self._val_texts,
        )
        return found.metrics

    def describe(self, metrics: dict[str, float]) -> str:
        """The main measures in one line."""
        recalls = "  ".join(f"R@{cutoff} {metrics[f'phrase_r{cutoff}']:.1f}" for cutoff in (1, 5, 10))
        return f"phrases {recalls}"


def _regions(corpus: Corpus, mentions: Mentions, images: StageImages) -> PhotoRegions:
    """The proposed and the annotated regions of the training photos."""
    model = images.model
    backbone = model.matcher.pretrained
    assert backbone is not None, "checked by compatibility"
    return photo_regions(
        corpus,
        annotated_boxes(mentions, len(corpus.image_ids)),
        backbone,
        model.matcher.image_input,
        images.stores,
        workers=images.workers,
        device=model.device,
        progress=images.progress,
    )
