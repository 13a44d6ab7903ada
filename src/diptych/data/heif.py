"""HEIC and HEIF photos, which the optional package pillow-heif decodes; it is imported when the first one is opened."""

from __future__ import annotations

from typing import BinaryIO

from PIL import Image

from diptych.data.file_kinds import INSTALL_HEIF
from diptych.errors import MissingPackageError
from diptych.optional import why_broken

_BRANDS = frozenset((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs", b"mif1", b"msf1", b"mif2"))
_AVIF_BRANDS = frozenset((b"avif", b"avis"))


def is_heif(beginning: bytes) -> bool:
    """Whether a file that begins like this is HEIC or HEIF; AVIF, which Pillow decodes itself, is not."""
    if beginning[4:8] != b"ftyp":
        return False
    length = min(int.from_bytes(beginning[:4], "big"), len(beginning))
    brands = {beginning[8:12], *(beginning[at : at + 4] for at in range(16, length, 4))}
    return not _BRANDS.isdisjoint(brands) and _AVIF_BRANDS.isdisjoint(brands)


def open_heif(file: BinaryIO) -> Image.Image:
    """Open a HEIC or HEIF file without decoding it.

    Pillow is not told about the format, so that other code in the process finds it as it was.
    """
    try:
        from pillow_heif import HeifImageFile
    except ModuleNotFoundError:
        raise MissingPackageError(f"a HEIC photo; to read it: {INSTALL_HEIF}") from None
    except Exception as reason:
        raise MissingPackageError(f"a HEIC photo; pillow-heif cannot be imported {why_broken(reason)}") from None
    image: Image.Image = HeifImageFile(file)  # type: ignore[no-untyped-call]
    return image
