"""The words of `diptych search`: several arguments are one query, and `-word` is a word, not an option."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

from diptych.cli.console import print_note
from diptych.data.file_kinds import IMAGE_SUFFIXES

# One dash and at least two letters: the short options of the command are single signs, such as -k5 and -0.
_EXCLUDED_WORD = re.compile(r"-[^\W\d_]{2}[\w'-]*")


class SearchCommand(TyperCommand):
    """A command whose arguments may contain words to exclude, such as `-snow`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; a space before an excluded word keeps it from being an option."""
        return super().parse_args(ctx, [f" {word}" if _EXCLUDED_WORD.fullmatch(word) else word for word in args])


def query_text(words: Sequence[str] | None) -> str | None:
    """The words as one text, None without any; a note says so if they name an image file."""
    if not words:
        return None
    text = " ".join(word.strip() for word in words)
    if Path(text).suffix.lower() in IMAGE_SUFFIXES and Path(text).is_file():
        print_note(f"searching for the words {text!r}; to search with the picture: --image {text}")
    return text
