"""Whether a video ends before its container does, as after a copy or download that was interrupted.

MP4 and MOV, Matroska and WebM, and AVI say how long their parts are; streams such as those of camcorders do not.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from diptych.data.iso_boxes import boxes

_MAX_FRAGMENTS = 100_000  # of a long recording
_EBML, _SEGMENT = b"\x1a\x45\xdf\xa3", b"\x18\x53\x80\x67"


def is_cut_short(path: Path) -> bool:
    """Whether the last part of a video would go on after the end of its file; False for what does not say so."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            beginning = file.read(12)
            if beginning[4:8] == b"ftyp":
                return _is_iso_cut_short(file, size)
            if beginning[:4] == b"RIFF" and beginning[8:] == b"AVI ":
                return 8 + int.from_bytes(beginning[4:8], "little") > size
            return beginning[:4] == _EBML and _end_of_segment(file) > size
    except OSError:
        return False


def _is_iso_cut_short(file: BinaryIO, size: int) -> bool:
    found = list(boxes(file, 0, size, _MAX_FRAGMENTS))
    return len(found) < _MAX_FRAGMENTS and (not found or found[-1].end < size)


def _end_of_segment(file: BinaryIO) -> int:
    """Where the segment of a Matroska file, which follows its header, ends; 0 if it does not say so."""
    file.seek(len(_EBML))
    header = _length(file)
    if header is None:
        return 0
    file.seek(header, 1)
    if file.read(len(_SEGMENT)) != _SEGMENT:
        return 0
    segment = _length(file)
    return 0 if segment is None else file.tell() + segment


def _length(file: BinaryIO) -> int | None:
    """The length at this place: the zero bits before the first set one count the bytes that follow the first byte."""
    first = int.from_bytes(file.read(1), "big")
    if not first:
        return None
    following = 8 - first.bit_length()
    length = int.from_bytes(bytes([first ^ 1 << (7 - following)]) + file.read(following), "big")
    is_unknown = length == (1 << 7 * (following + 1)) - 1  # of a stream that was written while it was recorded
    return None if is_unknown else length
