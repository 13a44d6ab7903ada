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

BLOCK = 1 << 22  # products in memory at once if images have several vectors: 16 MB
FARTHEST = -1.0  # the product of opposite unit vectors: the score of a photo without regions


class TwoTowerSettings(ModelSettings):
    """The towers, each by its name in the recipe."""

    image: NamedImageTower = FeatureSettings()
    text: NamedTextTower = GRUSettings()
    words: int = 0

    def for_data(self, vocabulary_size: int, feature_shape: tuple[int, ...] | None) -> Self:
        """These settings with the vocabulary's size and the shape of stored features, if any."""
        towers = {"image": self.image.for_data(feature_shape), "text": self.text.completed()}
        return self.model_copy(update={"words": vocabulary_size, **towers})


class TwoTowers(Matcher):
    """An image tower and a text tower, as parts `image` and `text`."""

    def __init__(self, settings: TwoTowerSettings) -> None:
        super().__init__()
        self.image = settings.image.build()
        self.text = settings.text.build(settings.words)

    @property
    def image_input(self) -> ImageInput:
        """The image tower's input."""
        return self.image.input

    @property
    def has_regions(self) -> bool:
        """Whether an image is a set of regions, instead of one vector or views of the whole."""
        regions = self.image.input.regions
        return regions is not None and regions.from_map

    @property
    def is_inner_product(self) -> bool:
        """If an image is one vector."""
        return not self.has_regions

    @property
    def localises(self) -> bool:
        """Only if the image tower proposes regions, each of which is then scored by itself."""
        regions = self.image_input.regions
        return regions is not None and regions.are_boxes

    @property
    def pretrained(self) -> Backbone | None:
        """The image tower's backbone, if any."""
        return self.image.pretrained

    def load_pretrained(self) -> None:
        """Load the towers' pretrained weights, if any."""
        self.image.load_pretrained()
        self.text.load_pretrained()

    def load_word_vectors(self, vectors: Tensor, found: Tensor) -> None:
        """Initialise the found words with these vectors."""
        self.text.load_word_vectors(vectors, found)


def best_products(images: Tensor, texts: Tensor) -> Tensor:
    """The product of each image, or of its best region, with each text, all unit vectors: (images, texts)."""
    if images.dim() == 2:
        return torch.mm(images, texts.t())
    size = max(1, BLOCK // max(1, images.shape[1] * len(texts)))
    return torch.cat([_best(some, some @ texts.t()) for some in torch.split(images, size)])


def best_products_of_pairs(images: Tensor, texts: Tensor) -> Tensor:
    """The same for image k and text k: (pairs,)."""
    if images.dim() == 2:
        return (images * texts).sum(1)
    return _best(images, images @ texts[:, :, None]).squeeze(1)


def _best(images: Tensor, products: Tensor) -> Tensor:
    """Reduce (images, regions, texts) to (images, texts), over the regions that are present."""
    there = present(images)
    if not there.all():
        products = products.masked_fill(~there[:, :, None], FARTHEST)
    return products.amax(1)
