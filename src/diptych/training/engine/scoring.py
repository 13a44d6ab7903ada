"""From a batch to what its objective reads: images and texts encoded, each once, and all scores that are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diptych.data.corpus import Floats, Integers
from diptych.data.sampling.offline import Offline
from diptych.data.sampling.pairs import PairBatch, Rivals
from diptych.models.matcher import EncodedBatch, Matcher
from diptych.models.tower import Tokens
from diptych.objectives.objective import Instances, Objective, OfflineScores, RivalScores, ScoredPairs

_Sides = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # of a pair and what was drawn for it: image and text


@dataclass(frozen=True)
class PairClasses:
    """The class of each pair, (pairs,), as a row of the classifier; of a sample of all classes, its `correction`."""

    rows: Tensor
    correction: Tensor | None = None


@dataclass(frozen=True)
class Scoring:
    """Scores batches for an objective; `learned` are the objective's own parameters."""

    matcher: Matcher
    objective: Objective
    device: torch.device
    learned: Mapping[str, Tensor]

    def of(self, batch: PairBatch, classes: PairClasses | None = None) -> tuple[ScoredPairs, dict[str, Tensor]]:
        """A batch's scores, with what a classifier reads where its pairs have classes; the model's own loss terms."""
        pairs = self._encode(batch)
        scored = self._paired(batch, pairs) if self.objective.pairs_only else self._crossed(batch, pairs)
        if classes is not None:
            scored = replace(scored, instances=_instances(pairs, classes))
        return scored, pairs.encoded.terms

    def _encode(self, batch: PairBatch) -> _EncodedPairs:
        image_of = self._to_device(batch.image_of)
        text_of = (
            torch.arange(len(batch), device=self.device) if batch.text_of is None else self._to_device(batch.text_of)
        )
        image_of_text = image_of
        if batch.text_of is not None:  # a text that is in several pairs belongs to the image of the first
            image_of_text = image_of[self._to_device(np.unique(batch.text_of, return_index=True)[1])]
        tokens = tokens_of(batch.ids, batch.lengths, batch.text_features, self.device)
        encoded = self.matcher.encode_batch(self._to_device(batch.images), tokens, image_of_text)
        return _EncodedPairs(encoded, image_of, text_of, repeated=batch.text_of is not None)

    def _crossed(self, batch: PairBatch, pairs: _EncodedPairs) -> ScoredPairs:
        """The scores of all images of a batch with all of its texts."""
        image_of, groups = pairs.image_of, self._to_device(batch.groups)
        # Behind the pairs' own stand the images and texts that only offline negatives or rivals need.
        images = pairs.encoded.images[: int(batch.image_of.max()) + 1]
        texts = pairs.encoded.texts[: int(pairs.text_of.max()) + 1]
        scores = pairs.by_texts(self.matcher.score(images, texts)[image_of])  # (pairs, pairs)
        within = None
        if self.objective.needs_within:
            among_texts = self.matcher.score(texts, texts)[pairs.text_of]
            within = (self.matcher.score(images, images)[image_of][:, image_of], pairs.by_texts(among_texts))
        asking = None if batch.asking is None else self._to_device(batch.asking)
        return ScoredPairs(
            scores,
            groups[:, None] == groups,
            within,
            None if batch.offline is None else self._offline(batch.offline, pairs.encoded, image_of),
            None if batch.rivals is None else self._rivals(batch.rivals, pairs),
            (self._first(batch.image_of), self._first(pairs.text_of.cpu().numpy())),
            None if asking is None else (asking[:, 0], asking[:, 1]),
            learned=self.learned,
        )

    def _paired(self, batch: PairBatch, pairs: _EncodedPairs) -> ScoredPairs:
        """The score of each pair, and those of its rivals: (pairs, 1 + rivals)."""
        assert batch.rivals is not None, "checked before training began"
        encoded = pairs.encoded
        own = self.matcher.score_pairs(encoded.images[pairs.image_of], encoded.texts[pairs.text_of])
        rivals = self._rivals(batch.rivals, pairs)
        scores = torch.cat([own[:, None], *(side for side in (rivals.images, rivals.texts) if side is not None)], dim=1)
        positives = torch.zeros_like(scores, dtype=torch.bool)
        positives[:, 0] = True
        return ScoredPairs(scores, positives, learned=self.learned)

    def _rivals(self, rivals: Rivals, pairs: _EncodedPairs) -> RivalScores:
        """Score each pair's rivals; all of them were encoded once, however often they were drawn."""
        of_images = of_texts = None
        if rivals.images is not None:
            of_images = self._scattered(rivals.images, lambda pair, other: (other, pairs.text_of[pair]), pairs.encoded)
        if rivals.texts is not None:
            of_texts = self._scattered(rivals.texts, lambda pair, other: (pairs.image_of[pair], other), pairs.encoded)
        return RivalScores(of_images, of_texts)

    def _scattered(self, rows: Integers, sides: _Sides, encoded: EncodedBatch) -> Tensor:
        """The scores of what was drawn, (pairs, rivals), minus infinity where nothing was."""
        drawn = self._to_device(rows)
        pair, place = (drawn >= 0).nonzero(as_tuple=True)
        images, texts = sides(pair, drawn[pair, place])
        found = self.matcher.score_pairs(encoded.images.index_select(0, images), encoded.texts.index_select(0, texts))
        return found.new_full(drawn.shape, -torch.inf).index_put((pair, place), found)

    def _first(self, of: Integers) -> Tensor:
        """Which pairs are the first with their image, or with their text."""
        first = np.zeros(len(of), bool)
        first[np.unique(of, return_index=True)[1]] = True
        return self._to_device(first)

    def _offline(self, offline: Offline, encoded: EncodedBatch, image_of: Tensor) -> OfflineScores:
        """Score each pair's offline negatives; all of them were encoded once, however often they are drawn."""
        images, texts = self._to_device(offline.images), self._to_device(offline.texts)  # (pairs, 2)
        own = torch.arange(len(images), device=self.device)
        pairs = ((image_of, texts[:, 0]), (images[:, 0], own), (images[:, 0], texts[:, 0]), (images[:, 1], texts[:, 1]))
        rows = [torch.cat(side) for side in zip(*pairs, strict=True)]
        scores = self.matcher.score_pairs(encoded.images[rows[0]], encoded.texts[rows[1]])
        text, image, both, derived = scores.chunk(4)
        return OfflineScores(text, image, both, derived, self._to_device(offline.drawn), self._to_device(offline.apart))

    def _to_device(self, values: NDArray[Any]) -> Tensor:
        return torch.from_numpy(values).to(self.device)


@dataclass(frozen=True)
class _EncodedPairs:
    """The encodings of a batch, and which of them each pair has; `repeated` says that a text is in several pairs."""

    encoded: EncodedBatch
    image_of: Tensor
    text_of: Tensor
    repeated: bool

    def by_texts(self, scores: Tensor) -> Tensor:
        """Scores with distinct texts, (pairs, texts), as scores with the text of each pair."""
        return scores[:, self.text_of] if self.repeated else scores


def _instances(pairs: _EncodedPairs, classes: PairClasses) -> Instances:
    """What a classifier reads of the pairs' own images and texts, each once."""
    images, texts = pairs.encoded.features or (pairs.encoded.images, pairs.encoded.texts)
    own_images, own_texts = images[: int(pairs.image_of.max()) + 1], texts[: int(pairs.text_of.max()) + 1]
    return Instances(own_images, own_texts, pairs.image_of, pairs.text_of, classes.rows, classes.correction)


def tokens_of(ids: Integers, lengths: Integers, features: Floats | None, device: torch.device) -> Tokens:
    """Padded words on a device, no longer than the longest text, and what a fitted tower has made of them."""
    cut = np.ascontiguousarray(ids[:, : lengths.max()])
    made = None if features is None else torch.from_numpy(features).to(device)
    return Tokens(torch.from_numpy(cut).to(device), torch.from_numpy(lengths).to(device), made)
