"""Backbones by name: a short one (`lite0`), a source and its own name (`timm:resnet50d`), or several (`lite0+lite1`).

An installed package adds a source as an entry point of the group `diptych.backbones`, whose name is the prefix.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

from torch import nn

from diptych import plugins
from diptych.errors import PluginError, RecipeError, did_you_mean
from diptych.features.backbone import Backbone
from diptych.features.backbones import efficientnet_lite, joined, open_clip_models, timm_models
from diptych.features.backbones.source import ClassifierSource, Source, no_classifier

_BY_PREFIX: dict[str, Source] = {"timm:": timm_models, "open-clip:": open_clip_models}
_BY_SHORT_NAME: dict[str, Source] = {
    **dict.fromkeys(efficientnet_lite.NAMES, efficientnet_lite),
    **dict.fromkeys(timm_models.PAPERS, timm_models),
}


def backbone_names() -> list[str]:
    """The short names; `timm:NAME`, `open-clip:NAME` and names joined by `+` are valid, too."""
    return list(_BY_SHORT_NAME)


def build_backbone(name: str) -> Backbone:
    """Build the architecture with random weights; works on the meta device and downloads nothing."""
    if joined.SEPARATOR in name:
        return joined.join(name, build_backbone)
    return _source(name).build(name)


def load_backbone(name: str, weights: Path | None = None) -> Backbone:
    """Load the pretrained backbone in evaluation mode.

    The weights come from the source, which may download them, or from a safetensors file that uses the names of the
    source.
    """
    if joined.SEPARATOR in name:
        joined.refuse_weights(name, weights)
        return joined.join(name, load_backbone).eval()
    return _source(name).load(name, weights).eval()


def load_classifier(name: str, weights: Path | None = None) -> nn.Linear:
    """Load the layer with which a pretrained network classifies: from the backbone's vector to logits.

    Raises RecipeError if the network has none, or one that is not a linear function of the vector.
    """
    source = _source(name)
    if not callable(getattr(source, "classifier", None)):
        raise no_classifier(name, "has no classifier")
    return cast(ClassifierSource, source).classifier(name, weights)


def _source(name: str) -> Source:
    if name in _BY_SHORT_NAME:
        return _BY_SHORT_NAME[name]
    prefix, colon, inner = name.partition(":")
    if prefix + colon in _BY_PREFIX:
        return _BY_PREFIX[prefix + colon]
    if colon and prefix in plugins.installed("backbones"):
        return _plugin_source(prefix, name)
    model = inner if inner and inner.isprintable() else "NAME"
    known = [f"{source}{model}" for source in (*_BY_PREFIX, *(f"{one}:" for one in plugins.installed("backbones")))]
    candidates = known if colon else [*_BY_SHORT_NAME, *known]
    raise RecipeError(f"backbone {name!r}: no such name; {did_you_mean(name, candidates)}")


def _plugin_source(prefix: str, name: str) -> Source:
    try:
        source: Source = plugins.load_installed("backbones", prefix)
    except PluginError as reason:
        raise RecipeError(f"backbone {name!r}: {reason}") from reason
    if not all(callable(getattr(source, function, None)) for function in ("build", "load")):
        raise RecipeError(f"backbone {name!r}: the plug-in {prefix!r} is not a source: it needs build and load")
    return source
