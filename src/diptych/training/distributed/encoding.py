"""Encodes and scores a batch on several ranks: each does its share of the work, and all get the results."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from diptych.data.corpus import Integers
from diptych.data.sampling.batch import PairBatch
from diptych.data.sampling.share import Share
from diptych.models.matcher import EncodedBatch
from diptych.models.tower import Tokens
from diptych.training.distributed.operations import gather, scatter, spread, total
from diptych.training.engine.precision import BatchEncoder
from diptych.training.needs.need import PairScorer

ENCODING, SCORING = range(2)  # uses of random numbers


def encode_share(matcher: BatchEncoder, batch: PairBatch, tokens: Tokens, device: torch.device) -> EncodedBatch:
    """Encode this rank's images and texts of a batch, and gather those of all ranks in the order of the batch."""
    share = batch.share
    assert share is not None
    image_of = np.arange(0) if share.image_of is None else share.image_of
    with own_random(share, ENCODING):
        own = matcher.encode_batch(torch.from_numpy(batch.images).to(device), tokens, _tensor(image_of, device))
    features = None if own.features is None else gather_encodings(*own.features, share)
    images, texts = gather_encodings(own.images, own.texts, share)
    all_pair_texts = int(batch.text_of.max()) + 1
    weight = share.own_pair_texts / all_pair_texts  # a term is a mean over the texts of pairs
    terms = {name: total(term * weight, share.ranks) for name, term in own.terms.items()}
    return EncodedBatch(images, texts, terms, features)


def gather_encodings(images: Tensor, texts: Tensor, share: Share) -> tuple[Tensor, Tensor]:
    """What all ranks have computed of their images and texts, in the order of the batch."""
    own, order = (share.own_images, share.own_texts), (share.image_order, share.text_order)
    # A rank that has nothing to encode has encoded something that belongs to no pair.
    all_images, all_texts = (
        gather(rows[: len(numbers)], share.ranks)[_tensor(places, rows.device)]
        for rows, numbers, places in zip((images, texts), own, order, strict=True)
    )
    return all_images, all_texts


def own_gradients(images: Tensor, texts: Tensor, share: Share) -> tuple[Tensor, Tensor]:
    """The gradients of this rank's encodings among those of the batch, or zeros for one that is no part of it."""
    own = images[_tensor(share.own_images, images.device)], texts[_tensor(share.own_texts, texts.device)]
    of_images, of_texts = (rows if len(rows) else rows.new_zeros(1, *rows.shape[1:]) for rows in own)
    return of_images, of_texts


@dataclass(frozen=True)
class SharedScores:
    """Scores common encodings with a matcher, each rank some of the rows."""

    matcher: PairScorer
    share: Share

    def score(self, images: Tensor, texts: Tensor) -> Tensor:
        """The score of all images with all texts, (images, texts)."""
        ranks = self.share.ranks
        own = scatter(images, ranks)
        rows = own if len(own) else torch.cat([own, images[:1].detach()])  # not all models can score nothing
        with own_random(self.share, SCORING):
            scores = self.matcher.score(rows, spread(texts, ranks))
        return gather(scores[: len(own)], ranks)

    def score_pairs(self, images: Tensor, texts: Tensor) -> Tensor:
        """The score of image k with text k: (pairs,)."""
        ranks = self.share.ranks
        own = scatter(images, ranks), scatter(texts, ranks)
        count = len(own[0])
        if not len(own[0]):
            own = torch.cat([own[0], images[:1].detach()]), torch.cat([own[1], texts[:1].detach()])
        with own_random(self.share, SCORING):
            scores = self.matcher.score_pairs(*own)
        return gather(scores[:count], ranks)


@contextmanager
def own_random(share: Share, use: int) -> Iterator[None]:
    """Draw random numbers that differ from rank to rank, such as dropout's, and keep those that are common.

    They depend on the batch and the rank alone, so that a resumed run draws the same ones.
    """
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices):
        seed_common(share, share.ranks.rank + 1, use)
        yield


def seed_common(share: Share, *more: int) -> None:
    """Seed what is drawn for a batch on all ranks alike."""
    sequence = np.random.SeedSequence([*share.draw, *more])
    torch.manual_seed(int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1)))


def _tensor(rows: Integers, device: torch.device) -> Tensor:
    return torch.from_numpy(rows).to(device)
