"""Scores within a modality: images with images, texts with texts."""

from __future__ import annotations

from typing import ClassVar

from diptych.data.sampling.batch import PairBatch
from diptych.objectives.extras import WithinScores
from diptych.training.needs.need import EncodedPairs, Need


class Within(Need):
    """Scores the images and the texts of a batch among themselves."""

    name: ClassVar[str] = "within"

    def supply(self, batch: PairBatch, pairs: EncodedPairs) -> WithinScores:
        """The scores within each modality, (pairs, pairs) each."""
        score = pairs.matcher.score
        text_rows = score(pairs.texts, pairs.texts)[pairs.text_of]
        images = score(pairs.images, pairs.images)[pairs.image_of][:, pairs.image_of]
        return WithinScores(images, pairs.text_columns(text_rows))
