"""The image towers of open_clip; needs the extra `open-clip`.

A name is an architecture, optionally with the tag of its weights: `ViT-B-32/laion2b_s34b_b79k`. The tag defaults to the
first that open_clip lists. It also selects the activation and the normalisation of colours that the weights were
trained with, so it matters even if the weights come from a file.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from diptych.errors import RecipeError
from diptych.features.backbone import Backbone
from diptych.features.backbones import source
from diptych.features.backbones.timm_models import NO_GRID, cells
from diptych.optional import import_optional, quiet

# open_clip builds an image tower only as part of a model; this is the smallest text tower for such a model.
_NO_TEXT = {"context_length": 1, "vocab_size": 1, "width": 1, "heads": 1, "layers": 1}


class OpenClipBackbone(Backbone):
    """An image tower, and its vector in the joint space that it was trained in, not normalised.

    Regions are the patch tokens or the cells of the last map, before the projection. A tower that pools by attention
    has no such grid: its `grid` is (0, 0) and it has no regions.
    """

    def __init__(self, name: str, network: Any, shapes: tuple[int, tuple[int, int]]) -> None:
        super().__init__()
        self.name = name
        self.side = source.square_side(name, *_image_size(network))
        self.size, self.grid = shapes
        _, tag = _parse(name)
        self._mean = source.to_byte_scale(tag.get("mean") or _open_clip().OPENAI_DATASET_MEAN)
        self._deviation = source.to_byte_scale(tag.get("std") or _open_clip().OPENAI_DATASET_STD)
        self.network = network

    def regions(self, pixels: Tensor) -> Tensor:
        """The patch tokens or the cells of the last map, row by row: (images, cells, channels)."""
        if self.grid == NO_GRID:
            raise RecipeError(f"backbone {self.name!r}: its image tower has no grid; use its pooled features")
        return _cells(self.network, self._normalise(pixels)).float()

    def forward(self, pixels: Tensor) -> Tensor:
        """The tower's vector: (images, size)."""
        return _vector(self.network, self._normalise(pixels)).float()

    def _normalise(self, pixels: Tensor) -> Tensor:
        return source.normalise(pixels, self._mean, self._deviation)


def build(name: str) -> OpenClipBackbone:
    """Build the architecture with random weights."""
    return OpenClipBackbone(name, _create(name), _shapes(name))


def load(name: str, weights: Path | None = None) -> OpenClipBackbone:
    """Load open_clip's pretrained weights, which are downloaded once, or those of a safetensors file.

    The file holds the image tower, or a whole model whose image tower has the prefix `visual.`.
    """
    network = _create(name) if weights is not None else _download(name)
    if weights is not None:
        tensors = source.read_weights(weights)
        tower = {key.removeprefix("visual."): tensors[key] for key in tensors if key.startswith("visual.")}
        try:
            network.load_state_dict(tower or tensors)
        except RuntimeError as reason:
            raise source.weights_do_not_fit(name, weights, reason) from None
    return OpenClipBackbone(name, network, _shapes(name))


def _open_clip() -> Any:
    return import_optional("open_clip", "pip install 'diptych[open-clip]'")


def _parse(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The configurations of an architecture and of a tag; the tag is empty if open_clip has no weights."""
    open_clip = _open_clip()
    architecture, _, tag = name.removeprefix("open-clip:").partition("/")
    if architecture not in open_clip.list_models():
        raise source.unknown_name(name, (f"open-clip:{known}" for known in open_clip.list_models()))
    tags = open_clip.list_pretrained_tags_by_model(architecture)
    if tag and tag not in tags:
        raise source.unknown_name(
            name, [f"open-clip:{architecture}", *(f"open-clip:{architecture}/{known}" for known in tags)]
        )
    tag = tag or next(iter(tags), "")
    about = {"architecture": architecture, "tag": tag, **open_clip.get_pretrained_cfg(architecture, tag)}
    return open_clip.get_model_config(architecture), about


def _quick_gelu(model: dict[str, Any], tag: dict[str, Any]) -> bool:
    """Whether the weights were trained with the approximate GELU; open_clip only warns of a mismatch."""
    return bool(model.get("quick_gelu") or tag.get("quick_gelu"))


def _create(name: str) -> Any:
    model, tag = _parse(name)
    vision = {**model["vision_cfg"], "timm_model_pretrained": False}
    with quiet():
        return _open_clip().CLIP(model["embed_dim"], vision, _NO_TEXT, quick_gelu=_quick_gelu(model, tag)).visual


def _download(name: str) -> Any:
    model, tag = _parse(name)
    if not tag["tag"]:
        raise RecipeError(f"backbone {name!r}: open_clip has no weights for it; give a safetensors file")
    try:
        with quiet():
            create, quick_gelu = _open_clip().create_model, _quick_gelu(model, tag)
            return create(tag["architecture"], pretrained=tag["tag"], force_quick_gelu=quick_gelu).visual
    except Exception as reason:  # a hub, a proxy or a full disk may raise anything
        raise source.weights_unavailable(name, reason) from None


def _image_size(network: Any) -> tuple[int, int]:
    size = network.image_size
    return (size, size) if isinstance(size, int) else (size[0], size[1])


def _vector(network: Any, values: Tensor) -> Tensor:
    output = network(values)
    vector: Tensor = output[0] if isinstance(output, tuple) else output  # some towers return (vector, tokens)
    return vector


def _cells(network: Any, values: Tensor) -> Tensor:
    if hasattr(network, "trunk"):  # a timm network
        return cells(network.trunk, network.trunk.forward_features(values))
    if getattr(network, "attn_pool", None) is not None:
        return torch.empty(0, *NO_GRID)
    found = network.forward_intermediates(values, indices=1, normalize_intermediates=True, intermediates_only=True)
    last: Tensor = found["image_intermediates"][-1]  # (images, channels, rows, columns)
    return last.flatten(2).transpose(1, 2)


@functools.cache
def _shapes(name: str) -> tuple[int, tuple[int, int]]:
    """The length of the vector and the grid, from a tower on the meta device."""
    with torch.device("meta"), torch.no_grad():
        network = _create(name).eval()
        values = torch.empty(1, 3, *_image_size(network))
        _, count, channels = _cells(network, values).shape
        return _vector(network, values).shape[1], (count, channels)
