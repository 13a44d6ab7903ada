"""What matchers of vectors share that take a whole image or a photo's regions: towers, and the best product.

A photo's regions are a set, (regions, size), whose empty places are zeros. Such a photo is as good for a text as its
best region is.
"""

from __future__ import annotations

import torch
from torch import Tensor
from typing_extensions import Self

from diptych.features.backbone import Backbone
from diptych.features.image_input import ImageInput
from diptych.models.layers.sets import present
from diptych.models.matcher import Matcher, ModelSettings
from diptych.models.tower import NamedImageTower, NamedTextTower
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.text.gru import GRUSettings

BLOCK = 1 << 22  # products held at once where each image has several: 16 MB
FARTHEST = -1.0  # the product of opposite vectors of length one: what a photo without any region scores


class TwoTowerSettings(ModelSettings):
    """The towers, each one that a recipe names."""

    image: NamedImageTower = FeatureSettings()
    text: NamedTextTower = GRUSettings()
    words: int = 0

    def for_data(self, words: int, features: tuple[int, ...] | None) -> Self:
        """These settings for a vocabulary and, if the corpus brings stored features, their shape."""
        return self.model_copy(update={"words": words, "image": self.image.for_data(features)})


class TwoTowers(Matcher):
    """An image tower and a text tower, as parts `image` and `text`."""

    def __init__(self, settings: TwoTowerSettings) -> None:
        super().__init__()
        self.image = settings.image.build()
        self.text = settings.text.build(settings.words)

    @property
    def image_input(self) -> ImageInput:
        """What the image tower reads."""
        return self.image.input

    @property
    def has_regions(self) -> bool:
        """Whether an image is a set of regions, and not one vector or views of the whole."""
        regions = self.image.input.regions
        return regions is not None and regions.from_map

    @property
    def is_inner_product(self) -> bool:
        """Only where an image is one vector."""
        return not self.has_regions

    @property
    def localises(self) -> bool:
        """Only if the image tower proposes regions, each of which is then scored by itself."""
        regions = self.image_input.regions
        return regions is not None and regions.are_boxes

    @property
    def pretrained(self) -> Backbone | None:
        """The image tower's backbone, where it has one."""
        return self.image.pretrained

    def start_images(self) -> None:
        """Load the image tower's pretrained weights, where it has some."""
        self.image.start()

    def start_words(self, vectors: Tensor, found: Tensor) -> None:
        """Start the found words from given vectors."""
        self.text.start_words(vectors, found)


def best_products(images: Tensor, texts: Tensor) -> Tensor:
    """The product of each image, or of its best region, with each text, all of length one: (images, texts)."""
    if images.dim() == 2:
        return torch.mm(images, texts.t())
    size = max(1, BLOCK // max(1, images.shape[1] * len(texts)))
    return torch.cat([_best(some, some @ texts.t()) for some in torch.split(images, size)])


def best_products_of_pairs(images: Tensor, texts: Tensor) -> Tensor:
    """The same of image k and text k: (pairs,)."""
    if images.dim() == 2:
        return (images * texts).sum(1)
    return _best(images, images @ texts[:, :, None]).squeeze(1)


def _best(images: Tensor, products: Tensor) -> Tensor:
    """(images, regions, texts) to (images, texts), over the regions that are there."""
    there = present(images)
    if not there.all():
        products = products.masked_fill(~there[:, :, None], FARTHEST)
    return products.amax(1)
