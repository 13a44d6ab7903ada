"""Reads the photos and videos of a source for an index: the input of the model, a thumbnail, and what the file says.

A content that the index knows is not decoded.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from diptych.data.header import Header
from diptych.data.images import Photo, picture_path, read_photo
from diptych.data.video import Video
from diptych.data.video_header import clock
from diptych.errors import DataError, ImageError, MissingPackageError
from diptych.features.hashes import pixels_hash
from diptych.index.backend import Content
from diptych.index.decoding import PhotoOptions, photo_options
from diptych.index.frames import distinct, frame_hash, frame_key, seconds_of, video_hash
from diptych.index.sources.listing import ImageInfo, Listing, Source
from diptych.index.thumbnails import difference_hash, thumbnail
from diptych.model import Model

LARGEST_FILE = 2**30  # of a photo, which is read into memory

_CUT_SHORT = "damaged or cut short"


@dataclass
class ReadImage:
    """One image as it was read; `frame_of` is the key of the video that it is a frame of, if any.

    `prepared` is the input of the model; without it and without a `reason` the content is already known. The `content`
    does not have its vector yet.
    """

    key: str
    digest: bytes = b""
    info: ImageInfo | None = None
    prepared: NDArray[Any] | None = None
    content: Content | None = None
    reason: str | None = None
    permanent: bool = True
    frame_of: str | None = None

    @property
    def file(self) -> str:
        """The key of the file that it is from."""
        return self.frame_of or self.key


class ImageReader:
    """Reads what a listing of a source has, for a model; `is_known` tells whether the index has a content.

    Photos may be read by several threads.
    """

    def __init__(self, source: Source, listing: Listing, model: Model, is_known: Callable[[bytes], bool]) -> None:
        self._source, self._listing, self._model, self._is_known = source, listing, model, is_known

    @cached_property
    def options(self) -> PhotoOptions:
        """How photos are decoded and batched."""
        return photo_options(self._model.engine)

    def photo(self, key: str) -> ReadImage:
        """Read one photo; one that cannot be read has a reason."""
        try:
            info = self._source.info(key)
            picture = self._source.picture(key)
            path = picture_path(picture)
            if path is not None:
                return self._file(key, str(path), info)
            photo = picture.load()
            digest = bytes.fromhex(pixels_hash(photo))
            if self._is_known(digest):
                return ReadImage(key, digest, info)
            return self._prepared(key, digest, info, Photo(photo, Header(photo.width, photo.height)))
        except (DataError, OSError) as reason:
            return unreadable(key, reason)

    def info(self, key: str) -> ReadImage:
        """Read only what the source says about an image, whose file has not changed."""
        try:
            return ReadImage(key, info=self._source.info(key))
        except (DataError, OSError) as reason:
            return unreadable(key, reason)

    def frames(self, key: str, known: Callable[[bytes], list[bytes]]) -> Iterator[ReadImage]:
        """Read the frames of a video, in order; `known` gives those that the index has of a video with a hash.

        The last one has a note about a damaged file. If there is none, an error says why.
        """
        path, info = picture_path(self._source.picture(key)), self._source.info(key)
        assert path is not None
        digest = video_hash(path, self._listing.files[key][:2])
        hashes = known(digest)
        for number, frame in enumerate(hashes):
            yield _frame(key, info, frame, number)
        if not hashes:
            yield from self._new_frames(key, path, digest, info)

    def _new_frames(self, key: str, path: Path, digest: bytes, info: ImageInfo) -> Iterator[ReadImage]:
        held: ReadImage | None = None  # until it is clear that it is not the last one
        with Video(path, self.options.decode_size) as video:
            for number, (moment, look, small) in enumerate(distinct(video.frames())):
                if held is not None:
                    yield held
                held = _frame(key, info, frame_hash(digest, moment.seconds), number)
                held.prepared = self._model.engine.preprocess(moment.image)
                held.content = Content("image", held.digest, b"", None, look, moment.header, small)
            if held is None or held.info is None or held.info.moment is None:
                raise ImageError(f"no frame can be read: {_CUT_SHORT}; copy or export it again")
            if video.is_damaged:
                note = f"{_CUT_SHORT}: only frames up to {clock(held.info.moment)} can be read, which were kept"
                held.info = replace(held.info, problems={**held.info.problems, key: note})
            yield held

    def _file(self, key: str, path: str, info: ImageInfo) -> ReadImage:
        stamp = self._listing.files[key][:2]
        if stamp[0] > LARGEST_FILE:
            raise ImageError(f"has {stamp[0]:,} bytes, more than the limit of {LARGEST_FILE:,}; save a smaller copy")
        with open(path, "rb") as file:  # noqa: PTH123 (faster, and there are many)
            content = file.read()
            status = os.fstat(file.fileno())
        if (status.st_size, status.st_mtime_ns) != stamp:
            raise DataError("changed while it was read; run the command again")
        digest = hashlib.sha256(content).digest()
        if self._is_known(digest):
            return ReadImage(key, digest, info)
        try:
            photo = read_photo(content, key, self.options.decode_size)
        except ImageError as reason:
            raise type(reason)(str(reason).removeprefix(" ".join(f"{key}: ".splitlines()))) from None
        return self._prepared(key, digest, info, photo)

    def _prepared(self, key: str, digest: bytes, info: ImageInfo, photo: Photo) -> ReadImage:
        prepared = self._model.engine.preprocess(photo.image)
        look, small = difference_hash(photo.image), thumbnail(photo.image)
        return ReadImage(key, digest, info, prepared, Content("image", digest, b"", None, look, photo.header, small))


def unreadable(key: str, reason: Exception) -> ReadImage:
    """An image that cannot be read; whether trying again is useless depends on the reason."""
    text = f"cannot be read ({reason.strerror})" if isinstance(reason, OSError) else str(reason)
    is_permanent = isinstance(reason, ImageError) and not isinstance(reason, MissingPackageError)
    return ReadImage(key, reason=text, permanent=is_permanent)


def _frame(video: str, info: ImageInfo, digest: bytes, number: int) -> ReadImage:
    """A frame of a video; the texts of the video belong to the first one."""
    seconds = seconds_of(digest)
    about = replace(info, moment=seconds, texts=info.texts if number == 0 else ())
    return ReadImage(frame_key(video, seconds), digest, about, frame_of=video)
