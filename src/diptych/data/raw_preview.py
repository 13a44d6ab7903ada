"""RAW photos, shown by the largest JPEG that the camera has embedded; the sensor's data is not developed.

Most RAW formats are TIFF structures whose directories say where their previews are (CR2, NEF, ARW, DNG, PEF, SRW). RW2
keeps its preview in a tag, RAF names it in its header, and CR3 is an ISO media file. Where none of these leads to more
than a thumbnail, as in ORF, the file is searched for the beginning of a JPEG.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from PIL import Image, JpegImagePlugin

from diptych.data.header import EXIF, GPS
from diptych.data.iso_boxes import Box, boxes, find
from diptych.data.tiff_tags import Directory, TiffTags
from diptych.errors import ImageError

_TIFF = (b"II*\0", b"MM\0*")
_RAW_TIFF = (b"IIRO", b"IIRS", b"MMOR", b"IIU\0")  # Olympus and Panasonic
_FUJIFILM, _FUJIFILM_JPEG = b"FUJIFILMCCD-RAW", 84
_CANON_ISO = b"ftypcrx "
_CANON_TAGS = b"uuid" + bytes.fromhex("85c0b687820f11e08111f4ce462b6a48")
_CANON_PREVIEW = b"uuid" + bytes.fromhex("eaf42b5e1c984b88b9fbb7dc406e4d16")

_COMPRESSION, _PHOTOMETRIC, _STRIPS, _STRIP_LENGTHS = 0x0103, 0x0106, 0x0111, 0x0117
_JPEG, _JPEG_LENGTH, _PANASONIC_JPEG, _DNG_VERSION = 0x0201, 0x0202, 0x002E, 0xC612
_SENSOR = (32803, 34892)  # photometric interpretations of undeveloped data
_JPEG_COMPRESSIONS = (6, 7)

_START, _SCAN = b"\xff\xd8\xff", 0xDA
_FRAMES = (0xC0, 0xC1, 0xC2)  # what decoders read; sensor data may be a lossless JPEG
_OTHER_FRAMES = frozenset(range(0xC3, 0xD0)) - {0xC4, 0xC8, 0xCC}
_THUMBNAIL = 640  # pixels on the longer side of what is hardly more than a thumbnail
_MAX_SEGMENTS, _MAX_STARTS = 200, 1000
_CHUNK = 2**20


class _Jpeg(NamedTuple):
    """An embedded JPEG: its size in pixels and its place."""

    width: int
    height: int
    at: int
    length: int


def is_raw(file: BinaryIO, beginning: bytes) -> bool:
    """Whether a file that begins like this is a RAW photo; a TIFF is one if it has undeveloped data of a sensor."""
    if beginning[:4] in _RAW_TIFF or beginning.startswith(_FUJIFILM) or beginning[4:12] == _CANON_ISO:
        return True
    if beginning[:4] not in _TIFF:
        return False
    tags = TiffTags(file)
    is_canon = beginning[8:10] == b"CR"
    return is_canon or any(_DNG_VERSION in fields or _is_sensor(tags, fields) for fields in tags.directories())


def open_raw(file: BinaryIO) -> Image.Image:
    """Open the preview of a RAW photo, with the orientation, camera, day and place of the RAW photo."""
    found = _Previews(file)
    jpeg = found.largest()
    if jpeg is None and found.are_cut_off:
        raise ImageError("a RAW photo that is damaged or cut short; copy it again")
    if jpeg is None:
        raise ImageError("a RAW photo without an embedded preview; export it as JPEG")
    image = JpegImagePlugin.jpeg_factory(io.BytesIO(found.read(jpeg.at, jpeg.length)))
    exif = image.getexif()  # that of the preview, if it has any; what is changed in it stays
    for block, tags in zip((exif, exif.get_ifd(EXIF), exif.get_ifd(GPS)), found.exif(), strict=True):
        block.update(tags)
    return image


class _Previews:
    """The embedded JPEGs of one RAW photo, and its EXIF tags."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._end = file.seek(0, 2)
        self._beginning = self.read(0, 16)

    def read(self, at: int, count: int) -> bytes:
        """The bytes at a place; fewer at the end of the file."""
        self._file.seek(at)
        return self._file.read(count)

    def largest(self) -> _Jpeg | None:
        """The largest preview that lies within the file; None if there is none."""
        found = [jpeg for at, length in self._places() if (jpeg := self._jpeg(at, length))]
        if max((max(jpeg.width, jpeg.height) for jpeg in found), default=0) < _THUMBNAIL:
            found += [jpeg for at in self._starts() if (jpeg := self._jpeg(at, self._end - at))]
        return max(found, default=None, key=lambda jpeg: (jpeg.width * jpeg.height, -jpeg.at))

    @property
    def are_cut_off(self) -> bool:
        """Whether the file says that a preview is where it has ended."""
        return any(at + length > self._end for at, length in self._places())

    def exif(self) -> tuple[dict[int, Any], dict[int, Any], dict[int, Any]]:
        """The main tags, those of the capture, and those of the place; empty for RAF, whose preview has them."""
        if self._beginning[4:12] == _CANON_ISO:
            blocks = {box.kind: box for box in self._canon_tags()}
            places = (blocks.get(kind) for kind in (b"CMT1", b"CMT2", b"CMT4"))
            main, details, gps = ({} if box is None else self._first_directory(box.begin) for box in places)
            return main, details, gps
        if self._beginning.startswith(_FUJIFILM):
            return {}, {}, {}
        tags = TiffTags(self._file)
        main = next(tags.directories(), {})
        return tags.plain(main), tags.plain(tags.directory(main, EXIF)), tags.plain(tags.directory(main, GPS))

    def _places(self) -> Iterator[tuple[int, int]]:
        """Where the structure of the file says that JPEGs are: place and length."""
        if self._beginning[4:12] == _CANON_ISO:
            yield from self._places_in_boxes()
        elif self._beginning.startswith(_FUJIFILM):
            header = self.read(_FUJIFILM_JPEG, 8)
            yield int.from_bytes(header[:4], "big"), int.from_bytes(header[4:], "big")
        else:
            tags = TiffTags(self._file)
            for fields in tags.directories():
                yield from _places_in_directory(tags, fields)

    def _places_in_boxes(self) -> Iterator[tuple[int, int]]:
        thumbnails = (box for box in self._canon_tags() if box.kind == b"THMB")
        for box in [*find(self._file, 0, self._end, _CANON_PREVIEW), *thumbnails]:
            if (start := self.read(box.begin, 128).find(_START)) >= 0:  # after versions and sizes
                yield box.begin + start, box.end - box.begin - start
        for table in find(self._file, 0, self._end, b"moov", b"trak", b"mdia", b"minf", b"stbl"):
            parts = {box.kind: self.read(box.begin, 20) for box in boxes(self._file, table.begin, table.end)}
            at, size = parts.get(b"co64", b""), parts.get(b"stsz", b"")
            length = int.from_bytes(size[4:8], "big") or int.from_bytes(size[12:16], "big")
            yield int.from_bytes(at[8:16], "big"), length

    def _canon_tags(self) -> Iterator[Box]:
        """Canon's boxes with EXIF tags and the thumbnail."""
        for box in find(self._file, 0, self._end, b"moov", _CANON_TAGS):
            yield from boxes(self._file, box.begin, box.end)

    def _first_directory(self, begin: int) -> dict[int, Any]:
        tags = TiffTags(self._file, begin)
        return tags.plain(next(tags.directories(), {}))

    def _jpeg(self, at: int, length: int) -> _Jpeg | None:
        """The JPEG at a place, by its header; None if it is none that can be decoded, or not within the file."""
        if at <= 0 or length <= len(_START) or at + length > self._end or self.read(at, 3) != _START:
            return None
        place = at + 2
        for _ in range(_MAX_SEGMENTS):
            head = self.read(place, 9)
            if len(head) < 9 or head[0] != 0xFF or head[1] == _SCAN or head[1] in _OTHER_FRAMES:
                return None
            if head[1] in _FRAMES:
                height, width = int.from_bytes(head[5:7], "big"), int.from_bytes(head[7:9], "big")
                return _Jpeg(width, height, at, length) if width and height else None
            place += 1 if head[1] == 0xFF else 2 + int.from_bytes(head[2:4], "big")
            if place >= at + length:
                return None
        return None

    def _starts(self) -> Iterator[int]:
        """The places of the file where a JPEG could begin."""
        count, begin = 0, 0
        while begin < self._end and count < _MAX_STARTS:
            chunk = self.read(begin, _CHUNK + len(_START) - 1)
            start = chunk.find(_START)
            while start >= 0 and count < _MAX_STARTS:
                count += 1
                yield begin + start
                start = chunk.find(_START, start + 1)
            begin += _CHUNK


def _places_in_directory(tags: TiffTags, fields: Directory) -> Iterator[tuple[int, int]]:
    """Where the JPEGs of a directory are: named as such, as the only strip, or the value of Panasonic's tag."""
    at, length = tags.number(fields, _JPEG), tags.number(fields, _JPEG_LENGTH)
    if at is not None and length is not None:
        yield at, length
    strips, lengths = tags.values(fields, _STRIPS), tags.values(fields, _STRIP_LENGTHS)
    is_jpeg = tags.number(fields, _COMPRESSION) in _JPEG_COMPRESSIONS and not _is_sensor(tags, fields)
    if is_jpeg and len(strips) == len(lengths) == 1:
        yield strips[0], lengths[0]
    if (panasonic := fields.get(_PANASONIC_JPEG)) is not None:
        yield panasonic.at, panasonic.parts


def _is_sensor(tags: TiffTags, fields: Directory) -> bool:
    return tags.number(fields, _PHOTOMETRIC) in _SENSOR
