"""Reads the words in the pictures of an index, each content once; what was read stays when it is interrupted."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from diptych.data.images import load_for_side, picture_path
from diptych.data.read_ahead import read_ahead
from diptych.data.video import frame_at
from diptych.errors import DataError, ImageError
from diptych.index.backend import IndexStore
from diptych.index.frames import file_key
from diptych.index.picture_text import DECODED_FOR, RapidTextReader, TextReader
from diptych.index.sources.listing import Source
from diptych.index.words import PictureWordStore
from diptych.progress import ProgressCallback

SECONDS_PER_TRANSACTION = 5.0


class WordReading:
    """Reads the pictures of a store that were not read yet; `read` counts them."""

    def __init__(self, store: PictureWordStore, source: Source, reader: TextReader, workers: int) -> None:
        self._store, self._source, self._reader, self._workers = store, source, reader, workers
        self.read = 0

    def run(self, interrupted: threading.Event, progress: ProgressCallback | None = None) -> bool:
        """Do the work; returns whether it is complete, and not stopped because `interrupted` was set."""
        unread = self._store.unread_pictures()
        found: list[tuple[int, str]] = []
        last_write = time.monotonic()
        for done, (content, words) in enumerate(read_ahead(self._read_one, unread, self._workers), 1):
            if words is not None:
                found.append((content, words))
            if time.monotonic() - last_write > SECONDS_PER_TRANSACTION:
                found, last_write = self._write(found), time.monotonic()
            if progress:
                progress(done, len(unread))
            if interrupted.is_set() and done < len(unread):
                self._write(found)
                return False
        self._write(found)
        return True

    def _read_one(self, unread: tuple[int, str, float | None]) -> tuple[int, str | None]:
        """The words in a picture; none in a damaged one, and None if it cannot be opened at the moment."""
        content, key, moment = unread
        try:
            picture = self._source.picture(file_key(key, moment))
            video = None if moment is None else picture_path(picture)
            if moment is None or video is None:
                return content, self._reader.read(load_for_side(picture, DECODED_FOR))
            return content, self._reader.read(frame_at(video, moment, DECODED_FOR))
        except ImageError:
            return content, ""
        except (DataError, OSError):
            return content, None

    def _write(self, found: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
        if found:
            self._store.add_picture_words(found)
            self.read += len(found)
        return []


def word_reading(store: IndexStore, source: Source, workers: int, ocr: bool | None) -> WordReading | None:
    """What reads the words in pictures, if that is wanted; None leaves it as it was the last time."""
    if ocr is None:
        ocr = bool(store.meta("ocr"))
    elif not isinstance(store, PictureWordStore):
        raise DataError(f"{store.address}: only an index in an SQLite file keeps words in pictures; leave --ocr out")
    reader = RapidTextReader() if ocr else None  # which says so if it is not installed
    if not isinstance(store, PictureWordStore):
        return None
    if ocr != bool(store.meta("ocr")):
        store.set_meta("ocr", ocr)
    return None if reader is None else WordReading(store, source, reader, workers)
