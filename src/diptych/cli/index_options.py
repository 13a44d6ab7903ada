"""Options that `diptych index` and `diptych open` share, and what they ask for."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from diptych.errors import DiptychError
from diptych.features.choices import Quality

if TYPE_CHECKING:
    from diptych.index.sources.resolve import SourceRequest

Ignore = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATTERN",
        help="Leave out what matches, as in a .gitignore: '*.gif', private/, /raw, '2019/**/edited'. Repeatable; "
        "the index remembers the patterns until others are given.",
    ),
]

NoIgnore = Annotated[bool, typer.Option("--no-ignore", help="Forget the patterns that the index has.")]

FollowLinks = Annotated[
    bool | None,
    typer.Option(
        help="Follow links out of the folder; the index remembers it.", show_default="as before, at first not"
    ),
]

ImageQuality = Annotated[
    Quality | None,
    typer.Option(
        help="best encodes four views of each photo with the starter and models like it; fast two of them, in half "
        "the time and with almost the same recall. Other models know only best.",
        show_default="that of the index, at first fast",
    ),
]

Ocr = Annotated[
    bool | None,
    typer.Option(
        "--ocr/--no-ocr",
        help="Read the words in pictures (receipts, signs, slides), so that they can be searched for. The index "
        "remembers it; pictures that it has are read, too, without being encoded again.",
        show_default=False,
    ),
]


def source_request(
    sources: Sequence[str],
    ignore: Sequence[str] | None,
    no_ignore: bool,
    follow_links: bool | None,
    remove_folder: Sequence[str] = (),
) -> SourceRequest:
    """The request for these sources with the options about their files."""
    from diptych.index.sources.resolve import SourceRequest

    if ignore and no_ignore:
        raise DiptychError("--ignore and --no-ignore: name the patterns, or forget them; not both")
    patterns = () if no_ignore else tuple(ignore) if ignore else None
    return SourceRequest(tuple(sources), patterns, follow_links, tuple(remove_folder))


def fresh_options(
    storage: str | None, quality: str | None, ignore: Sequence[str] | None, follow_links: bool | None
) -> str:
    """What follows `--fresh` in a command that continues: a new index remembers nothing of the one that it replaces."""
    named = {"--storage": storage, "--quality": quality}
    words = [f"{name} {value}" for name, value in named.items() if value is not None]
    words += [f"--ignore {quote(pattern)}" for pattern in ignore or ()]
    return "".join(f" {word}" for word in (*words, *(["--follow-links"] if follow_links else [])))
