"""The scores of negatives that were drawn for each pair alone.

If an objective counts only the hardest of many, such as the regions of a photo, all are scored without gradients first,
and only those that count are encoded again with gradients. The loss and the gradients are those of all. With batch
norm, however, the statistics of the batch are those of the pairs and of the negatives that count, the mini-batch of
Algorithm 1 of Wang et al. 2018.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Self

from diptych.data.corpus import Integers
from diptych.data.sampling.batch import PairBatch
from diptych.data.sampling.negatives import DrawnNegatives
from diptych.objectives.extras import NegativeOptions, NegativeScores
from diptych.training.context import StageContext
from diptych.training.needs.need import EncodedPairs, Need


class Negatives(Need):
    """Scores drawn negatives, which `batches.rivals` or the `phrases` table of a stage ask for."""

    name: ClassVar[str] = "negatives"

    def __init__(self, options: NegativeOptions | None = None) -> None:
        self._options = options or NegativeOptions()

    @classmethod
    def prepare(cls, context: StageContext) -> Self:
        """With the objective's options."""
        return cls(context.stage.objective.need_options(cls.name))

    def narrow(self, batch: PairBatch, encode: Callable[[PairBatch], EncodedPairs]) -> PairBatch:
        """The batch with the hardest of each pair's drawn images, if only some of them count."""
        drawn, most = batch.extras.get(DrawnNegatives), self._options.most
        if most is None or drawn is None or drawn.images is None or drawn.images.shape[1] <= most:
            return batch
        hardest = _scores(encode(batch), drawn.images, are_images=True).topk(most).indices
        images = np.take_along_axis(drawn.images, hardest.cpu().numpy(), axis=1)
        return batch.with_extra(replace(drawn, images=images))

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
