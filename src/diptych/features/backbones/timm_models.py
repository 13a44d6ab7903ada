"""The image networks of timm, among them the ResNet and VGG of the papers; needs the extra `timm`."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from diptych.errors import RecipeError, one_line
from diptych.features.backbone import Backbone
from diptych.features.backbones import source
from diptych.optional import import_optional, quiet

# The torchvision weights that the papers' code used; timm's default weights for ResNet were trained differently.
PAPERS = {name: f"{name}.tv_in1k" for name in ("resnet50", "resnet152", "vgg16", "vgg19")}

NO_GRID = (0, 0)


class TimmBackbone(Backbone):
    """A timm network without its classifier: the classifier's input, and the last map before pooling.

    The classifier's input is the pooled vector of 2048 for a ResNet, and the output of the second fully connected
    layer after its ReLU (FC7) of 4096 for VGG. A network whose last features are not a grid has `grid` (0, 0) and no
    regions.
    """

    def __init__(self, name: str, network: Any, shapes: tuple[int, tuple[int, int]]) -> None:
        super().__init__()
        config = _timm().data.resolve_model_data_config(network)
        self.name = name
        self.any_side = name.startswith("resnet")
        self.side = source.square_side(name, *config["input_size"][1:])
        self.size, self.grid = shapes
        self._mean, self._deviation = source.to_byte_scale(config["mean"]), source.to_byte_scale(config["std"])
        network.reset_classifier(0)
        self.network = network

    def _features(self, pixels: Tensor) -> Any:
        return self.network.forward_features(source.normalise(pixels, self._mean, self._deviation))

    def regions(self, pixels: Tensor) -> Tensor:
        """The cells of the last map, or the tokens of the patches, row by row: (images, cells, channels)."""
        if self.grid == NO_GRID:
            raise RecipeError(f"backbone {self.name!r}: its last features are not a grid; use its pooled features")
        return cells(self.network, self._features(pixels)).float()

    def forward(self, pixels: Tensor) -> Tensor:
        """The classifier's input: (images, size)."""
        pooled: Tensor = self.network.forward_head(self._features(pixels), pre_logits=True)
        return pooled.float()


def build(name: str) -> TimmBackbone:
    """Build the architecture with random weights."""
    shapes = _shapes(name)
    return TimmBackbone(name, _create(name), shapes)


def load(name: str, weights: Path | None = None) -> TimmBackbone:
    """Load timm's pretrained weights, which are downloaded once, or those of a safetensors file."""
    shapes = _shapes(name)
    return TimmBackbone(name, _pretrained(name, weights), shapes)


@torch.inference_mode()
def classifier(name: str, weights: Path | None = None) -> nn.Linear:
    """Load the network's classifier; refused unless it is one linear layer on the backbone's vector."""
    _timm_name(name)
    network = _pretrained(name, weights).eval()
    last = network.get_classifier()
    if not isinstance(last, nn.Linear):
        raise source.no_classifier(name, "its classifier is not one linear layer")
    values = torch.randn(1, *network.pretrained_cfg["input_size"], generator=torch.Generator().manual_seed(0))
    vectors = network.forward_head(network.forward_features(values), pre_logits=True)
    # The layer may follow something that the vector lacks, such as a norm; only its output shows that.
    reads_vectors = vectors.shape == (1, last.in_features)
    if not reads_vectors or not torch.allclose(last(vectors), network(values), rtol=1e-3, atol=1e-3):
        raise source.no_classifier(name, "its classifier does not read the backbone's vector")
    return source.linear_layer(last.weight, last.bias)


def _pretrained(name: str, weights: Path | None) -> Any:
    """The network with its classifier and pretrained weights."""
    if weights is not None:
        source.read_weights(weights)  # refuse a file that timm would unpickle
        overlay = {"file": str(weights), "custom_load": False}
        try:
            return _create(name, pretrained=True, pretrained_cfg_overlay=overlay)
        except Exception as reason:  # timm converts weights of several origins, and fails in as many ways
            raise source.weights_do_not_fit(name, weights, reason) from None
    try:
        return _create(name, pretrained=True)
    except Exception as reason:  # a hub, a proxy or a full disk may raise anything
        raise source.weights_unavailable(name, reason) from None


def cells(network: Any, features: Any) -> Tensor:
    """A timm network's last features as cells, row by row: (images, cells, channels); empty if they are not a grid."""
    if not isinstance(features, Tensor) or features.dim() not in (3, 4):
        return torch.empty(0, *NO_GRID)
    if features.dim() == 4:
        channels_last = getattr(network, "output_fmt", "NCHW") == "NHWC"
        return features.flatten(1, 2) if channels_last else features.flatten(2).transpose(1, 2)
    patches = features[:, getattr(network, "num_prefix_tokens", 0) :]  # (images, tokens, channels)
    is_square = math.isqrt(patches.shape[1]) ** 2 == patches.shape[1]
    return patches if is_square else torch.empty(0, *NO_GRID)


def _timm() -> Any:
    return import_optional("timm", "pip install 'diptych[timm]'")


def _timm_name(name: str) -> str:
    """The name of a model in timm; raises RecipeError if timm does not have it."""
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
    model = _timm_name(name)
    with quiet():
        return _timm().create_model(model, **options)


@functools.cache
def _shapes(name: str) -> tuple[int, tuple[int, int]]:
    """The length of the vector and the grid, from a network on the meta device: its attributes are not reliable."""
    _timm_name(name)
    try:
        with torch.device("meta"), torch.no_grad():
            network = _create(name).eval()
            features = network.forward_features(torch.empty(1, *network.pretrained_cfg["input_size"]))
            _, size = network.forward_head(features, pre_logits=True).shape
            _, count, channels = cells(network, features).shape
    except Exception as reason:  # a few networks of timm do not classify images, and fail each in its own way
        raise RecipeError(f"backbone {name!r}: gives no vector for an image ({one_line(reason)})") from None
    return size, (count, channels)
