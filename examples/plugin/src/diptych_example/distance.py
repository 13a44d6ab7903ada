"""A model: VSE with minus the distance of the embeddings as the score."""

from __future__ import annotations

import torch
from torch import Tensor

from diptych.models.matchers.vse import VSE, VSESettings


class DistanceSettings(VSESettings):
    """The settings of VSE."""

    def build(self) -> Distance:
        """A matcher with random weights."""
        return Distance(self)


class Distance(VSE):
    """See the module docstring."""

    @property
    def is_inner_product(self) -> bool:
        """For unit vectors: the nearest one has the largest inner product."""
        return self.settings.normalise_images and self.settings.normalise_texts

    def score(self, images: Tensor, texts: Tensor) -> Tensor:
        """Minus the distance: (images, texts)."""
        return -torch.cdist(images, texts)
