"""From a batch to what its objective reads: each image and text encoded once, then all scores that are needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from diptych.data.corpus import Floats, Integers
from diptych.data.sampling.batch import PairBatch
from diptych.data.sampling.extras import Extras
from diptych.models.matcher import EncodedBatch
from diptych.models.tower import Tokens
from diptych.objectives.objective import Objective, ScoredPairs
from diptych.training.distributed.encoding import SharedScores, encode_share
from diptych.training.engine.precision import BatchEncoder
from diptych.training.needs.need import EncodedPairs, Need


@dataclass(frozen=True)
class BatchScorer:
    """Encodes and scores batches for an objective."""

    matcher: BatchEncoder
    objective: Objective
    needs: Sequence[Need]
    device: torch.device
    parameters: Mapping[str, Tensor]  # the objective's own

    def __call__(self, batch: PairBatch) -> tuple[ScoredPairs, dict[str, Tensor]]:
        """The scored batch, and the loss terms of the model itself."""
        pairs = encode_pairs(self.matcher, batch, self.device)
        scores, positives = _all_pairs(batch, pairs) if self.objective.scores_all_pairs else _each_pair(pairs)
        values = [need.supply(batch, pairs) for need in self.needs]
        extras = Extras(*(value for value in values if value is not None))
        return ScoredPairs(scores, positives, extras, self.parameters), pairs.encoded.terms


def encode_pairs(matcher: BatchEncoder, batch: PairBatch, device: torch.device) -> EncodedPairs:
    """Encode a batch for training, on all ranks together if it is shared."""
    image_of, text_of = (torch.from_numpy(rows).to(device) for rows in (batch.image_of, batch.text_of))
    counts = int(batch.image_of.max()) + 1, int(batch.text_of.max()) + 1
    if batch.share is None:
        encoded = _encode_all(matcher, batch, image_of, device)
        return EncodedPairs(matcher, encoded, image_of, text_of, *counts, batch.text_repeats)
    tokens = tokens_to_device(batch.ids, batch.lengths, batch.text_features, device)
    encoded = encode_share(matcher, batch, tokens, device)
    return EncodedPairs(SharedScores(matcher, batch.share), encoded, image_of, text_of, *counts, batch.text_repeats)


def _encode_all(matcher: BatchEncoder, batch: PairBatch, image_of: Tensor, device: torch.device) -> EncodedBatch:
    image_of_text = image_of
    if batch.text_repeats:  # a text that is in several pairs belongs to the image of the first
        first = np.unique(batch.text_of, return_index=True)[1]
        image_of_text = image_of[torch.from_numpy(first).to(device)]
    tokens = tokens_to_device(batch.ids, batch.lengths, batch.text_features, device)
    return matcher.encode_batch(torch.from_numpy(batch.images).to(device), tokens, image_of_text)


def _all_pairs(batch: PairBatch, pairs: EncodedPairs) -> tuple[Tensor, Tensor]:
    """The scores of each pair's image with each pair's text, (pairs, pairs), and which share a group."""
    groups = torch.from_numpy(batch.groups).to(pairs.image_of.device)
    scores = pairs.matcher.score(pairs.images, pairs.texts)[pairs.image_of]
    return pairs.text_columns(scores), groups[:, None] == groups


def _each_pair(pairs: EncodedPairs) -> tuple[Tensor, Tensor]:
    """The score of each pair, (pairs, 1), all of which are positives."""
    encoded = pairs.encoded
    scores = pairs.matcher.score_pairs(encoded.images[pairs.image_of], encoded.texts[pairs.text_of])
    return scores[:, None], torch.ones_like(scores[:, None], dtype=torch.bool)


def tokens_to_device(ids: Integers, lengths: Integers, features: Floats | None, device: torch.device) -> Tokens:
    """Padded ids on a device, cut to the longest text, with the features of a fitted text tower, if any."""
    cut = np.ascontiguousarray(ids[:, : lengths.max(initial=1)])
    text_features = None if features is None else torch.from_numpy(features).to(device)
    return Tokens(torch.from_numpy(cut).to(device), torch.from_numpy(lengths).to(device), text_features)
