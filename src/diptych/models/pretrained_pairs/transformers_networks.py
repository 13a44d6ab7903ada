"""The networks of transformers' pairs: one for images and one for texts, each with its projection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from diptych.errors import DiptychError
from diptych.models.pretrained_pairs.transformers_layout import INSTALL, full_config
from diptych.models.pretrained_pairs.unpacking import present_patches
from diptych.optional import import_optional, quiet, why_broken

_PARTS = {"vision_model.": "image", "visual_projection.": "image", "text_model.": "text", "text_projection.": "text"}


class TransformersImages(nn.Module):
    """An image network, and its projection if the kind of pair has one."""

    def __init__(self, vision_model: nn.Module, projection: nn.Module | None) -> None:
        super().__init__()
        self.vision_model = vision_model
        self.visual_projection = nn.Identity() if projection is None else projection

    def forward(self, values: Tensor) -> Tensor:
        """Normalised pixels, (images, 3, side, side), to (images, size)."""
        vectors: Tensor = self.visual_projection(self.vision_model(pixel_values=values).pooler_output)
        return vectors


class TransformersPatches(nn.Module):
    """An image network of SigLIP 2 that reads images of any shape as patches."""

    def __init__(self, vision_model: nn.Module) -> None:
        super().__init__()
        self.vision_model = vision_model

    def forward(self, patches: Tensor, grids: Tensor) -> Tensor:
        """Normalised patches, (images, most, values), and the rows and columns of each image to (images, size)."""
        there = present_patches(grids, patches.shape[1])
        vectors: Tensor = self.vision_model(
            pixel_values=patches * there[:, :, None], pixel_attention_mask=there.long(), spatial_shapes=grids
        ).pooler_output
        return vectors


class TransformersTexts(nn.Module):
    """A text network, and its projection if the kind of pair has one."""

    def __init__(self, text_model: nn.Module, projection: nn.Module | None) -> None:
        super().__init__()
        self.text_model = text_model
        self.text_projection = nn.Identity() if projection is None else projection

    def forward(self, ids: Tensor) -> Tensor:
        """Ids, (texts, length), to (texts, size)."""
        vectors: Tensor = self.text_projection(self.text_model(input_ids=ids).pooler_output)
        return vectors


def build(config: Mapping[str, Any]) -> tuple[nn.Module, TransformersTexts]:
    """Both networks with random weights."""
    library = import_optional("transformers", INSTALL, instead="a folder in open_clip's layout")
    try:
        with quiet():
            whole = library.AutoModel.from_config(full_config(config))
    except DiptychError:
        raise
    except Exception as reason:  # of a broken installation, or of a value that the network cannot take
        raise DiptychError(f"transformers cannot build the networks of a pair {why_broken(reason)}") from None
    if config["model_type"] == "siglip2":
        return TransformersPatches(whole.vision_model), TransformersTexts(whole.text_model, None)
    projections = getattr(whole, "visual_projection", None), getattr(whole, "text_projection", None)
    return TransformersImages(whole.vision_model, projections[0]), TransformersTexts(whole.text_model, projections[1])


def network_weights(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """The weights of a pair by part: `image`, `text` and `score`."""
    parts: dict[str, dict[str, Tensor]] = {"image": {}, "text": {}, "score": {}}
    for name, tensor in tensors.items():
        if name.endswith(".position_ids"):  # numbers from 0 on, which older versions stored
            continue
        part = next((part for prefix, part in _PARTS.items() if name.startswith(prefix)), "score")
        parts[part][name] = tensor
    return parts
