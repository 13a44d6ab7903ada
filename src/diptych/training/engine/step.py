"""One step of training: scores, loss, gradients, clipping, the optimiser.

A large batch can be encoded in chunks (`batches.chunk`). The towers then run twice: first without gradients, for the
loss of the whole batch and its gradient in each encoding, then chunk by chunk, from the same random state, to carry
that gradient into the weights. What is held at any time is what one chunk needs, and the encodings and scores of the
batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from diptych.data.corpus import Integers
from diptych.data.sampling.pairs import PairBatch
from diptych.models.layers.sets import concatenate_encodings
from diptych.models.matcher import Matcher
from diptych.objectives.objective import Loss, Objective, Queries, Ranking, Summary
from diptych.training.engine.scoring import PairClasses, Scoring, tokens_of
from diptych.training.inputs.classes import Classes
from diptych.training.inputs.sampled import SampledRows


@dataclass(frozen=True)
class Step:
    """What the steps of a stage have in common; called with a batch, it trains on it.

    `learned` are the objective's own parameters, `chunk` how many images and texts are encoded at a time. `classes`
    says which class each group is, for an objective that classifies; with `sampled`, `learned` is a part of all classes
    that is drawn for each batch.
    """

    matcher: Matcher
    objective: Objective
    optimiser: Optimizer
    device: torch.device
    clip: float = 0.0
    chunk: int | None = None
    learned: nn.ParameterDict = field(default_factory=nn.ParameterDict)
    classes: Classes | None = None
    sampled: SampledRows | None = None

    def __call__(self, batch: PairBatch) -> tuple[Loss, Summary]:
        """Train on one batch."""
        self.optimiser.zero_grad()
        loss, summary = self.gradients(batch)
        if self.clip:
            nn.utils.clip_grad_norm_(_parameters(self.optimiser), self.clip)
        self.optimiser.step()
        if self.sampled is not None:
            self.sampled.store(self.optimiser)
        return loss, summary

    def gradients(self, batch: PairBatch) -> tuple[Loss, Summary]:
        """Add a batch's gradients to those of all trainable parameters."""
        if self.chunk is None or self.chunk >= len(batch):
            return self._whole(batch)
        return self._in_chunks(_alphabetical(batch), self.chunk)

    @property
    def all_learned(self) -> dict[str, Tensor]:
        """What the objective itself has learned, of all classes."""
        return dict(self.learned) if self.sampled is None else self.sampled.tables

    def finish_epoch(self) -> None:
        """What is left to do when all batches of an epoch were trained on."""

    def _whole(self, batch: PairBatch) -> tuple[Loss, Summary]:
        classes = self._classes(batch)
        scored, own = Scoring(self.matcher, self.objective, self.device, dict(self.learned)).of(batch, classes)
        loss = replace(self.objective(scored), own=own)
        loss.total.backward()  # type: ignore[no-untyped-call]
        return loss, scored.summary()

    def _classes(self, batch: PairBatch) -> PairClasses | None:
        """The class of each pair, after a part of all classes was drawn where only a part is looked at."""
        if self.classes is None:
            return None
        labels = self._to_device(self.classes.of(batch.groups))
        if self.sampled is None:
            return PairClasses(labels)
        rows, correction = self.sampled.draw(labels)
        self.sampled.load(self.optimiser)
        return PairClasses(rows, correction)

    def _in_chunks(self, batch: PairBatch, chunk: int) -> tuple[Loss, Summary]:
        images = [_Chunk(partial(self._encode_images, part), self.device) for part in _cut(batch.images, chunk)]
        texts = [
            _Chunk(partial(self._encode_texts, ids, lengths), self.device)
            for ids, lengths in zip(_cut(batch.ids, chunk), _cut(batch.lengths, chunk), strict=True)
        ]
        pairs = self._pairs(batch, *(concatenate_encodings([part.take() for part in side]) for side in (images, texts)))
        loss, summary, *gradients = self._loss_in_chunks(pairs, chunk)
        for side, gradient in zip((images, texts), gradients, strict=True):
            for part, own in zip(side, torch.split(gradient, chunk), strict=True):
                part.backward(own)
        return loss, summary

    def _loss_in_chunks(self, pairs: _Pairs, chunk: int) -> tuple[Loss, Summary, Tensor, Tensor]:
        """The loss of encoded pairs and its gradients in the encodings, never with all of their scores at once."""
        assert isinstance(self.objective, Ranking)  # checked before training began
        images = pairs.images.index_select(0, pairs.image_of).requires_grad_()  # an image a pair
        texts = pairs.texts.requires_grad_()
        share = 1 / len(pairs.groups) if self.objective.averaged else 1
        lowest, highest, terms = torch.inf, -torch.inf, {}
        for name, asking, asked in (("image_to_text", images, texts), ("text_to_image", texts, images)):
            total = images.new_zeros(())
            for own in torch.split(torch.arange(len(pairs.groups), device=self.device), chunk):
                queries = self._queries(pairs, own, asking, asked, asking is images)
                lost = self.objective.lost(queries).sum() * share
                lost.backward()  # type: ignore[no-untyped-call]
                total += lost.detach()
                least, most = torch.aminmax(queries.scores.detach())
                lowest, highest = min(lowest, float(least)), max(highest, float(most))
            terms[name] = total
        _, places, counts = torch.unique(pairs.groups, return_inverse=True, return_counts=True)
        summary = Summary(lowest, highest, counts[places])
        assert images.grad is not None
        assert texts.grad is not None
        of_images = torch.zeros_like(pairs.images).index_add_(0, pairs.image_of, images.grad)
        return Loss(terms, self.objective.averaged), summary, of_images, texts.grad

    def _queries(self, pairs: _Pairs, own: Tensor, asking: Tensor, asked: Tensor, are_images: bool) -> Queries:
        """Some of one side, in the order of the pairs, asking for their own among all of the other side."""
        some = asking[own[0] : own[-1] + 1]
        scores = self.matcher.score(some, asked) if are_images else self.matcher.score(asked, some).t()
        within = self.matcher.score(some, asking) if self.objective.needs_within else None
        return Queries(scores, own, pairs.groups[own][:, None] == pairs.groups, within, dict(self.learned))

    def _pairs(self, batch: PairBatch, images: Tensor, texts: Tensor) -> _Pairs:
        return _Pairs(images, texts, self._to_device(batch.image_of), self._to_device(batch.groups))

    def _encode_images(self, images: NDArray[Any]) -> Tensor:
        return self.matcher.encode_images(self._to_device(images))

    def _encode_texts(self, ids: Integers, lengths: Integers) -> Tensor:
        return self.matcher.encode_texts(tokens_of(ids, lengths, None, self.device))

    def _to_device(self, values: NDArray[Any]) -> Tensor:
        return torch.from_numpy(values).to(self.device)


@dataclass(frozen=True)
class SolvingStep(Step):
    """The steps of a stage that is solved: each batch is taken in, and at the end of the epoch the weights are set."""

    def __call__(self, batch: PairBatch) -> tuple[Loss, Summary]:
        """Take in one batch; there is no loss before the end."""
        tokens = tokens_of(batch.ids, batch.lengths, batch.text_features, self.device)
        # A text may be in several pairs, and behind those of the pairs stand texts that only rivals need.
        own = np.arange(len(batch)) if batch.text_of is None else batch.text_of
        images, image_of, text_of = map(self._to_device, (batch.images, batch.image_of, own))
        self.matcher.accumulate(images, tokens, image_of, text_of)
        none = torch.zeros((), device=self.device)
        return Loss({"correlation": none}), Summary(0.0, 0.0, torch.ones(len(batch)))

    def finish_epoch(self) -> None:
        """Solve for what was taken in."""
        self.matcher.solve()


@dataclass(frozen=True)
class _Pairs:
    """The encodings of a batch: each distinct image once, a text a pair, which image a pair has, and its group."""

    images: Tensor
    texts: Tensor
    image_of: Tensor
    groups: Tensor


class _Chunk:
    """A part of a batch, encoded without gradients, that can be encoded again, dropout and all, with them."""

    def __init__(self, encode: Callable[[], Tensor], device: torch.device) -> None:
        self._encode, self._device = encode, device
        self._random = _random_state(device)
        with torch.no_grad():
            self._encoded: Tensor | None = encode()

    def take(self) -> Tensor:
        """The encodings, which are then the caller's alone."""
        encoded, self._encoded = self._encoded, None
        assert encoded is not None
        return encoded

    def backward(self, gradient: Tensor) -> None:
        """Carry the gradient of the encodings into the weights, where there is anything to train."""
        _set_random_state(self._random, self._device)
        encoded = self._encode()
        if encoded.requires_grad:
            own = gradient[:, : encoded.shape[1]]  # a set may have fewer places than the longest of the batch
            encoded.backward(own)  # type: ignore[no-untyped-call]


def _alphabetical(batch: PairBatch) -> PairBatch:
    """The same pairs in the order of their words: texts of one chunk then share beginnings, which are computed once."""
    order = np.lexsort(batch.ids.T[::-1])
    return replace(
        batch,
        image_of=batch.image_of[order],
        ids=batch.ids[order],
        lengths=batch.lengths[order],
        groups=batch.groups[order],
    )


def _cut(rows: NDArray[Any], chunk: int) -> list[NDArray[Any]]:
    return np.split(rows, range(chunk, len(rows), chunk))


def _random_state(device: torch.device) -> list[Tensor]:
    """What dropout draws from: the CPU's generator, and that of another device."""
    states = [torch.get_rng_state()]
    return states if device.type == "cpu" else [*states, torch.get_device_module(device).get_rng_state()]


def _set_random_state(states: list[Tensor], device: torch.device) -> None:
    torch.set_rng_state(states[0])
    if device.type != "cpu":
        torch.get_device_module(device).set_rng_state(states[1])


def _parameters(optimiser: Optimizer) -> Iterator[Tensor]:
    return (parameter for group in optimiser.param_groups for parameter in group["params"])
