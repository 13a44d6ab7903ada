"""The names of backbones: a short one, or a source and the source's own name."""

from __future__ import annotations

from pathlib import Path

from diptych.errors import RecipeError, did_you_mean
from diptych.features.backbone import Backbone
from diptych.features.backbones import efficientnet_lite, open_clip_models, timm_models
from diptych.features.backbones.source import Source

_SOURCES: dict[str, Source] = {"timm:": timm_models, "open-clip:": open_clip_models}
_SHORT: dict[str, Source] = {
    **dict.fromkeys(efficientnet_lite.NAMES, efficientnet_lite),
    **dict.fromkeys(timm_models.PAPERS, timm_models),
}


def backbone_names() -> list[str]:
    """The short names; besides them there are `timm:NAME` and `open-clip:NAME`."""
    return list(_SHORT)


def build_backbone(name: str) -> Backbone:
    """The architecture with random weights; works on the meta device, and downloads nothing."""
    return _source(name).build(name)


def load_backbone(name: str, weights: Path | None = None) -> Backbone:
    """The pretrained backbone in evaluation mode.

    Weights come from the source, which may download them, or from a safetensors file with the source's own names.
    """
    return _source(name).load(name, weights).eval()


def _source(name: str) -> Source:
    if name in _SHORT:
        return _SHORT[name]
    prefix, colon, inner = name.partition(":")
    if prefix + colon in _SOURCES:
        return _SOURCES[prefix + colon]
    model = inner if inner and inner.isprintable() else "NAME"
    known = [f"{source}{model}" for source in _SOURCES]
    raise RecipeError(f"backbone {name!r}: no such name; {did_you_mean(name, known if colon else [*_SHORT, *known])}")
