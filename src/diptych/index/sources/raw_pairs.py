"""A RAW photo and the JPEG or HEIC that the camera wrote beside it are one photo: the RAW file need not be listed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath

from diptych.data.file_kinds import CAMERA_SUFFIXES, RAW_SUFFIXES, install_hint


def raw_doubles(names: Iterable[str]) -> set[str]:
    """Which of the files of a folder are RAW photos beside a JPEG or HEIC of the same name, whatever its case.

    A RAW photo is not a double of a HEIC that cannot be read yet.
    """
    paths = [PurePath(name) for name in names]
    raw = [path for path in paths if path.suffix.lower() in RAW_SUFFIXES]
    if not raw:
        return set()
    developed = {
        path.stem for path in paths if path.suffix.lower() in CAMERA_SUFFIXES and not install_hint(path.suffix)
    }
    return {path.name for path in raw if path.stem in developed}
