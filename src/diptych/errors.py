"""Every error that Diptych raises on purpose.

    DiptychError            one line that names the place, what is wrong, and what to do
    ├── DataError           a corpus, its captions, its word vectors
    │   └── ImageError      one image that cannot be decoded; the caller may skip it
    ├── RecipeError         a recipe or one of its settings
    ├── RunError            a run folder or a checkpoint
    ├── IndexFileError      the file of an index
    └── ScoreError          scores or embeddings that cannot be ranked

The command line prints the message and exits with 1; nothing else in the package catches a DiptychError broadly.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path


class DiptychError(Exception):
    """One line that names the place, what is wrong, and what to do."""


class DataError(DiptychError):
    """Something in a corpus, its captions or its word vectors cannot be used."""


class ImageError(DataError):
    """One image cannot be decoded; its message is the reason for skipping it."""


class RecipeError(DiptychError):
    """A recipe, or a setting in it, is wrong."""


class RunError(DiptychError):
    """A run folder or a checkpoint cannot be used."""


class IndexFileError(DiptychError):
    """The file of an index cannot be used: it is damaged, held by another, or made by another model."""


class ScoreError(DiptychError):
    """Scores or embeddings cannot be ranked."""


def location(file: Path | str, row: int | None = None) -> str:
    """Name a place as `file` or `file:row`, the way compilers do."""
    return str(file) if row is None else f"{file}:{row}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Offer the known name closest to a mistaken one, or list what there is."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"


def one_line(reason: Exception, longest: int = 200) -> str:
    """An exception as one short line: its type and the start of its message."""
    text = " ".join(f"{type(reason).__name__}: {reason}".split())
    return text if len(text) <= longest else f"{text[:longest]}..."
