"""A RAW photo and the JPEG or HEIC that the camera wrote beside it are one photo: the RAW file need not be listed."""

from __future__ import annotations

import os
from collections.abc import Iterable

from diptych.data.file_kinds import CAMERA_SUFFIXES, RAW_SUFFIXES, install_hint


def raw_doubles(names: Iterable[str]) -> set[str]:
    """Which of the files of a folder are RAW photos beside a JPEG or HEIC of the same name, whatever its case.

    A RAW photo is not a double of a HEIC that cannot be read yet.
    """
    ends = [(name, *os.path.splitext(name)) for name in names]  # noqa: PTH122 (there may be very many)
    raw = [(name, stem) for name, stem, suffix in ends if suffix.lower() in RAW_SUFFIXES]
    if not raw:
        return set()
    beside = ((stem, suffix) for _, stem, suffix in ends if suffix.lower() in CAMERA_SUFFIXES)
    developed = {stem for stem, suffix in beside if not install_hint(suffix)}
    return {name for name, stem in raw if stem in developed}
