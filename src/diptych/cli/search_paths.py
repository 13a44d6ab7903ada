"""The files of hits as absolute paths, for `diptych search --paths` and `--json`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from diptych.cli.console import print_note

if TYPE_CHECKING:
    from diptych.index.entries import Answer, Entry


def with_paths(answer: Answer) -> dict[str, Any]:
    """The answer as JSON; each hit has the absolute `path` of its file, or null if it has none."""
    found = answer.to_json()
    for hit, described in zip(answer.hits, found["hits"], strict=True):
        described["path"] = hit.entry.path
    return found


def print_paths(answer: Answer, end: str) -> None:
    """Print the path of each hit, followed by `end`, exactly as the file system has it."""
    write_paths([hit.entry for hit in answer.hits], end)


def write_paths(entries: Sequence[Entry], end: str) -> None:
    """Print the path of the file of each image, followed by `end`, exactly as the file system has it."""
    paths = [entry.path for entry in entries]
    files = list(dict.fromkeys(path for path in paths if path is not None))  # a video may have several images
    if missing := paths.count(None):
        print_note(f"{missing:,} of {len(paths):,} images are not in a file and have no path")
    try:
        sys.stdout.buffer.write(b"".join(os.fsencode(path + end) for path in files))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing is left to be written at exit
