"""The names of shards: brace expansion, globs, and addresses of other storage such as `s3://bucket/train-000000.tar`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from glob import glob, has_magic
from itertools import product
from pathlib import Path
from typing import Any, BinaryIO, cast

from diptych.errors import DataError
from diptych.optional import import_optional

MAX_SHARDS = 1_000_000

_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")


def is_remote(name: str) -> bool:
    """Whether a name is an address such as `s3://bucket/file`, which fsspec opens."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", name) is not None


def expand_braces(pattern: str) -> list[str]:
    """The names that a pattern stands for: `{000..123}` counts with as many digits, `{a,b}` lists.

    >>> expand_braces("{train,val}-{08..10}.tar")[:4]
    ['train-08.tar', 'train-09.tar', 'train-10.tar', 'val-08.tar']
    """
    pieces = _BRACES.split(pattern)  # text, braces, text, braces, text
    choices = [_choices(piece) if number % 2 else [piece] for number, piece in enumerate(pieces)]
    count = 1
    for some in choices:
        count *= len(some)
    if count > MAX_SHARDS:
        raise DataError(f"{pattern}: stands for {count:,} shards, and {MAX_SHARDS:,} are the limit")
    return ["".join(parts) for parts in product(*choices)]


def _choices(inside: str) -> list[str]:
    if (found := _RANGE.fullmatch(inside)) is None:
        return inside.split(",")
    first, last = found.groups()
    if int(last) - int(first) >= MAX_SHARDS:
        raise DataError(f"{{{inside}}}: stands for more than {MAX_SHARDS:,} shards, which is the limit")
    if int(last) < int(first):
        raise DataError(f"{{{inside}}}: counts down; write the smaller number first")
    return [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]


def shard_names(pattern: str) -> list[str]:
    """The shards that a pattern names: those of braces whether they exist or not, those of a glob as they are found."""
    if not is_remote(pattern) and Path(pattern).exists():
        return [pattern]
    names: list[str] = []
    for name in expand_braces(pattern):
        names += _glob(name) if has_magic(name) else [name]
    if not names:
        raise DataError(f"{pattern}: no such shards")
    return list(dict.fromkeys(names))


def _glob(pattern: str) -> list[str]:
    if not is_remote(pattern):
        return sorted(glob(pattern))  # noqa: PTH207 (the pattern may be absolute)
    files = file_system(pattern)
    protocol = pattern.partition("://")[0]
    found = sorted(str(name) for name in files.glob(pattern))
    return [
        name if is_remote(name) else f"{protocol}://{name.lstrip('/') if protocol != 'file' else name}"
        for name in found
    ]


def file_system(address: str) -> Any:
    """The file system of fsspec that an address names."""
    fsspec = import_optional("fsspec", "pip install 'diptych[streams]'", "shards on this machine")
    try:
        return fsspec.core.url_to_fs(address)[0]
    except (ImportError, ValueError) as reason:  # a protocol that needs a package, or one that nobody knows
        raise DataError(f"{address}: fsspec cannot open it ({reason})") from None


def shard_size(name: str) -> int | None:
    """The number of bytes of a shard; None if there is no such file, or nobody says how long it is."""
    if is_remote(name):
        try:
            size = file_system(name).info(name).get("size")
        except OSError:
            return None
        return None if size is None else int(size)
    path = Path(name)
    return path.stat().st_size if path.is_file() else None


@contextmanager
def open_shard(name: str) -> Iterator[BinaryIO]:
    """Open a shard to read it from its beginning to its end; OSError if it cannot be opened."""
    if is_remote(name):
        with file_system(name).open(name, "rb") as remote:
            yield cast("BinaryIO", remote)
    else:
        if Path(name).exists() and not Path(name).is_file():  # opening a pipe could wait forever
            raise DataError(f"{name}: not an ordinary file")
        with Path(name).open("rb") as file:
            yield file


def read_bytes(name: str) -> bytes | None:
    """The content of a small file beside shards; None if there is no such file."""
    try:
        with open_shard(name) as file:
            return file.read()
    except FileNotFoundError:
        return None
