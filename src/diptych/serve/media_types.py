"""The media type of a file by its first bytes, and which types browsers show."""

from __future__ import annotations

BEGINNING = 64  # bytes that are enough to tell
UNKNOWN = "application/octet-stream"

# Never HTML or SVG: in a browser they could run scripts.
SHOWN = frozenset(
    {
        *("image/jpeg", "image/png", "image/gif", "image/webp", "image/avif", "image/bmp"),
        *("video/mp4", "video/webm", "video/quicktime"),
    }
)

_SIGNATURES = {
    b"\xff\xd8\xff": "image/jpeg",
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"BM": "image/bmp",
    b"II*\0": "image/tiff",
    b"MM\0*": "image/tiff",
    b"\0\0\0\x0cjP  \r\n\x87\n": "image/jp2",
    b"\0\0\x01\xb3": "video/mpeg",
    b"\0\0\x01\xba": "video/mpeg",
    b"FLV\x01": "video/x-flv",
    b"OggS": "video/ogg",
}
_RIFF = {b"WEBP": "image/webp", b"AVI ": "video/x-msvideo"}
_BRANDS = {  # of ISO base media files, by their first letters
    b"avi": "image/avif",
    b"hei": "image/heic",
    b"hev": "image/heic",
    b"mif": "image/heif",
    b"msf": "image/heif",
    b"crx": "image/x-canon-cr3",
    b"qt ": "video/quicktime",
}


def media_type(beginning: bytes) -> str:
    """The media type of a file with this beginning."""
    for signature, found in _SIGNATURES.items():
        if beginning.startswith(signature):
            return found
    if beginning.startswith(b"RIFF"):
        return _RIFF.get(beginning[8:12], UNKNOWN)
    if beginning[4:8] == b"ftyp":
        return _BRANDS.get(beginning[8:11], "video/mp4")
    if beginning.startswith(b"\x1aE\xdf\xa3"):
        return "video/webm" if b"webm" in beginning else "video/x-matroska"
    return UNKNOWN
