"""Batches of regions and phrases: which regions are what a phrase names, and which are not.

A region that overlaps the box of a phrase by 0.7 or more is what it names, one of the same photo that overlaps it by
less than 0.3 is not, and between the two nobody can say (Wang et al. 2018, section 4.1 and Algorithm 1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Literal, overload

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from diptych.data.boxes import box_iou
from diptych.data.corpus import Floats, Integers
from diptych.data.image_reader import Draw
from diptych.data.phrases import Mentions
from diptych.data.sampling.neighbours import Others, with_second
from diptych.data.sampling.pairs import Pairs, Rivals, epoch_random, spans
from diptych.settings import Count, Number, Settings

THINGS_AT_ONCE = 4096

Overlap = Annotated[Number, Field(gt=0, le=1)]


class PhraseSettings(Settings):
    """A stage's `phrases` table: it trains on phrases and regions of photos, not on texts and whole images.

    `positives` are the box that came with the data (`annotated`), `one` drawn at random among it and the proposals that
    overlap it by `alike` or more, or `all` of those. `rivals` regions of the same photo that overlap it by less than
    `apart` are drawn as negatives of each phrase; all of them, unless told.
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
            raise PydanticCustomError("apart", f"no more than alike, which is {alike:g}: a region would be both")
        return apart


class Places:
    """What each thing's box has to do with the regions of its photo, found once, from all mentions of a corpus.

    `boxes` are the proposals, (photos, proposals, 4), and `places` how many regions a photo has room for; the box of a
    thing stands behind the proposals, at its place among those of its photo.
    """

    def __init__(self, mentions: Mentions, boxes: Floats, places: int, settings: PhraseSettings) -> None:
        _, first = np.unique(mentions.entities, return_index=True)
        photos = mentions.images[first]  # (things,)
        proposals = boxes.shape[1]
        self.first = photos * places  # the number of each thing's first region
        self.own = self.first + proposals + place_of_things(photos)
        self.alike, self.apart = (np.zeros((len(photos), proposals), bool) for _ in range(2))
        for start in range(0, len(photos), THINGS_AT_ONCE):
            some = slice(start, start + THINGS_AT_ONCE)
            others = boxes[photos[some]]
            there = (others[..., 2:] > others[..., :2]).all(-1)
            shared = box_iou(mentions.boxes[first[some]][:, None], others)[:, 0]  # (things, proposals)
            self.alike[some] = there & (shared >= settings.alike)
            self.apart[some] = there & (shared < settings.apart)


def place_of_things(photos: Integers) -> Integers:
    """The place of each thing among those of its photo, in the order of the things."""
    order = np.argsort(photos, kind="stable")
    starts = np.searchsorted(photos[order], photos[order], side="left")
    place = np.empty(len(photos), np.int64)
    place[order] = np.arange(len(photos)) - starts
    return place


def annotated_boxes(mentions: Mentions, photos: int) -> Floats:
    """The boxes of each photo's things, in the order of `place_of_things`: (photos, boxes, 4), zeros behind them."""
    _, first = np.unique(mentions.entities, return_index=True)
    of = mentions.images[first]
    places = place_of_things(of)
    boxes = np.zeros((photos, int(places.max(initial=-1)) + 1, 4), np.float32)
    boxes[of, places] = mentions.boxes[first]
    return boxes


class RegionSampler:
    """Every mention once an epoch, with a region that shows it and regions of its photo that do not.

    Images of its pairs are numbers of regions, texts are numbers of mentions, and their group is the thing. With
    `neighbours` a region has a second phrase, and a phrase a second region, where there are such.
    """

    def __init__(
        self,
        mentions: Mentions,
        places: Places,
        size: int,
        seed: Sequence[int],
        settings: PhraseSettings,
        neighbours: bool = False,
    ) -> None:
        self._things, self._places = mentions.entities, places
        self._size, self._seed, self._settings = size, seed, settings
        self._phrases = _OtherWords(mentions, self._things) if neighbours else None

    def __len__(self) -> int:
        """The number of batches an epoch."""
        return len(spans(len(self._things), self._size))

    def epoch(self, number: int) -> Sequence[Pairs]:
        """The batches of one epoch, a pure function of the seed and the epoch's number, each drawn when asked for."""
        order = epoch_random(self._seed, number).permutation(len(self._things))
        return _Drawn(self._batch, order, spans(len(order), self._size), (*self._seed, number))

    def _batch(self, texts: Integers, draw: Draw) -> Pairs:
        random = epoch_random(draw[:-1], draw[-1])
        things = self._things[texts]
        asking = None
        if self._settings.positives == "all":
            rows, images = self._all_positives(things)
            texts, things = texts[rows], things[rows]
        else:
            images = self._drawn_positives(things, random)
        if self._phrases is not None:
            more_images = self._another_region(images, things, random)
            images, texts, asking = with_second(images, texts, self._phrases.draw(texts, random), more_images)
            things = self._things[texts]
        rivals = self._draw_rivals(things, random)
        if asking is not None:
            rivals[~asking[:, 1]] = -1  # nobody looks for a region there
        return Pairs(images, texts, draw, rivals=Rivals(images=rivals), asking=asking)

    def _drawn_positives(self, things: Integers, random: np.random.Generator) -> Integers:
        """A region for each thing: its own box, or one drawn among that and those like it."""
        if self._settings.positives == "annotated":
            own: Integers = self._places.own[things]
            return own
        return self._region(things, self._keys(things, random))

    def _all_positives(self, things: Integers) -> tuple[Integers, Integers]:
        """Every region of each thing: which of the things, and the region."""
        rows, alike = np.nonzero(self._places.alike[things])
        rows = np.concatenate([np.arange(len(things)), rows])
        images = np.concatenate([self._places.own[things], self._places.first[things][rows[len(things) :]] + alike])
        order = np.argsort(rows, kind="stable")
        return rows[order], images[order]

    def _another_region(self, images: Integers, things: Integers, random: np.random.Generator) -> Integers:
        """Another region of the same thing than the one that is there, or -1."""
        if self._settings.positives == "annotated":
            return np.full(len(images), -1)
        keys = self._keys(things, random)
        own = images == self._places.own[things]
        keys[np.arange(len(things)), np.where(own, keys.shape[1] - 1, images - self._places.first[things])] = -1
        return np.where(keys.max(1) >= 0, self._region(things, keys), -1)

    def _keys(self, things: Integers, random: np.random.Generator) -> NDArray[np.float64]:
        """A random number for each region that shows a thing, its own box the last, and -1 for each that does not."""
        keys = random.random((len(things), self._places.alike.shape[1] + 1))
        keys[:, :-1][~self._places.alike[things]] = -1
        return keys

    def _region(self, things: Integers, keys: NDArray[np.float64]) -> Integers:
        """The region with the highest key."""
        chosen = keys.argmax(1)
        found: Integers = self._places.first[things] + chosen
        return np.where(chosen == keys.shape[1] - 1, self._places.own[things], found)

    def _draw_rivals(self, things: Integers, random: np.random.Generator) -> Integers:
        """Regions of each thing's photo that show something else: (things, rivals), -1 where there is none."""
        apart = self._places.apart[things]
        keys = np.where(apart, random.random(apart.shape), 2.0)
        count = min(self._settings.rivals or apart.shape[1], apart.shape[1])
        if count < apart.shape[1]:
            chosen = np.argpartition(keys, count - 1, axis=1)[:, :count]
        else:
            chosen = np.broadcast_to(np.arange(count), apart.shape)
        numbers = self._places.first[things][:, None] + chosen
        return np.where(np.take_along_axis(apart, chosen, axis=1), numbers, -1)


class _Drawn(Sequence[Pairs]):
    """Batches that are drawn when they are asked for: their rivals would fill the memory."""

    def __init__(
        self, batch: Callable[[Integers, Draw], Pairs], order: Integers, cuts: list[slice], draw: Draw
    ) -> None:
        self._batch, self._order, self._cuts, self._draw = batch, order, cuts, draw
        self._steps = range(len(cuts))

    def __len__(self) -> int:
        return len(self._steps)

    @overload
    def __getitem__(self, place: int) -> Pairs: ...

    @overload
    def __getitem__(self, place: slice) -> _Drawn: ...

    def __getitem__(self, place: int | slice) -> Pairs | _Drawn:
        if isinstance(place, slice):
            some = _Drawn(self._batch, self._order, self._cuts, self._draw)
            some._steps = self._steps[place]
            return some
        step = self._steps[place]
        return self._batch(self._order[self._cuts[step]], (*self._draw, step))


class _OtherWords:
    """For each mention another one of the same thing that says it in other words."""

    def __init__(self, mentions: Mentions, things: Integers) -> None:
        numbers: dict[str, int] = {}
        words = np.array([numbers.setdefault(phrase, len(numbers)) for phrase in mentions.phrases], np.int64)
        # The first mention of each thing and wording stands for all that say the same.
        wordings, self._mentions, self._wording = np.unique(
            things * len(mentions) + words, return_index=True, return_inverse=True
        )
        self._others = Others(wordings // len(mentions), things)

    def draw(self, texts: Integers, random: np.random.Generator) -> Integers:
        """Another mention for each of these, or -1 where all say the same."""
        drawn = self._others.draw(texts, self._wording[texts], random)
        return np.where(drawn >= 0, self._mentions[drawn], -1)
