"""Matchers on disk: weights as safetensors, their settings and their vocabulary's digest in the file's own header.

One file, written under a temporary name and renamed, so that weights and settings cannot part. The words lie beside it
in the run's `vocabulary.json`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

import diptych
from diptych import registry
from diptych.errors import RecipeError, RunError
from diptych.files import atomic_write
from diptych.models.matcher import Matcher, ModelSettings
from diptych.text.vocabulary import Vocabulary

FORMAT = 1


def save_tensors(path: Path, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    """Write tensors and what is to be known about them as one file, whole or not at all."""
    # One entry: several would be written in any order, and equal contents shall be equal files.
    header = {"diptych": json.dumps({"format": FORMAT, "version": diptych.__version__, "about": about})}
    own = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with atomic_write(path) as temporary:
        try:
            save_file(own, temporary, header)
        except SafetensorError as reason:
            raise RunError(f"{path}: cannot be written ({reason}); free space or check the permissions") from None


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read such a file; anything else (a pickle, a truncated file, somebody else's) is refused in one line."""
    with _opened(path) as opened:
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        return tensors, _about(path, opened.metadata() or {})


def load_about(path: Path) -> dict[str, Any]:
    """Read what is to be known about such a file, and none of its tensors."""
    with _opened(path) as opened:
        return _about(path, opened.metadata() or {})


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    if not path.is_file():
        raise RunError(f"{path}: no such file; is this the folder of a run?")
    with path.open("rb") as file:
        start = file.read(9)
    # A safetensors file is the length of its header in 8 bytes, then the header, which is JSON.
    if start[8:] != b"{" and (start[:1] == b"\x80" or start[:2] == b"PK"):
        raise RunError(f"{path}: a pickled checkpoint can run code when it is opened and is refused; use safetensors")
    try:
        with safe_open(path, "pt") as opened:
            yield opened
    except (SafetensorError, OSError) as reason:
        raise RunError(f"{path}: damaged or truncated ({reason}); train again or copy it again") from None


def _about(path: Path, header: dict[str, str]) -> dict[str, Any]:
    try:
        own = json.loads(header["diptych"])
        if own["format"] != FORMAT:
            raise RunError(f"{path}: format {own['format']}; this version of Diptych reads format {FORMAT}")
        about: dict[str, Any] = own["about"]
        return about
    except (KeyError, TypeError, ValueError):
        raise RunError(f"{path}: not written by Diptych; name a file that `diptych train` or `encode` made") from None


def save_matcher(path: Path, matcher: Matcher, vocabulary: Vocabulary, about: dict[str, Any]) -> None:
    """Write a matcher's weights with its settings and its vocabulary's digest."""
    save_tensors(path, matcher.state_dict(), {**about, **matcher_header(matcher, vocabulary)})


def matcher_header(matcher: Matcher, vocabulary: Vocabulary) -> dict[str, Any]:
    """What identifies a matcher in a file's header."""
    return {"model": matcher.settings.model_dump(mode="json"), "vocabulary": vocabulary.digest}


def load_matcher(path: Path, vocabulary: Vocabulary) -> Matcher:
    """Read a matcher and check it against its vocabulary and, name by name and shape by shape, its settings."""
    tensors, about = load_tensors(path)
    if about.get("vocabulary") != vocabulary.digest:
        raise RunError(
            f"{path}: trained with another vocabulary than the vocabulary.json of its run; restore that file"
        )
    try:
        matcher = registry.resolve("models.matchers", about.get("model"), "model", ModelSettings).build()
    except RecipeError as reason:
        raise RunError(f"{path}: {reason}") from None
    load_weights(matcher, tensors, path)
    return matcher


def load_weights(matcher: Matcher, tensors: dict[str, Tensor], path: Path) -> None:
    """Put tensors into a matcher; a missing, an extra or a misshapen one is an error that names it."""
    own = matcher.state_dict()
    for name in sorted(own.keys() ^ tensors.keys()):
        has, lacks = ("model", "file") if name in own else ("file", "model")
        raise RunError(f"{path}: does not fit the model: the {has} has {name}, the {lacks} has not")
    for name, tensor in own.items():
        if tensor.shape != tensors[name].shape:
            shapes = f"{tuple(tensors[name].shape)} in the file, {tuple(tensor.shape)} in the model"
            raise RunError(f"{path}: does not fit the model: {name} is {shapes}")
    with torch.no_grad():
        matcher.load_state_dict(tensors)
