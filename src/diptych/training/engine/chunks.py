"""Gradients of a large batch with the memory of a small one, by encoding it in chunks.

The towers run twice: first without gradients, for the loss of the whole batch and its gradient with respect to each
encoding, then chunk by chunk from the same random state, to carry that gradient into the weights. At any time memory
holds the activations of one chunk, and the encodings of the batch (Gao et al. 2021, gradient caching).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diptych.data.sampling.batch import PairBatch
from diptych.models.layers.sets import concatenate_encodings
from diptych.objectives.objective import Loss, Objective, ScoreSummary
from diptych.objectives.ranking import Direction, Queries
from diptych.training.distributed.encoding import (
    ENCODING,
    SharedScores,
    gather_encodings,
    own_gradients,
    own_random,
)
from diptych.training.engine.precision import BatchEncoder
from diptych.training.engine.scoring import tokens_to_device
from diptych.training.needs.need import PairScorer


def chunked_gradients(
    matcher: BatchEncoder,
    objective: Objective,
    parameters: Mapping[str, Tensor],
    batch: PairBatch,
    chunk: int,
    *,
    device: torch.device,
    backward: Callable[[Tensor], Tensor],
) -> tuple[Loss, ScoreSummary]:
    """Add a batch's gradients to those of all trainable parameters, encoding `chunk` images or texts at a time.

    `backward` computes the gradients of a loss, which it may scale, and returns the loss without its graph.
    """
    gradients = partial(_chunked_gradients, matcher, objective, parameters, device=device, backward=backward)
    if batch.share is None:
        return gradients(_sorted_by_words(batch), chunk)
    with own_random(batch.share, ENCODING):
        return gradients(batch, chunk)


def _chunked_gradients(
    matcher: BatchEncoder,
    objective: Objective,
    parameters: Mapping[str, Tensor],
    batch: PairBatch,
    chunk: int,
    *,
    device: torch.device,
    backward: Callable[[Tensor], Tensor],
) -> tuple[Loss, ScoreSummary]:
    share = batch.share
    images = [_Chunk(partial(_encode_images, matcher, part, device), device) for part in _split(batch.images, chunk)]
    texts = [
        _Chunk(partial(_encode_texts, matcher, batch, slice(begin, begin + chunk), device), device)
        for begin in range(0, len(batch.ids), chunk)
    ]
    encoded = (
        concatenate_encodings([part.take() for part in images]),
        concatenate_encodings([part.take() for part in texts]),
    )
    scorer: PairScorer = matcher
    if share is not None:
        encoded, scorer = gather_encodings(*encoded, share), SharedScores(matcher, share)
    queries = _ChunkedQueries(scorer, *encoded, batch, device, parameters, within="within" in objective.needs)
    rows = torch.split(torch.arange(len(batch), device=device), chunk)
    loss = objective.chunked_loss(queries, rows, backward)
    gradients = queries.image_gradient(), queries.text_gradient()
    if share is not None:
        gradients = own_gradients(*gradients, share)
    for parts, gradient in zip((images, texts), gradients, strict=True):
        for part, part_gradient in zip(parts, torch.split(gradient, chunk), strict=True):
            part.backward(part_gradient)
    return loss, queries.summary()


class _ChunkedQueries:
    """The queries of encoded pairs, scored when they are asked for; remembers the range of the scores."""

    def __init__(
        self,
        matcher: PairScorer,
        images: Tensor,
        texts: Tensor,
        batch: PairBatch,
        device: torch.device,
        parameters: Mapping[str, Tensor],
        *,
        within: bool,
    ) -> None:
        self._matcher, self._distinct_images = matcher, images
        self._parameters, self._within = parameters, within
        self._image_of = torch.from_numpy(batch.image_of).to(device)
        self._groups = torch.from_numpy(batch.groups).to(device)
        self._images = images.index_select(0, self._image_of).requires_grad_()  # one per pair
        self._texts = texts.requires_grad_()
        self._lowest, self._highest = torch.inf, -torch.inf

    def __len__(self) -> int:
        return len(self._groups)

    def queries(self, direction: Direction, rows: Tensor) -> Queries:
        """Score some images, or texts, of consecutive pairs against all of the other side."""
        part = slice(int(rows[0]), int(rows[-1]) + 1)
        if direction == "image_to_text":
            same_side, scores = self._images, self._matcher.score(self._images[part], self._texts)
        else:
            same_side, scores = self._texts, self._matcher.score(self._images, self._texts[part]).t()
        within = self._matcher.score(same_side[part], same_side) if self._within else None
        lowest, highest = torch.aminmax(scores.detach())
        self._lowest, self._highest = min(self._lowest, float(lowest)), max(self._highest, float(highest))
        positives = self._groups[rows][:, None] == self._groups
        return Queries(scores, rows, positives, within, dict(self._parameters))

    def image_gradient(self) -> Tensor:
        """The gradient with respect to the encoding of each distinct image."""
        assert self._images.grad is not None
        return torch.zeros_like(self._distinct_images).index_add_(0, self._image_of, self._images.grad)

    def text_gradient(self) -> Tensor:
        """The gradient with respect to the encoding of each text."""
        assert self._texts.grad is not None
        return self._texts.grad

    def summary(self) -> ScoreSummary:
        """The range of the scores, and the number of positives of each pair."""
        _, inverse, counts = torch.unique(self._groups, return_inverse=True, return_counts=True)
        return ScoreSummary(self._lowest, self._highest, counts[inverse])


class _Chunk:
    """A part of a batch that is encoded without gradients, and once more with them, dropout included."""

    def __init__(self, encode: Callable[[], Tensor], device: torch.device) -> None:
        self._encode, self._device = encode, device
        self._random_state = _get_random_state(device)
        with torch.no_grad():
            self._encoded: Tensor | None = encode()

    def take(self) -> Tensor:
        """Hand over the encodings without keeping a reference."""
        encoded, self._encoded = self._encoded, None
        assert encoded is not None
        return encoded

    def backward(self, gradient: Tensor) -> None:
        """Carry the gradient of the encodings into the weights, if there is anything to train."""
        _set_random_state(self._random_state, self._device)
        encoded = self._encode()
        if encoded.requires_grad:
            # The sets of this chunk may have fewer items than the largest set of the batch.
            encoded.backward(gradient[:, : encoded.shape[1]])


def _encode_images(matcher: BatchEncoder, images: NDArray[Any], device: torch.device) -> Tensor:
    return matcher.encode_images(torch.from_numpy(images).to(device))


def _encode_texts(matcher: BatchEncoder, batch: PairBatch, rows: slice, device: torch.device) -> Tensor:
    features = None if batch.text_features is None else batch.text_features[rows]
    return matcher.encode_texts(tokens_to_device(batch.ids[rows], batch.lengths[rows], features, device))


def _sorted_by_words(batch: PairBatch) -> PairBatch:
    """The same pairs with texts in the order of their words: texts of one chunk then share prefixes."""
    order = np.lexsort(batch.ids.T[::-1])
    return replace(
        batch,
        image_of=batch.image_of[order],
        ids=batch.ids[order],
        lengths=batch.lengths[order],
        groups=batch.groups[order],
        text_features=None if batch.text_features is None else batch.text_features[order],
    )


def _split(rows: NDArray[Any], chunk: int) -> list[NDArray[Any]]:
    return np.split(rows, range(chunk, len(rows), chunk))


def _get_random_state(device: torch.device) -> list[Tensor]:
    """The state of the generators that dropout draws from: the CPU's, and that of another device."""
    states = [torch.get_rng_state()]
    return states if device.type == "cpu" else [*states, torch.get_device_module(device).get_rng_state()]


def _set_random_state(states: list[Tensor], device: torch.device) -> None:
    torch.set_rng_state(states[0])
    if device.type != "cpu":
        torch.get_device_module(device).set_rng_state(states[1])
