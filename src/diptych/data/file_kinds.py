"""The kinds of files that photos and videos come in: their endings, and the package that a kind needs."""

from __future__ import annotations

import functools
from importlib.util import find_spec


def _endings(names: str) -> frozenset[str]:
    return frozenset(f".{name}" for name in names.split())


HEIF_SUFFIXES = _endings("heic heif hif")
IMAGE_SUFFIXES = _endings("jpg jpeg jpe jfif png gif webp bmp tif tiff ppm pgm jp2 avif") | HEIF_SUFFIXES

RAW_SUFFIXES = _endings("cr2 cr3 nef nrw arw sr2 srf dng orf rw2 rwl raf pef srw 3fr erf mef kdc dcr")
VIDEO_SUFFIXES = _endings("mp4 m4v mov mkv webm avi mts m2ts 3gp 3g2 mpg mpeg wmv asf flv ogv")
INDEXED_SUFFIXES = IMAGE_SUFFIXES | RAW_SUFFIXES | VIDEO_SUFFIXES  # in a folder of photos
CAMERA_SUFFIXES = _endings("jpg jpeg jpe jfif") | HEIF_SUFFIXES  # which cameras write beside a RAW photo

PACKAGED_SUFFIXES = HEIF_SUFFIXES | VIDEO_SUFFIXES  # of files that optional packages read

INSTALL_HEIF = "pip install 'diptych[heic]'"
INSTALL_VIDEO = "pip install 'diptych[video]'"


def install_hint(suffix: str) -> str | None:
    """The command that installs what files with this ending need, such as `.heic`; None if they can be read."""
    if suffix.lower() in HEIF_SUFFIXES and not _is_installed("pillow_heif"):
        return INSTALL_HEIF
    return INSTALL_VIDEO if suffix.lower() in VIDEO_SUFFIXES and not _is_installed("av") else None


@functools.cache
def _is_installed(module: str) -> bool:
    return find_spec(module) is not None
