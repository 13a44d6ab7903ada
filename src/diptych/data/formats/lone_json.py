"""A folder whose only JSON file has a name that says nothing: the file's content tells the format."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from diptych.data.address import Address
from diptych.data.corpus import Corpus
from diptych.data.formats import Format, all_formats
from diptych.errors import DataError
from diptych.files import read_json

ORDER = 80
DESCRIPTION = ""


def recognises(address: Address) -> bool:
    """A folder with exactly one JSON file, which another format recognises."""
    if (file := _only_json(address.path)) is None:
        return False
    if _format_of(replace(address, path=file)) is not None:
        return True
    read_json(file, DataError)  # a broken file is worth an error, any other file is ignored
    return False


def read(address: Address) -> Corpus:
    """Read the file in its own format."""
    file = _only_json(address.path)
    found = None if file is None else _format_of(replace(address, path=file))
    if file is None or found is None:
        raise DataError(f"{address.path}: not a folder with a JSON file in a known format")
    return found.read(replace(address, path=file))


def _only_json(path: Path) -> Path | None:
    files = list(path.glob("*.json")) if path.is_dir() else []
    return files[0] if len(files) == 1 else None


def _format_of(address: Address) -> Format | None:
    return next((each for each in all_formats() if each.ORDER < ORDER and each.recognises(address)), None)
