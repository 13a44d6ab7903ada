"""Every error that Diptych raises on purpose, and the words that their messages share.

    DiptychError            base class: one line that names the file or setting, what is wrong, and what to do
    ├── DataError           a corpus, its captions or its word vectors cannot be used
    │   ├── ImageError      one image cannot be decoded; callers may skip it
    │   │   └── MissingPackageError  it could be, with an optional package
    │   └── NotFoundError   what is named by its id or its name is not in the index
    ├── RecipeError         a recipe or one of its settings is wrong
    ├── RunError            a run folder or a checkpoint cannot be used
    ├── RankError           another process of the same job has ended, or does something else
    ├── CallbackError       a callback of a training has raised an exception
    ├── IndexFileError      the file of an index cannot be used
    ├── PluginError         code outside of the package is not allowed, cannot be loaded or is not what is needed
    ├── ServiceError        a service could not be reached, or has refused a request
    └── ScoreError          scores or embeddings cannot be ranked

The command line prints the message and exits with 1. Other code catches the subclass that it can do something about.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path


class DiptychError(Exception):
    """One line that names the file or setting, what is wrong, and what to do."""


class DataError(DiptychError):
    """A corpus, its captions or its word vectors cannot be used."""


class ImageError(DataError):
    """One image cannot be decoded; the message is the reason for skipping it."""


class MissingPackageError(ImageError):
    """One image cannot be decoded until an optional package is installed; the message is the command."""


class NotFoundError(DataError):
    """An entry or an album that is named by its id or its name is not in the index."""


class RecipeError(DiptychError):
    """A recipe or one of its settings is wrong."""


class RunError(DiptychError):
    """A run folder or a checkpoint cannot be used."""


class RankError(DiptychError):
    """Another rank, a process of the same job, has ended, has failed, or was started with something else."""


class CallbackError(DiptychError):
    """A callback of a training has raised an exception, which is the cause of this one, or is not a callback."""


class IndexFileError(DiptychError):
    """The file of an index is damaged, locked by another process, or belongs to another model."""


class PluginError(DiptychError):
    """Code outside of the package is not allowed, cannot be loaded, or is not what is needed."""


class ServiceError(DiptychError):
    """A service could not be reached, or has refused a request; `status` is that of its response, if there was one."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ScoreError(DiptychError):
    """Scores or embeddings cannot be ranked."""


def location(file: Path | str, row: int | None = None) -> str:
    """A place in a file for a message: `file` or `file:row`, as compilers print it."""
    return str(file) if row is None else f"{file}:{row}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A suggestion for a mistyped name: the most similar known name, or all of them if none is similar."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"


def one_line(reason: BaseException, longest: int = 200) -> str:
    """An exception as one short line: its type and the start of its message."""
    text = " ".join(f"{type(reason).__name__}: {reason}".split())
    return text if len(text) <= longest else f"{text[:longest]}..."
