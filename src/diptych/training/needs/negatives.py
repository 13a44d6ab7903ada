"""The scores of negatives that were drawn for each pair alone."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from diptych.data.corpus import Integers
from diptych.data.sampling.batch import PairBatch
from diptych.data.sampling.negatives import DrawnNegatives
from diptych.objectives.extras import NegativeScores
from diptych.training.needs.need import EncodedPairs, Need


class Negatives(Need):
    """Scores drawn negatives, which `batches.rivals` or the `phrases` table of a stage ask for."""

    name: ClassVar[str] = "negatives"

    def supply(self, batch: PairBatch, pairs: EncodedPairs) -> NegativeScores | None:
        """The scores of each pair's negatives; each was encoded once, however often it was drawn."""
        drawn = batch.extras.get(DrawnNegatives)
        if drawn is None:
            return None
        images = None if drawn.images is None else _scores(pairs, drawn.images, are_images=True)
        texts = None if drawn.texts is None else _scores(pairs, drawn.texts, are_images=False)
        return NegativeScores(images, texts)


def _scores(pairs: EncodedPairs, drawn: Integers, *, are_images: bool) -> Tensor:
    """The scores of drawn rows, (pairs, negatives), with the other side of each pair; minus infinity for none."""
    rows = torch.from_numpy(drawn).to(pairs.image_of.device)
    pair, column = (rows >= 0).nonzero(as_tuple=True)
    negatives = rows[pair, column]
    images, texts = (negatives, pairs.text_of[pair]) if are_images else (pairs.image_of[pair], negatives)
    encoded = pairs.encoded
    scores = pairs.matcher.score_pairs(encoded.images.index_select(0, images), encoded.texts.index_select(0, texts))
    return scores.new_full(rows.shape, -torch.inf).index_put((pair, column), scores)
