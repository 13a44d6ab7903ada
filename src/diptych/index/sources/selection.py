"""Which files below a folder belong to an index: patterns of what to ignore, as in a .gitignore, and links.

A pattern without a slash matches names at any depth (`*.gif`, `private`); with a slash at its beginning or inside, it
matches paths from the folder (`/raw`, `2019/**/edited`); with one at its end, folders only. `!` takes back what earlier
patterns ignore, except below a folder that is ignored. Case does not matter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from diptych.errors import DataError

_SYSTEM_FOLDERS = frozenset(
    ("@eadir", "#recycle", "@recycle", "$recycle.bin", "system volume information", "lost+found", "__macosx")
)
_SYSTEM_FILES = frozenset(("thumbs.db", "desktop.ini", "ehthumbs.db", "ehthumbs_vista.db"))

_ANY_FOLDERS = "(?:.*/)?"


def is_hidden(name: str, *, folder: bool) -> bool:
    """Whether a file or folder is hidden, or kept by a system for itself, such as the thumbnails in @eaDir."""
    return name[0] == "." or name.lower() in (_SYSTEM_FOLDERS if folder else _SYSTEM_FILES)


@dataclass(frozen=True)
class Selection:
    """The patterns of what to ignore, and whether links are followed out of the folder."""

    ignored: tuple[str, ...] = ()
    follow_links: bool = False

    @cached_property
    def ignores(self) -> Callable[[str, bool], bool] | None:
        """Tells whether a pattern ignores a path below the folder, and whether that is a folder; None without patterns.

        A path whose parent is ignored is not asked for.
        """
        if not self.ignored:
            return None
        rules = [_translate(pattern) for pattern in reversed(self.ignored)]

        def ignores(path: str, folder: bool) -> bool:
            found = (rule for rule in rules if (folder or not rule.folders_only) and rule.matches(path))
            return next((rule.ignores for rule in found), False)

        return ignores

    def leaves_out(self, path: str) -> bool:
        """Whether a file at a path below the folder is hidden or ignored, or in a folder that is."""
        parts = path.split("/")
        if any(is_hidden(name, folder=place < len(parts)) for place, name in enumerate(parts, 1)):
            return True
        ignores = self.ignores
        return ignores is not None and any(
            ignores("/".join(parts[:depth]), depth < len(parts)) for depth in range(1, len(parts) + 1)
        )


@dataclass(frozen=True)
class _Rule:
    matches: Callable[[str], re.Match[str] | None]
    ignores: bool
    folders_only: bool


def check_patterns(patterns: Sequence[str]) -> tuple[str, ...]:
    """The patterns, if each of them can match something."""
    for pattern in patterns:
        _translate(pattern)
    return tuple(patterns)


def _translate(pattern: str) -> _Rule:
    negated = pattern.startswith("!")
    body = pattern[1:] if negated else pattern
    parts = body.strip("/").split("/")
    if not all(parts):
        raise DataError(f"--ignore {pattern!r}: matches nothing; write a pattern such as '*.gif' or 'private/'")
    anchored = "/" in body.rstrip("/")
    regex = "" if anchored else _ANY_FOLDERS
    for place, part in enumerate(parts, 1):
        is_last = place == len(parts)
        if part == "**" and anchored:
            regex += ".+" if is_last else _ANY_FOLDERS
        else:
            regex += _translate_name(part) + ("" if is_last else "/")
    try:
        compiled = re.compile(regex, re.IGNORECASE | re.DOTALL)
    except re.error as reason:
        raise DataError(f"--ignore {pattern!r}: not a pattern ({reason})") from None
    return _Rule(compiled.fullmatch, not negated, body.endswith("/"))


def _translate_name(name: str) -> str:
    """A regular expression for one name between slashes: `*`, `?`, `[a-z]`, `[!a-z]` and escaped characters."""
    regex, place = "", 0
    while place < len(name):
        sign, rest = name[place], name[place + 1 :]
        place += 1
        if sign == "*":
            regex += "[^/]*"
        elif sign == "?":
            regex += "[^/]"
        elif sign == "[" and (members := re.match(r"([!^]?)(\]?[^\]]*)\]", rest)):
            regex += f"(?!/)[{'^' if members[1] else ''}{_escape_members(members[2])}]"
            place += members.end()
        elif sign == "\\" and rest:
            regex += re.escape(rest[0])
            place += 1
        else:
            regex += re.escape(sign)
    return regex


def _escape_members(members: str) -> str:
    return re.sub(r"([\\\[\]^&~|])", r"\\\1", members)
