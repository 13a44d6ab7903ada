"""Checks of single values in data files; a value that cannot be used raises a DataError with the reason."""

from __future__ import annotations

import hashlib
from pathlib import Path

from diptych.data.corpus import SPLITS
from diptych.errors import DataError, did_you_mean

SPLIT_NAMES = {**{name: name for name in SPLITS}, "dev": "val", "valid": "val", "validation": "val"}


def json_object(value: object) -> dict[str, object]:
    """A JSON object."""
    if not isinstance(value, dict):
        raise DataError(f"a {type(value).__name__}, not a JSON object")
    return value


def identifier(value: object, what: str) -> int | str:
    """An id: an integer or a string that is not empty."""
    return value if type(value) is int else non_empty(value, what)


def non_empty(value: object, what: str) -> str:
    """A string with more than white space, stripped; `what` names the value in messages."""
    if value is None:
        raise DataError(f"no {what}")
    if not isinstance(value, str):
        raise DataError(f"the {what} is of type {type(value).__name__}, not a string")
    try:
        value.encode()
    except UnicodeEncodeError:  # half a surrogate pair, or bytes that `read_lines` could not decode
        raise DataError(f"the {what} is not valid UTF-8; write it in UTF-8") from None
    if not (value := value.strip()):
        raise DataError(f"the {what} is empty")
    return value


def clean_text(value: object) -> str:
    """A text with each run of white space replaced by one space."""
    return " ".join(non_empty(value, "text").split())


def split_name(value: object) -> str:
    """The split that a value names, in any case and by its usual synonyms."""
    name = non_empty(value, "split")
    if name.lower() not in SPLIT_NAMES:
        raise DataError(f"unknown split {name!r}; {did_you_mean(name.lower(), SPLITS)}")
    return SPLIT_NAMES[name.lower()]


def hashed_split(group: str) -> str:
    """The split of a group by a hash of its name: 90 % of all names in train, 5 % each in val and test."""
    position = int.from_bytes(hashlib.blake2b(group.encode(), digest_size=8).digest(), "big") / 2**64
    return "train" if position < 0.9 else "val" if position < 0.95 else "test"


def read_lines(file: Path) -> list[str]:
    """The lines of a text file; bytes that are not UTF-8 become surrogates, which `non_empty` refuses."""
    try:
        # newline="" ends lines at \n, \r and \r\n only; splitlines would also end them inside texts.
        with file.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
            return list(lines)
    except OSError as reason:
        raise DataError(f"{file}: cannot be read ({reason.strerror})") from None


def json_mentions(file: Path, opening: str, *keys: str) -> bool:
    """Whether a JSON file begins with `{` or `[`, as `opening` says, and mentions all of these keys.

    The file is searched and not parsed: inside a JSON string a quote is escaped, so a key in quotes is a key, or a
    whole string, which is rare.
    """
    if file.suffix.lower() != ".json" or not file.is_file():
        return False
    content = file.read_bytes()
    begins = content.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == opening.encode()
    return begins and all(f'"{key}"'.encode() in content for key in keys)
