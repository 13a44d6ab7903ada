"""The towers of a pretrained pair: its networks behind the interfaces of a backbone and of a text tower."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import Self

from diptych.errors import RecipeError
from diptych.features.backbone import Backbone
from diptych.features.backbones.source import normalise, to_byte_scale
from diptych.features.image_input import ImageInput
from diptych.models.pretrained_pairs.architecture import PairArchitecture, TextReading
from diptych.models.pretrained_pairs.unpacking import packed_grids, unpacked
from diptych.models.tower import ImageTower, TextTower, Tokens
from diptych.models.towers.pretrained import crop_vectors, freeze_batch_statistics


class PairBackbone(Backbone):
    """The image network as a backbone, from squares of bytes to vectors of the joint space, not normalised."""

    def __init__(self, name: str, network: nn.Module, architecture: PairArchitecture) -> None:
        super().__init__()
        self.name, self.side, self.size, self.grid = name, architecture.image.side, architecture.size, (0, 0)
        self._mean = to_byte_scale(architecture.image.mean)
        self._deviation = to_byte_scale(architecture.image.deviation)
        self._patch, self._patches = architecture.image.patch, architecture.image.patches
        self.network = network

    def regions(self, pixels: Tensor) -> Tensor:
        """A pair has no regions: RecipeError."""
        raise RecipeError(f"{self.name}: a pretrained pair has one vector per image and no regions")

    def forward(self, pixels: Tensor) -> Tensor:
        """(images, 3, side, side) bytes to (images, size)."""
        values = normalise(pixels, self._mean, self._deviation)
        vectors: Tensor
        if self._patch is None or self._patches is None:
            vectors = self.network(values)
        else:
            grids = packed_grids(pixels, self._patch)
            vectors = self.network(unpacked(values, self._patch, self._patches), grids)
        return vectors


class PairImageTower(ImageTower):
    """The image network over one crop of a photo, which is prepared as the pair was trained to see it."""

    def __init__(self, backbone: PairBackbone, architecture: PairArchitecture) -> None:
        super().__init__()
        self.backbone, self.size = backbone, architecture.size
        side = architecture.image.side
        self.input = ImageInput("crops", (3, side, side), architecture.image.crops())

    def train(self, mode: bool = True) -> Self:
        """Set training mode, except for batch normalisation, which keeps its pretrained statistics."""
        super().train(mode)
        freeze_batch_statistics(self)
        return self

    @property
    def pretrained(self) -> Backbone:
        """The backbone."""
        return self.backbone

    def backbone_features(self, images: Tensor) -> Tensor:
        """The vectors of (images, 1, 3, side, side) bytes: (images, size)."""
        return crop_vectors(self.backbone, images).mean(1)

    def forward(self, images: Tensor) -> Tensor:
        """Encode crops as bytes, or stored vectors (images, size): (images, size)."""
        return images if images.is_floating_point() else self.backbone_features(images)


class PairTextTower(TextTower):
    """The text network. While it is frozen, its vectors are computed once per distinct text and stored."""

    caches_features = True
    features_at_once = 256

    def __init__(self, network: nn.Module, architecture: PairArchitecture) -> None:
        super().__init__()
        self.network, self.size, self.reading = network, architecture.size, architecture.text

    @property
    def feature_part(self) -> nn.Module:
        """The network."""
        return self.network

    @property
    def feature_options(self) -> dict[str, Any]:
        """How texts are padded."""
        return {"pair": self.reading.model_dump(mode="json")}

    def forward(self, tokens: Tokens) -> Tensor:
        """Encode padded texts, or return their stored vectors: (texts, size)."""
        if tokens.features is not None:
            return tokens.features
        vectors: Tensor = self.network(padded(tokens, self.reading))
        return vectors


def padded(tokens: Tokens, reading: TextReading) -> Tensor:
    """The ids as the network reads them: zeros behind each text, or every text filled up to the whole context.

    In an export every text has the whole context, because the networks' masks and positions have fixed sizes.
    """
    ids, lengths, fill = tokens.ids, tokens.lengths[:, None], reading.fill  # (texts, length), (texts, 1)
    if fill is None and not torch.compiler.is_compiling():
        places = torch.arange(ids.shape[1], device=ids.device)
        return torch.where(places < lengths, ids, 0)
    shift = reading.context - lengths if reading.fill_side == "left" else torch.zeros_like(lengths)
    places = torch.arange(reading.context, device=ids.device) - shift  # (texts, context), of each id in its text
    found = ids.gather(1, places.clamp(min=0).minimum(lengths - 1))
    return torch.where((places >= 0) & (places < lengths), found, fill or 0)
