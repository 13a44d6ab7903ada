"""What all sources of backbones share: an import that may fail, pixels made ready, weights from a file, silence."""

from __future__ import annotations

import difflib
import importlib
import logging
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from diptych.errors import DiptychError, RecipeError, did_you_mean
from diptych.features.backbone import Backbone


class Source(Protocol):
    """A file of `backbones/`; it imports its packages only when a backbone is asked for."""

    def build(self, name: str) -> Backbone:
        """The architecture with random weights; it downloads nothing."""
        ...

    def load(self, name: str, weights: Path | None = None) -> Backbone:
        """The pretrained network, its weights the source's own or those of a safetensors file."""
        ...


def import_source(module: str, command: str, instead: str = "lite0") -> Any:
    """Import a source's package; one that is missing or does not import is one line with what to do."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as reason:
        if reason.name == module:
            raise DiptychError(f"{module} is not installed; run: {command}") from None
        raise DiptychError(f"{module} needs {reason.name}, which is not installed; run: {command}") from None
    except Exception as reason:  # torchvision beside a torch it was not built for raises a RuntimeError
        advice = "; install the torchvision that was built for this torch" if "torchvision" in str(reason) else ""
        raise DiptychError(f"{module} cannot be imported ({one_line(reason)}){advice}, or use {instead}") from None


def unknown_name(name: str, known: Iterable[str]) -> RecipeError:
    """The error for a name that does not exist, with the nearest of the many that do."""
    few = difflib.get_close_matches(name, list(known), n=5, cutoff=0.0)
    return RecipeError(f"backbone {name!r}: no such name; {did_you_mean(name, few)}")


def no_weights(name: str, reason: Exception) -> DiptychError:
    """The error for pretrained weights that cannot be had, most often because the hub cannot be reached."""
    return DiptychError(
        f"backbone {name!r}: its pretrained weights cannot be loaded ({one_line(reason)}); "
        "check the connection, give the weights as a safetensors file, or use lite0"
    )


def one_line(reason: Exception, longest: int = 200) -> str:
    """An exception as a short line: its kind and the start of its message."""
    text = " ".join(f"{type(reason).__name__}: {reason}".split())
    return text if len(text) <= longest else f"{text[:longest]}..."


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file; anything else is refused in one line."""
    if not path.is_file():
        raise DiptychError(f"{path}: no such file of weights")
    try:
        return load_file(path)
    except (SafetensorError, OSError) as reason:
        raise DiptychError(f"{path}: not a safetensors file ({one_line(reason)}); convert or copy it again") from None


def normalise(pixels: Tensor, mean: tuple[float, ...], deviation: tuple[float, ...]) -> Tensor:
    """(images, 3, side, side) bytes to floats of about unit size; mean and deviation are those of bytes.

    The numbers are no buffers of the network: they are no weights, and a network built on the meta device has them too.
    """
    values = pixels.to(torch.float32, memory_format=torch.channels_last)
    shift = values.new_tensor(mean).view(3, 1, 1)
    scale = values.new_tensor(deviation).view(3, 1, 1)
    return (values - shift).div_(scale)


def of_bytes(values: Iterable[float]) -> tuple[float, ...]:
    """A mean or deviation of colours from 0 to 1 as one of bytes."""
    return tuple(255 * value for value in values)


def square_side(name: str, height: int, width: int) -> int:
    """The side of the square that a network reads; one that reads anything else is refused."""
    if height != width:
        raise RecipeError(f"backbone {name!r}: reads {height} x {width} pixels; choose one that reads squares")
    return height


@contextmanager
def silence() -> Iterator[None]:
    """Keep a source from logging and warning while it builds and loads; what matters is raised as an error."""
    level, handlers = logging.root.manager.disable, logging.root.handlers[:]
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.root.handlers[:] = handlers  # logging.warning() installs one when there is none
        logging.disable(level)
