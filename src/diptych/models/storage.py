"""Matchers on disk: weights as safetensors, with settings and the tokeniser's digest in the file's header.

It is one file, written under a temporary name and renamed, so that weights and settings always belong together. The
tokeniser is in a file of the run's folder (`text/tokenisers/stored.py`).
"""

from __future__ import annotations

import json
import warnings
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
from diptych.models.export.exported import remove_graphs
from diptych.models.lora import merged_state
from diptych.models.matcher import Matcher, ModelSettings
from diptych.models.packaged import check_packaged, packaged_header
from diptych.plugin_records import PluginRecord, changed_since, record_classes, settings_classes
from diptych.plugins import PluginWarning
from diptych.text.tokenisers.tokeniser import Tokeniser

FORMAT = 1


def save_tensors(path: Path, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    """Write tensors and JSON metadata as one file, completely or not at all."""
    # A single entry: several would be written in any order, and equal contents must give equal files.
    header = {"diptych": json.dumps({"format": FORMAT, "version": diptych.__version__, "about": about})}
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with atomic_write(path) as temporary:
        try:
            save_file(contiguous, temporary, header)
        except SafetensorError as reason:
            raise RunError(f"{path}: cannot be written ({reason}); free space or check the permissions") from None


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a file that `save_tensors` wrote; anything else (a pickle, a truncated file) is an error."""
    with _opened(path) as opened:
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        return tensors, _about(path, opened.metadata() or {})


def load_about(path: Path) -> dict[str, Any]:
    """Read only the metadata of a file that `save_tensors` wrote."""
    with _opened(path) as opened:
        return _about(path, opened.metadata() or {})


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    if not path.is_file():
        raise RunError(f"{path}: no such file; is this the folder of a run?")
    with path.open("rb") as file:
        start = file.read(9)
    # A safetensors file starts with the length of its header in 8 bytes, then the header as JSON.
    if start[8:] != b"{" and (start[:1] == b"\x80" or start[:2] == b"PK"):
        raise RunError(f"{path}: a pickled checkpoint can run code when it is opened and is refused; use safetensors")
    try:
        with safe_open(path, "pt") as opened:
            yield opened
    except (SafetensorError, OSError) as reason:
        raise RunError(f"{path}: damaged or truncated ({reason}); train again or copy it again") from None


def _about(path: Path, header: dict[str, str]) -> dict[str, Any]:
    try:
        content = json.loads(header["diptych"])
        if content["format"] != FORMAT:
            raise RunError(f"{path}: format {content['format']}; this version of Diptych reads format {FORMAT}")
        about: dict[str, Any] = content["about"]
        return about
    except (KeyError, TypeError, ValueError):
        raise RunError(f"{path}: not written by Diptych; name a file that `diptych train` or `encode` made") from None


def save_matcher(path: Path, matcher: Matcher, tokeniser: Tokeniser, about: dict[str, Any]) -> None:
    """Write a matcher's weights, low-rank factors merged, with its settings and its tokeniser's digest."""
    remove_graphs(path.parent)  # they would be those of other weights
    save_tensors(path, merged_state(matcher), {**about, **matcher_header(matcher, tokeniser)})


def matcher_header(matcher: Matcher, tokeniser: Tokeniser) -> dict[str, Any]:
    """The part of a file's header that identifies a matcher and its tokeniser.

    It has the matcher's plug-ins, and the packages that weights come with instead of being in the file, if any.
    """
    header = {"model": matcher.settings.model_dump(mode="json"), "vocabulary": tokeniser.digest}
    plugins = [plugin.to_json() for plugin in _plugins(matcher, tokeniser)]
    optional = {"plugins": plugins, "packaged": packaged_header(matcher)}
    return header | {key: value for key, value in optional.items() if value}


def _plugins(matcher: Matcher, tokeniser: Tokeniser) -> tuple[PluginRecord, ...]:
    return record_classes([*settings_classes(matcher.settings), *map(type, matcher.modules()), type(tokeniser)])


def check_tokeniser(path: Path, about: dict[str, Any], tokeniser: Tokeniser) -> None:
    """Refuse a tokeniser that does not belong to the weights of a file: other ids would mean other words."""
    if about.get("vocabulary") != tokeniser.digest:
        raise RunError(
            f"{path}: trained with another tokeniser than the {tokeniser.file} of its run; restore that file"
        )


def load_matcher(path: Path, tokeniser: Tokeniser) -> Matcher:
    """Read a matcher, and check that the weights fit the tokeniser and, by name and shape, the settings."""
    tensors, about = load_tensors(path)
    check_tokeniser(path, about, tokeniser)
    matcher = model_settings(path, about).build()
    load_weights(matcher, tensors, about, path)
    warn_of_changed_plugins(path, about, matcher, tokeniser)
    return matcher


def model_settings(path: Path, about: dict[str, Any]) -> ModelSettings:
    """The settings in the header of a file."""
    try:
        return registry.resolve("models.matchers", about.get("model"), "model", ModelSettings)
    except RecipeError as reason:
        raise RunError(f"{path}: {reason}") from None


def warn_of_changed_plugins(path: Path, about: dict[str, Any], matcher: Matcher, tokeniser: Tokeniser) -> None:
    """Warn of each plug-in of a matcher or its tokeniser that has changed since its weights were written."""
    for change in changed_since(about.get("plugins"), _plugins(matcher, tokeniser)):
        warnings.warn(f"{path}: the plug-in {change}; the model may give other results", PluginWarning, stacklevel=3)


def load_weights(matcher: Matcher, tensors: dict[str, Tensor], about: dict[str, Any], path: Path) -> None:
    """Copy tensors into a matcher; a missing, extra or misshapen tensor is an error that names it.

    Weights that come with a package must be those that the header of the tensors' file, `about`, notes.
    """
    check_packaged(matcher, about.get("packaged"), path)
    expected = matcher.state_dict()
    for name in sorted(expected.keys() ^ tensors.keys()):
        has, lacks = ("model", "file") if name in expected else ("file", "model")
        raise RunError(f"{path}: does not fit the model: the {has} has {name}, the {lacks} has not")
    for name, tensor in expected.items():
        if tensor.shape != tensors[name].shape:
            shapes = f"{tuple(tensors[name].shape)} in the file, {tuple(tensor.shape)} in the model"
            raise RunError(f"{path}: does not fit the model: {name} is {shapes}")
    with torch.no_grad():
        matcher.load_state_dict(tensors)
