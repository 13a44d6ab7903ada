"""Tokenisers on disk: a run that reads words has a `vocabulary.json`, any other a `tokeniser.json`.

A `tokeniser.json` is complete: everything that encoding a text depends on is a field of the tokeniser's settings, and
all fields are in the file, as JSON. What names a class in it is looked up like a name in a recipe (see `registry`).
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from diptych import registry
from diptych.errors import DiptychError, RecipeError, RunError
from diptych.files import read_json, write_json
from diptych.settings import NamedSettings
from diptych.text.tokenisers.token_table import TokenTable
from diptych.text.tokenisers.tokeniser import Tokeniser
from diptych.text.vocabulary import Vocabulary

_FORMAT, _VERSION = "diptych-tokeniser", 1
_REMEDY = "restore the file, or train again"


class StoredTokeniser(NamedSettings, ABC):
    """A tokeniser that is stored as its settings; its `name` is that of its module here, or that of a plug-in."""

    file: ClassVar[str] = "tokeniser.json"

    @classmethod
    def from_texts(cls, texts: Iterable[str], size: int, threshold: int) -> Self:  # noqa: ARG003 (of an interface)
        """Make the tokeniser from training texts, for a recipe that names it as `text.tokeniser`.

        It should have at most `size` pieces, and none that occurs less than `threshold` times.
        """
        raise RecipeError(
            f"text.tokeniser: {cls.model_fields['name'].default!r} belongs to a text tower with pretrained weights, "
            "which brings it along; leave text.tokeniser out"
        )

    @cached_property
    def digest(self) -> str:
        """A fingerprint of all settings."""
        content = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(content.encode("ascii")).hexdigest()

    @property
    @abstractmethod
    def sample_words(self) -> Sequence[str]:
        """See `Tokeniser`, here and below."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def encode_all(self, texts: Iterable[str]) -> TokenTable:
        """The ids of many texts."""

    @abstractmethod
    def encode_words(self, texts: Iterable[Sequence[str]]) -> TokenTable:
        """The ids of texts that `split` has split, possibly with words left out."""

    @abstractmethod
    def split(self, text: str) -> list[str]:
        """The words of a text."""

    @abstractmethod
    def known(self, words: Sequence[str]) -> NDArray[np.bool_]:
        """Which of these words can be told apart from an unknown word: (words,)."""

    @abstractmethod
    def tokens(self, text: str) -> list[str]:
        """What each id of a text stands for."""

    def save(self, folder: Path) -> None:
        """Write the settings as JSON into a folder."""
        settings = self.model_dump(mode="json")
        write_json(folder / self.file, {"format": _FORMAT, "version": _VERSION, "tokeniser": settings})


FILES = (Vocabulary.file, StoredTokeniser.file)


def tokeniser_file(folder: Path) -> Path | None:
    """The file of the tokeniser in the folder of a run or an export; None if it has none."""
    found = [folder / name for name in FILES if (folder / name).exists()]
    if len(found) > 1:
        raise RunError(f"{folder}: has both {' and '.join(FILES)}; remove the one that does not belong to its weights")
    return found[0] if found else None


def load_tokeniser(folder: Path) -> Tokeniser:
    """The tokeniser in the folder of a run or an export; RunError if there is none, or if it cannot be used."""
    file = tokeniser_file(folder)
    if file is None:
        raise RunError(f"{folder}: has neither {' nor '.join(FILES)}; name the folder of a run or an export")
    try:
        return Vocabulary.load(file) if file.name == Vocabulary.file else _load_stored(file)
    except RunError:
        raise
    except DiptychError as reason:
        raise RunError(str(reason)) from None


def _load_stored(file: Path) -> StoredTokeniser:
    content = read_json(file, RunError)
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise RunError(f"{file}: not a tokeniser (its format is not {_FORMAT!r}); {_REMEDY}")
    if content.get("version") != _VERSION:
        raise RunError(f"{file}: version {content.get('version')!r}, not the known {_VERSION}; {_REMEDY}")
    try:
        return registry.resolve("text.tokenisers", content.get("tokeniser"), "tokeniser", StoredTokeniser)
    except DiptychError as reason:
        raise RunError(f"{file}: {reason}") from None
