"""Every image network of timm, which gives the papers' ResNet and VGG: needs the extra `timm`."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from diptych.errors import DiptychError, RecipeError
from diptych.features.backbone import Backbone
from diptych.features.backbones import source

# The weights that the papers' code took from torchvision; timm's own default for ResNet is another training.
PAPERS = {name: f"{name}.tv_in1k" for name in ("resnet50", "resnet152", "vgg16", "vgg19")}

NO_GRID = (0, 0)


class TimmBackbone(Backbone):
    """A timm network without its classifier: what the classifier would read, and the last map before the pooling.

    That is the pooled 2048 of a ResNet and the 4096 of VGG's second fully connected layer after its ReLU (FC7). A
    network whose last features are no grid has the grid (0, 0), and no regions.
    """

    def __init__(self, name: str, network: Any, shapes: tuple[int, tuple[int, int]]) -> None:
        super().__init__()
        config = _timm().data.resolve_model_data_config(network)
        self.name = name
        self.any_side = name.startswith("resnet")
        self.side = source.square_side(name, *config["input_size"][1:])
        self.size, self.grid = shapes
        self._mean, self._deviation = source.of_bytes(config["mean"]), source.of_bytes(config["std"])
        network.reset_classifier(0)
        self.network = network

    def _features(self, pixels: Tensor) -> Any:
        return self.network.forward_features(source.normalise(pixels, self._mean, self._deviation))

    def regions(self, pixels: Tensor) -> Tensor:
        """The cells of the last map, or the tokens of the patches, row by row: (images, cells, channels)."""
        if self.grid == NO_GRID:
            raise RecipeError(f"backbone {self.name!r}: its last features are no grid; use its pooled features")
        return cells(self.network, self._features(pixels)).float()

    def forward(self, pixels: Tensor) -> Tensor:
        """What the classifier would read: (images, size)."""
        pooled: Tensor = self.network.forward_head(self._features(pixels), pre_logits=True)
        return pooled.float()


def build(name: str) -> TimmBackbone:
    """The architecture with random weights."""
    shapes = _shapes(name)
    return TimmBackbone(name, _create(name), shapes)


def load(name: str, weights: Path | None = None) -> TimmBackbone:
    """The network with timm's pretrained weights, which are downloaded once, or those of a safetensors file."""
    shapes = _shapes(name)
    if weights is not None:
        source.read_weights(weights)  # refuses what timm would try to unpickle
        overlay = {"file": str(weights), "custom_load": False}
        try:
            network = _create(name, pretrained=True, pretrained_cfg_overlay=overlay)
        except Exception as reason:  # timm adapts the names of several origins, and fails in as many ways
            raise DiptychError(f"{weights}: does not fit the backbone {name!r} ({source.one_line(reason)})") from None
    else:
        try:
            network = _create(name, pretrained=True)
        except Exception as reason:  # what a hub, a proxy or a full disk raises is anything
            raise source.no_weights(name, reason) from None
    return TimmBackbone(name, network, shapes)


def cells(network: Any, features: Any) -> Tensor:
    """A timm network's last features as cells, row by row: (images, cells, channels); none if they are no grid."""
    if not isinstance(features, Tensor) or features.dim() not in (3, 4):
        return torch.empty(0, *NO_GRID)
    if features.dim() == 4:
        last = getattr(network, "output_fmt", "NCHW") == "NHWC"
        return features.flatten(1, 2) if last else features.flatten(2).transpose(1, 2)
    patches = features[:, getattr(network, "num_prefix_tokens", 0) :]  # (images, tokens, channels)
    is_square = math.isqrt(patches.shape[1]) ** 2 == patches.shape[1]
    return patches if is_square else torch.empty(0, *NO_GRID)


def _timm() -> Any:
    return source.import_source("timm", "pip install 'diptych[timm]'")


def _check(name: str) -> str:
    """The name that timm knows, after a look whether it does."""
    timm = _timm()
    model = PAPERS.get(name, name.removeprefix("timm:"))
    architecture, _, tag = model.partition(".")
    if not timm.is_model(architecture):
        raise source.unknown_name(name, (f"timm:{known}" for known in timm.list_models()))
    tagged = timm.list_models(f"{architecture}.*", pretrained=True)
    if tag and model not in tagged:
        raise source.unknown_name(name, (f"timm:{known}" for known in tagged or [architecture]))
    return model


def _create(name: str, **options: Any) -> Any:
    model = _check(name)
    with source.silence():
        return _timm().create_model(model, **options)


@functools.cache
def _shapes(name: str) -> tuple[int, tuple[int, int]]:
    """The length of the vector and the grid, from a network without memory: attributes do not tell them reliably."""
    _check(name)
    try:
        with torch.device("meta"), torch.no_grad():
            network = _create(name).eval()
            features = network.forward_features(torch.empty(1, *network.pretrained_cfg["input_size"]))
            _, size = network.forward_head(features, pre_logits=True).shape
            _, count, channels = cells(network, features).shape
    except Exception as reason:  # a few networks of timm are no classifiers of images, each in its own way
        raise RecipeError(f"backbone {name!r}: gives no vector for an image ({source.one_line(reason)})") from None
    return size, (count, channels)
