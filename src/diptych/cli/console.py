"""The consoles of the command line: results go to stdout, messages and progress to stderr."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console

from diptych import progress
from diptych.plugins import PluginWarning

if TYPE_CHECKING:
    from diptych.model import Model

stdout = Console()
stderr = Console(stderr=True)


def silence() -> None:
    """Print nothing from now on, because another process does."""
    stdout.quiet = stderr.quiet = True


def print_error(message: str) -> None:
    """Print an error as one line."""
    stderr.print(
        f"diptych: {printable(' '.join(message.split()))}", style="red", highlight=False, markup=False, soft_wrap=True
    )


def printable(text: str) -> str:
    """The text with control characters escaped: file names and captions may contain terminal escape sequences."""
    return "".join(sign if sign.isprintable() or sign == "\n" else repr(sign)[1:-1] for sign in text)


def counted(count: int, one: str, many: str = "") -> str:
    """A number of things: `1 copy`, `1,204 copies`; the plural ends in an s unless it is given."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def show_warnings() -> None:
    """From now on, print the warnings about plug-ins as notes; all others look as Python prints them."""
    show_other = warnings.showwarning

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if issubclass(category, PluginWarning):
            print_note(str(message))
        else:
            show_other(message, category, filename, lineno, file, line)

    warnings.showwarning = show


def print_result(message: str, style: str = "") -> None:
    """Print a line of the result; file names and texts in it are not interpreted as markup."""
    stdout.print(printable(message), style=style, highlight=False, markup=False, soft_wrap=True)


def print_note(message: str) -> None:
    """Print a message for people, which is not part of the result, to stderr."""
    stderr.print(printable(message), highlight=False, markup=False, soft_wrap=True)


def print_skipped(skipped: Mapping[Any, str], shown: int = 5) -> None:
    """Print the first images that were skipped, with the reasons."""
    for reason in list(skipped.values())[:shown]:
        print_note(f"skipped {reason}")
    if len(skipped) > shown:
        print_note(f"skipped {len(skipped) - shown} more images; `diptych data check` lists them all")


def print_unknown_texts(model: Model, texts: Sequence[str]) -> None:
    """Print how many texts have no known word: they are encoded, but cannot be found except by chance."""
    unknown = [text for text, known in zip(texts, model.known_texts(texts).tolist(), strict=True) if not known]
    if unknown:
        print_note(
            f"{len(unknown):,} of {len(texts):,} texts contain no word that the run knows; the first is {unknown[0]!r}"
        )


def progress_bar(title: str, unit: str = "") -> AbstractContextManager[progress.ProgressCallback]:
    """A progress bar on stderr; call it with the number of items done and the total."""
    return progress.progress_bar(title, stderr, unit)
