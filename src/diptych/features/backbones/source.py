"""What a source of backbones is, and what all sources share: errors, weights from a file, normalised pixels."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from diptych.errors import DiptychError, RecipeError, did_you_mean, one_line
from diptych.features.backbone import Backbone


class Source(Protocol):
    """A module of `backbones/`. It imports third-party packages only when a backbone is built."""

    def build(self, name: str) -> Backbone:
        """Build the architecture with random weights, without downloading anything."""
        ...

    def load(self, name: str, weights: Path | None = None) -> Backbone:
        """Load the pretrained network, with the weights of a safetensors file if one is given."""
        ...


class ClassifierSource(Source, Protocol):
    """A source that also knows the classifiers of its networks, which backbones leave out."""

    def classifier(self, name: str, weights: Path | None = None) -> nn.Linear:
        """Load the layer that turns a backbone's vector into the logits of its classes."""
        ...


def unknown_name(name: str, known: Iterable[str]) -> RecipeError:
    """The error for an unknown name; it suggests the nearest of the many known ones."""
    few = difflib.get_close_matches(name, list(known), n=5, cutoff=0.0)
    return RecipeError(f"backbone {name!r}: no such name; {did_you_mean(name, few)}")


def weights_unavailable(name: str, reason: Exception) -> DiptychError:
    """The error for pretrained weights that cannot be loaded, most often because the hub cannot be reached."""
    return DiptychError(
        f"backbone {name!r}: its pretrained weights cannot be loaded ({one_line(reason)}); "
        "check the connection, give the weights as a safetensors file, or use lite0"
    )


def weights_do_not_fit(name: str, weights: Path | str, reason: Exception) -> DiptychError:
    """The error for weights that belong to another network."""
    return DiptychError(f"{weights}: does not fit the backbone {name!r} ({one_line(reason)})")


def no_classifier(name: str, reason: str) -> RecipeError:
    """The error for a backbone without a classifier that can be used."""
    return RecipeError(f"backbone {name!r}: {reason}; use a backbone that was trained to classify, such as lite0")


def linear_layer(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """A linear layer with copies of these weights, (outputs, inputs) and (outputs,)."""
    outputs, inputs = weight.shape
    layer = nn.Linear(inputs, outputs)
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(torch.zeros(outputs) if bias is None else bias)
    return layer


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file; any other file is refused."""
    if not path.is_file():
        raise DiptychError(f"{path}: no such file of weights")
    try:
        return load_file(path)
    except (SafetensorError, OSError) as reason:
        raise DiptychError(f"{path}: not a safetensors file ({one_line(reason)}); convert or copy it again") from None


def normalise(pixels: Tensor, mean: tuple[float, ...], deviation: tuple[float, ...]) -> Tensor:
    """Bytes (images, 3, side, side) to floats, (pixels - mean) / deviation per colour, both on the scale of bytes.

    Mean and deviation are not buffers of a network: they are not weights, and a network on the meta device needs their
    values, too.
    """
    values = pixels.to(torch.float32, memory_format=torch.channels_last)
    shift = values.new_tensor(mean).view(3, 1, 1)
    scale = values.new_tensor(deviation).view(3, 1, 1)
    return (values - shift).div_(scale)


def to_byte_scale(values: Iterable[float]) -> tuple[float, ...]:
    """Convert a mean or deviation of colours from the scale 0 to 1 to that of bytes, 0 to 255."""
    return tuple(255 * value for value in values)


def square_side(name: str, height: int, width: int) -> int:
    """The side of the square that a network reads; raises RecipeError if it does not read squares."""
    if height != width:
        raise RecipeError(f"backbone {name!r}: reads {height} x {width} pixels; choose one that reads squares")
    return height
