"""Videos, read as a few of their frames, upright and reduced; the optional package av (PyAV) decodes them.

A frame is taken every few seconds. Key frames, which can be decoded by themselves, are preferred: a frame between them
is decoded only if none is near enough. Frames are read one at a time, and a damaged video gives those that can be read.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from PIL import Image
from typing_extensions import Self

from diptych.data.cut_short import is_cut_short
from diptych.data.file_kinds import INSTALL_VIDEO
from diptych.data.header import Header
from diptych.data.large_photos import MAX_PIXELS
from diptych.data.video_header import clock, header_of
from diptych.errors import ImageError, MissingPackageError
from diptych.optional import why_broken

SECONDS_BETWEEN = 5.0
MAX_FRAMES = 120  # per video: a longer one has them further apart

_OLDEST = (17, 1)  # earlier ones crash when a format is limited to some and the file is an MPEG program stream
_MAX_FRAME_PIXELS = 36_000_000  # 8K; decoders keep up to 17 frames
_MAX_DEPENDENT = 3000  # frames of a video that are decoded only because others depend on them
_MAX_SECONDS = 24 * 3600.0  # what is longer says something wrong about itself
_FARTHER_BACK = (0.0, 3.0, 15.0)
_NEAR = 0.06  # seconds by which a moment may be off that is written with one decimal

# What is opened, by its content: no playlists, which name other files and addresses.
_FORMATS = "mov,matroska,avi,mpegts,mpeg,asf,flv,ogg"
_TURNS = {90: Image.Transpose.ROTATE_90, 180: Image.Transpose.ROTATE_180, 270: Image.Transpose.ROTATE_270}
_MOST_STRETCHED = 4.0  # the ratio of the sides of a pixel


class Moment(NamedTuple):
    """A frame of a video, its second, and the header of the video with the size of a whole upright frame."""

    seconds: float
    image: Image.Image
    header: Header


class Video:
    """An open video, whose frames are reduced for `size` as photos are (see `diptych.data.images.decode`).

    `is_damaged` is whether part of it cannot be read; it is known when its frames have been read.
    """

    def __init__(self, path: Path, size: int | None = None) -> None:
        self._av, self._path, self._size = _import_av(), path, size
        self._dependent = 0
        self.is_damaged = is_cut_short(path)
        self._begin()
        self._header = header_of(self._container.metadata)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._container.close()

    def frames(self, every: float = SECONDS_BETWEEN, most: int = MAX_FRAMES) -> Iterator[Moment]:
        """A frame every so many seconds, in order; they are further apart if there would be more than `most`."""
        duration = self._duration()
        step, last, missed = max(every, duration / most), float("-inf"), 0
        targets = [number * step for number in range(most) if number == 0 or number * step < duration - _NEAR]
        for target in targets:
            is_thorough = self._dependent < _MAX_DEPENDENT
            found = self._near(target, last, step / 2 if is_thorough else step)
            if found is not None:
                yield found
                last = found.seconds
            elif is_thorough:
                missed += 1
        self.is_damaged |= missed > max(1, len(targets) // 10)

    def at(self, seconds: float) -> Image.Image:
        """The frame at a moment that `frames` gave; ImageError if it can no longer be read."""
        found = self._near(seconds + _NEAR, seconds - 2 * _NEAR, 2 * _NEAR)
        if found is None:
            raise ImageError(f"no frame at {clock(seconds)} can be read; has the video been changed?")
        return found.image

    def _begin(self) -> None:
        """Open the file, at its beginning."""
        self._container = self._open()
        try:
            self._stream = self._pictures()
        except BaseException:
            self._container.close()
            raise
        self._base = self._stream.time_base
        self._start = float((self._stream.start_time or 0) * self._base)

    def _open(self) -> Any:
        options = {"format_whitelist": _FORMATS, "protocol_whitelist": "file", "max_pixels": str(_MAX_FRAME_PIXELS)}
        path = os.path.abspath(self._path)  # noqa: PTH100 (so that no name is taken for a protocol)
        try:
            return self._av.open(path, options=options, metadata_errors="replace")
        except (self._av.error.FFmpegError, ValueError) as reason:
            raise ImageError(_why_not_opened(self._path, reason)) from None

    def _pictures(self) -> Any:
        """The stream of pictures, which is not the cover of a piece of music."""
        cover = self._av.stream.Disposition.attached_pic
        streams = [stream for stream in self._container.streams.video if not stream.disposition & cover]
        if not streams:
            raise ImageError("a video without pictures" + (", only sound" if self._container.streams.audio else ""))
        context = streams[0].codec_context
        if context is None or not context.width:
            raise ImageError("its pictures are in an unknown format or damaged; export it as MP4")
        if context.width * context.height > _MAX_FRAME_PIXELS:
            size = f"{context.width} x {context.height} pixels"
            raise ImageError(f"{size}, above the limit of {_MAX_FRAME_PIXELS:,} for videos; save it smaller")
        return streams[0]

    def _duration(self) -> float:
        """The seconds of the video; a file that does not say so is read through, without decoding it."""
        if self._stream.duration:
            duration = float(self._stream.duration * self._base)
        else:
            duration = (self._container.duration or 0) / 1e6
        if 0 < duration <= _MAX_SECONDS:
            return duration
        try:
            return max((self._seconds(packet) for packet in self._packets()), default=0.0)
        except self._av.error.FFmpegError:
            self.is_damaged = True
            return 0.0

    def _near(self, target: float, after: float, tolerance: float) -> Moment | None:
        """The key frame at most `tolerance` before the target, or else the first frame that is not before the target.

        It comes later than `after`; None if there is no such frame, or too many others would have to be decoded.
        """
        try:
            key, packets = self._key_before(target)
            context = self._stream.codec_context
            if key is None:
                return None
            if self._seconds(key) > after and self._seconds(key) >= target - tolerance:
                frames = [*context.decode(key), *context.decode(None)]
                return next(filter(None, map(self._moment, frames)), None)
            return self._first_from(itertools.chain([key], packets), max(target - _NEAR, after))
        except self._av.error.FFmpegError:
            self.is_damaged = True
            return None
        finally:
            self._stream.codec_context.flush_buffers()

    def _first_from(self, packets: Iterator[Any], seconds: float) -> Moment | None:
        """The first frame after a time among the frames of these packets, of which the first one is a key frame."""
        for packet in itertools.chain(packets, [None]):
            for frame in self._stream.codec_context.decode(packet):
                self._dependent += 1
                if frame.pts is not None and self._seconds(frame) > seconds:
                    return self._moment(frame)
            if self._dependent >= _MAX_DEPENDENT:
                return None
        return None

    def _key_before(self, target: float) -> tuple[Any, Iterator[Any]]:
        """The packet of the last key frame that is not after the target, if any, and those that follow it.

        Where a seek is not exact, as in the streams of camcorders, it is repeated from farther back.
        """
        for back in _FARTHER_BACK:
            with suppress(self._av.error.FFmpegError):  # some files can only be read from the beginning
                self._container.seek(int((target - back + self._start) / self._base), stream=self._stream)
                packets = self._packets()
                key = next((packet for packet in packets if packet.is_keyframe), None)
                if key is not None and self._seconds(key) <= target + _NEAR:
                    return key, packets
        self._container.close()
        self._begin()
        packets = self._packets()
        return next((packet for packet in packets if packet.is_keyframe), None), packets

    def _packets(self) -> Iterator[Any]:
        """The packets from here on that have a time; a broken one is left out."""
        for packet in self._container.demux(self._stream):
            self.is_damaged |= packet.is_corrupt
            if packet.pts is not None and not packet.is_corrupt:
                yield packet

    def _seconds(self, timed: Any) -> float:
        """The second of a packet or a frame."""
        return float(timed.pts * self._base) - self._start

    def _moment(self, frame: Any) -> Moment | None:
        """A decoded frame as an upright image; None if it is broken."""
        if frame.is_corrupt or frame.pts is None or frame.width * frame.height > _MAX_FRAME_PIXELS:
            self.is_damaged = True
            return None
        width, height = frame.width * self._pixel_ratio(), float(frame.height)
        turns = round(frame.rotation / 90) * 90 % 360
        upright = (height, width) if turns in (90, 270) else (width, height)
        header = replace(self._header, width=round(upright[0]), height=round(upright[1]))
        scale = (MAX_PIXELS / (width * height)) ** 0.5 if self._size is None else 2 * self._size / min(width, height)
        sides = {name: max(1, round(min(scale, 1.0) * side)) for name, side in (("width", width), ("height", height))}
        image: Image.Image = frame.to_image(**sides)
        if turns in _TURNS:
            image = image.transpose(_TURNS[turns])
        return Moment(round(max(self._seconds(frame), 0.0), 1), image, header)

    def _pixel_ratio(self) -> float:
        """The width of a pixel relative to its height: those of some camcorders are not square."""
        ratio = float(self._stream.sample_aspect_ratio or 1)
        return ratio if 1 / _MOST_STRETCHED <= ratio <= _MOST_STRETCHED else 1.0


def frame_at(path: Path, seconds: float, size: int | None = None) -> Image.Image:
    """The frame of a video at a moment that its `frames` gave, decoded for `size`."""
    with Video(path, size) as video:
        return video.at(seconds)


def _import_av() -> Any:
    try:
        import av
    except ModuleNotFoundError:
        raise MissingPackageError(f"a video; to read it: {INSTALL_VIDEO}") from None
    except Exception as reason:
        raise MissingPackageError(f"a video; PyAV cannot be imported {why_broken(reason)}") from None
    if tuple(map(int, av.__version__.split(".")[:2])) < _OLDEST:
        raise MissingPackageError(f"a video; PyAV {av.__version__} is too old to read it: {INSTALL_VIDEO}")
    return av


def _why_not_opened(path: Path, reason: Exception) -> str:
    if isinstance(reason, FileNotFoundError):
        return "no such file"
    if path.is_file() and not path.stat().st_size:
        return "an empty file (0 bytes); copy it again"
    if isinstance(reason, OSError) and not isinstance(reason, ValueError) and reason.strerror:
        return f"cannot be read ({reason.strerror})"
    return "not a video in a known format, or its index is missing, as after a recording or copy that was interrupted"
