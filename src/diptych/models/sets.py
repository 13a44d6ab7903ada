"""Sets of vectors as encodings: (items, places, size), where an empty place is a row of zeros.

An image is the set of its regions, a text the set of its words. All vectors that are there have length one, so that
nothing else is zero, and no lengths or masks travel beside an encoding.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from typing_extensions import Self

from diptych.features.backbone import Backbone
from diptych.features.reader import ImageInput
from diptych.models.matcher import Matcher, ModelSettings
from diptych.models.region_towers.features import RegionFeatureSettings
from diptych.models.towers import NamedRegionTower, Tokens
from diptych.models.word_states import WordSettings, WordStates
from diptych.settings import Count


def present(sets: Tensor) -> Tensor:
    """Which places are taken: (items, places)."""
    there = sets.detach()[:, :, 0] != 0  # nearly always enough, and reads a thousandth
    if not there.all():
        there[~there] = (sets.detach()[~there] != 0).any(1)
    return there


class Group(NamedTuple):
    """Items whose vectors are taken together: `vectors` (places, items, size), and which are `there`, if not all."""

    vectors: Tensor
    there: Tensor | None = None  # (places, items)

    def gram(self) -> Tensor:
        """The products of each item's vectors with one another: (items, places, places)."""
        by_item = self.vectors.transpose(0, 1)
        return by_item @ by_item.mT


class Arranged(NamedTuple):
    """The vectors of a side one below the other, (vectors, size), group by group; the groups are views of them."""

    vectors: Tensor
    groups: list[Group]

    @property
    def items(self) -> list[int]:
        """The number of items of each group."""
        return [group.vectors.shape[1] for group in self.groups]

    @property
    def sizes(self) -> list[int]:
        """The number of vectors of each group."""
        return [group.vectors.shape[0] * group.vectors.shape[1] for group in self.groups]


def whole(sets: Tensor) -> Arranged:
    """All items as one group, with their empty places."""
    there = present(sets)
    vectors = sets.transpose(0, 1).contiguous()
    return Arranged(vectors.flatten(0, 1), [Group(vectors, None if there.all() else there.t())])


def by_count(sets: Tensor) -> Tensor:
    """The items in the order of the number of their vectors."""
    return present(sets).sum(1).argsort(stable=True)


def grouped(sets: Tensor, order: Tensor) -> Arranged:
    """Some items, in the order of `by_count`, as groups of the same number of vectors without any empty place."""
    there = present(sets).index_select(0, order)  # (items, places)
    items = torch.bincount(there.sum(1))  # by the number of vectors
    shapes = [(number, int(items[number])) for number in items.nonzero().flatten().tolist()]
    sizes = [number * count for number, count in shapes]
    row, place = there.nonzero().unbind(1)  # of all vectors, item by item
    rows = (order[row] * sets.shape[1] + place).split_with_sizes(sizes)
    by_place = [of_group.view(-1, number).t().flatten() for of_group, (number, _) in zip(rows, shapes, strict=True)]
    vectors = sets.flatten(0, 1).index_select(0, torch.cat(by_place))
    parts = zip(vectors.split_with_sizes(sizes), shapes, strict=True)
    return Arranged(vectors, [Group(part.view(*shape, -1)) for part, shape in parts])


class SetSettings(ModelSettings):
    """What matchers of sets share: the joint size, the image's regions and the words of a text."""

    joint: Count = 1024
    image: NamedRegionTower = RegionFeatureSettings()
    text: WordSettings = WordSettings()
    words: int = 0

    def fitted(self, words: int, features: tuple[int, ...] | None) -> Self:
        """These settings for a vocabulary and, if the corpus brings stored regions, their shape."""
        return self.model_copy(update={"words": words, "image": self.image.fitted(features)})


class SetMatcher(Matcher):
    """Regions and words as vectors of length one in the joint space; what is made of them, a model's score says.

    A stage can name its parts `image`, `project` and `text`.
    """

    def __init__(self, settings: SetSettings) -> None:
        super().__init__()
        self.image = settings.image.build()
        self.project = nn.Linear(self.image.size, settings.joint)
        self.text = WordStates(settings.words, settings.text.word, settings.joint)
        nn.init.xavier_uniform_(self.project.weight)
        nn.init.zeros_(self.project.bias)

    @property
    def image_input(self) -> ImageInput:
        """What the image tower reads."""
        return self.image.input

    @property
    def pretrained(self) -> Backbone | None:
        """The image tower's backbone, where it has one."""
        return self.image.pretrained

    def encode_images(self, images: Tensor) -> Tensor:
        """What the image tower reads to (images, regions, joint), zeros for regions that an image does not have."""
        regions: Tensor = self.image(images)
        joint = normalize(self.project(regions), dim=2)
        return joint * present(regions)[:, :, None]  # the bias would make a vector of no region

    def encode_texts(self, tokens: Tokens) -> Tensor:
        """Tokens to (texts, words, joint), zeros beyond a text."""
        words: Tensor = self.text(tokens)
        return words

    def start_images(self) -> None:
        """Load the image tower's pretrained weights, where it has some."""
        self.image.start()

    def start_words(self, vectors: Tensor, found: Tensor) -> None:
        """Start the found words from given vectors."""
        self.text.start_words(vectors, found)
