"""Finds a pretrained pair by its address: a name of open_clip, or a folder in one of three layouts."""

from __future__ import annotations

from pathlib import Path

from diptych.errors import RecipeError
from diptych.models.pickled import SUFFIXES, find_pickle, refuse_pickle
from diptych.models.pretrained_pairs import clip_layout, open_clip_layout, open_clip_names, transformers_layout
from diptych.models.pretrained_pairs.source import PairSource


def is_pair(address: str | Path) -> bool:
    """Whether an address names a pair rather than a run: a name of open_clip, or a folder or file with weights."""
    if str(address).startswith(open_clip_names.PREFIX):
        return True
    path = Path(address)
    if path.is_file():
        return path.suffix in SUFFIXES
    if not path.is_dir():
        return False
    configurations = (open_clip_layout.CONFIG, transformers_layout.CONFIG)
    return (
        any((path / name).is_file() for name in configurations)
        or any(path.glob("*.safetensors"))
        or find_pickle(path) is not None
    )


def pair_name(address: str | Path) -> str:
    """A short name: that of the folder, or of the architecture and its tag.

    >>> pair_name("open_clip:ViT-B-32/openai"), pair_name("models/siglip/")
    ('ViT-B-32-openai', 'siglip')
    """
    name, _, rest = str(address).partition("/")
    if not name.startswith(open_clip_names.PREFIX):
        return Path(address).name or Path(address).resolve().name
    return f"{name.removeprefix(open_clip_names.PREFIX)}-{Path(rest).name}"


def find_pair(address: str | Path) -> PairSource:
    """The pair at an address; RecipeError if there is none, or if its files cannot be used."""
    name, path = str(address), Path(address)
    if name.startswith(open_clip_names.PREFIX):
        return open_clip_names.find(name)
    if path.is_file() and path.suffix in SUFFIXES:
        raise refuse_pickle(path, path.with_suffix("") / "model.safetensors")
    if not path.is_dir():
        raise RecipeError(f"{address}: no such pair; name a folder, or open_clip:NAME/TAG")
    if (path / open_clip_layout.CONFIG).is_file():
        return open_clip_layout.read_folder(path, name)
    if (path / transformers_layout.CONFIG).is_file():
        return transformers_layout.read_folder(path, name)
    return clip_layout.read_folder(path, name)
