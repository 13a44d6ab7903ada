"""Batches of regions and phrases: which regions of a photo a phrase names, and which it does not.

A region that overlaps the box of a phrase by 0.7 or more is a positive, one of the same photo that overlaps it by less
than 0.3 is a negative, and those in between are neither (Wang et al. 2018, section 4.1 and Algorithm 1). Exactly 0.7 is
a positive, and exactly 0.3 is not a negative, however the boxes are rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Literal, overload

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from diptych.data.boxes import upper_iou
from diptych.data.corpus import Floats, Integers
from diptych.data.image_reader import Draw
from diptych.data.phrases import Mentions
from diptych.data.sampling.negatives import DrawnNegatives
from diptych.data.sampling.neighbours import GroupMembers, QueryDirections, add_second_positives
from diptych.data.sampling.pairs import Pairs, batch_slices, epoch_random
from diptych.settings import Count, Number, Settings

ENTITIES_AT_ONCE = 4096

Overlap = Annotated[Number, Field(gt=0, le=1)]


class PhraseSettings(Settings):
    """A stage's `phrases` table: train on phrases and regions of photos instead of texts and whole images.

    `positives` is the annotated box (`annotated`), `one` region drawn at random from it and the proposals that overlap
    it by `alike` or more, or `all` of those. `rivals` is the number of negatives to draw for each phrase from the
    regions of the same photo that overlap its box by less than `apart`; all of them by default.
    """

    positives: Literal["annotated", "one", "all"] = "one"
    alike: Overlap = 0.7
    apart: Overlap = 0.3
    rivals: Count | None = None

    @field_validator("apart")
    @classmethod
    def _not_both(cls, apart: float, fields: ValidationInfo) -> float:
        alike = fields.data.get("alike", 1.0)
        if apart > alike:
            raise PydanticCustomError("apart", f"must not exceed alike = {alike:g}: a region would be both")
        return apart


class RegionRoles:
    """Which regions of its photo are positives and which are negatives of each entity.

    `boxes` are the proposals, (photos, proposals, 4). `regions_per_photo` is the number of regions that a photo has
    room for: region r of photo i has the number i x regions_per_photo + r. The annotated boxes of a photo follow its
    proposals.
    """

    def __init__(self, mentions: Mentions, boxes: Floats, regions_per_photo: int, settings: PhraseSettings) -> None:
        _, first = np.unique(mentions.entities, return_index=True)
        photos = mentions.images[first]  # (entities,)
        proposals = boxes.shape[1]
        self.first_region = photos * regions_per_photo  # of each entity's photo
        self.annotated = self.first_region + proposals + position_within_photo(photos)
        self.is_positive, self.is_negative = (np.zeros((len(photos), proposals), bool) for _ in range(2))
        for start in range(0, len(photos), ENTITIES_AT_ONCE):
            part = slice(start, start + ENTITIES_AT_ONCE)
            proposed = boxes[photos[part]]
            exists = (proposed[..., 2:] > proposed[..., :2]).all(-1)
            overlap = upper_iou(mentions.boxes[first[part]][:, None], proposed)[:, 0]  # (entities, proposals)
            self.is_positive[part] = exists & (overlap >= settings.alike)
            self.is_negative[part] = exists & (overlap < settings.apart)


def position_within_photo(photos: Integers) -> Integers:
    """The position of each entity among those of its photo, from 0, in the order given."""
    order = np.argsort(photos, kind="stable")
    starts = np.searchsorted(photos[order], photos[order], side="left")
    position = np.empty(len(photos), np.int64)
    position[order] = np.arange(len(photos)) - starts
    return position


def annotated_boxes(mentions: Mentions, photos: int) -> Floats:
    """The boxes of each photo's entities, ordered by `position_within_photo`: (photos, boxes, 4), padded with zeros."""
    _, first = np.unique(mentions.entities, return_index=True)
    photo = mentions.images[first]
    rank = position_within_photo(photo)
    boxes = np.zeros((photos, int(rank.max(initial=-1)) + 1, 4), np.float32)
    boxes[photo, rank] = mentions.boxes[first]
    return boxes


class RegionSampler:
    """Draws every mention once per epoch, with a region that shows it and regions of its photo that do not.

    The images of its pairs are numbers of regions, the texts are numbers of mentions, and the group is the entity. With
    `neighbours`, a region gets a second phrase and a phrase a second region, if there are any.
    """

    def __init__(
        self,
        mentions: Mentions,
        roles: RegionRoles,
        size: int,
        seed: Sequence[int],
        settings: PhraseSettings,
        neighbours: bool = False,
    ) -> None:
        self._entities, self._roles = mentions.entities, roles
        self._size, self._seed, self._settings = size, seed, settings
        self._paraphrases = _Paraphrases(mentions) if neighbours else None

    def __len__(self) -> int:
        """The number of batches per epoch."""
        return len(batch_slices(len(self._entities), self._size))

    def epoch(self, number: int) -> Sequence[Pairs]:
        """The batches of one epoch, a pure function of the seed and the epoch number, each drawn on access."""
        order = epoch_random(self._seed, number).permutation(len(self._entities))
        return _LazyBatches(self._batch, order, batch_slices(len(order), self._size), (*self._seed, number))

    def _batch(self, texts: Integers, draw: Draw) -> Pairs:
        random = epoch_random(draw[:-1], draw[-1])
        entities = self._entities[texts]
        if self._settings.positives == "all":
            rows, images = self._all_positives(entities)
            texts, entities = texts[rows], entities[rows]
        else:
            images = self._one_positive(entities, random)
        pairs = Pairs(images, texts, draw)
        if self._paraphrases is not None:
            other_regions = self._other_positive(images, entities, random)
            pairs = add_second_positives(pairs, other_regions, self._paraphrases.draw(texts, random))
        negatives = self._draw_negatives(self._entities[pairs.texts], random)
        directions = pairs.extras.get(QueryDirections)
        if directions is not None:
            negatives[~directions.is_query[:, 1]] = -1  # only texts that look for their region need negative regions
        return pairs.with_extra(DrawnNegatives(images=negatives))

    def _one_positive(self, entities: Integers, random: np.random.Generator) -> Integers:
        """One region for each entity: its annotated box, or a random one of that box and the positive proposals."""
        if self._settings.positives == "annotated":
            annotated: Integers = self._roles.annotated[entities]
            return annotated
        return self._best_region(entities, self._random_keys(entities, random))

    def _all_positives(self, entities: Integers) -> tuple[Integers, Integers]:
        """Every positive region of each entity: the row of the entity, and the number of the region."""
        rows, proposals = np.nonzero(self._roles.is_positive[entities])
        images = np.concatenate([self._roles.annotated[entities], self._roles.first_region[entities][rows] + proposals])
        rows = np.concatenate([np.arange(len(entities)), rows])
        order = np.argsort(rows, kind="stable")
        return rows[order], images[order]

    def _other_positive(self, images: Integers, entities: Integers, random: np.random.Generator) -> Integers:
        """A positive region of each entity other than the given one, or -1."""
        if self._settings.positives == "annotated":
            return np.full(len(images), -1)
        keys = self._random_keys(entities, random)
        is_annotated = images == self._roles.annotated[entities]
        columns = np.where(is_annotated, keys.shape[1] - 1, images - self._roles.first_region[entities])
        keys[np.arange(len(entities)), columns] = -1
        return np.where(keys.max(1) >= 0, self._best_region(entities, keys), -1)

    def _random_keys(self, entities: Integers, random: np.random.Generator) -> NDArray[np.float64]:
        """A random key for each positive region, the annotated box last, and -1 for the others."""
        keys = random.random((len(entities), self._roles.is_positive.shape[1] + 1))
        keys[:, :-1][~self._roles.is_positive[entities]] = -1
        return keys

    def _best_region(self, entities: Integers, keys: NDArray[np.float64]) -> Integers:
        """The region with the highest key."""
        chosen = keys.argmax(1)
        proposed: Integers = self._roles.first_region[entities] + chosen
        return np.where(chosen == keys.shape[1] - 1, self._roles.annotated[entities], proposed)

    def _draw_negatives(self, entities: Integers, random: np.random.Generator) -> Integers:
        """Proposals of each entity's photo that overlap its box by less than `apart`: (entities, negatives), or -1."""
        is_negative = self._roles.is_negative[entities]
        keys = np.where(is_negative, random.random(is_negative.shape), 2.0)
        count = min(self._settings.rivals or is_negative.shape[1], is_negative.shape[1])
        if count < is_negative.shape[1]:
            chosen = np.argpartition(keys, count - 1, axis=1)[:, :count]
        else:
            chosen = np.broadcast_to(np.arange(count), is_negative.shape)
        numbers = self._roles.first_region[entities][:, None] + chosen
        return np.where(np.take_along_axis(is_negative, chosen, axis=1), numbers, -1)


class _LazyBatches(Sequence[Pairs]):
    """Batches that are drawn on access, because the negatives of a whole epoch would fill the memory."""

    def __init__(
        self, batch: Callable[[Integers, Draw], Pairs], order: Integers, cuts: list[slice], draw: Draw
    ) -> None:
        self._batch, self._order, self._cuts, self._draw = batch, order, cuts, draw
        self._steps = range(len(cuts))

    def __len__(self) -> int:
        return len(self._steps)

    @overload
    def __getitem__(self, index: int) -> Pairs: ...

    @overload
    def __getitem__(self, index: slice) -> _LazyBatches: ...

    def __getitem__(self, index: int | slice) -> Pairs | _LazyBatches:
        if isinstance(index, slice):
            part = _LazyBatches(self._batch, self._order, self._cuts, self._draw)
            part._steps = self._steps[index]
            return part
        step = self._steps[index]
        return self._batch(self._order[self._cuts[step]], (*self._draw, step))


class _Paraphrases:
    """For each mention, another mention of the same entity in other words."""

    def __init__(self, mentions: Mentions) -> None:
        numbers: dict[str, int] = {}
        strings = np.array([numbers.setdefault(phrase, len(numbers)) for phrase in mentions.phrases], np.int64)
        # The first mention of each entity and string stands for all equal ones.
        wordings, self._mentions, self._wording = np.unique(
            mentions.entities * len(mentions) + strings, return_index=True, return_inverse=True
        )
        self._others = GroupMembers(wordings // len(mentions), mentions.entities)

    def draw(self, texts: Integers, random: np.random.Generator) -> Integers:
        """Another mention for each of these, or -1 if all say the same."""
        drawn = self._others.draw_other(texts, self._wording[texts], random)
        return np.where(drawn >= 0, self._mentions[drawn], -1)
