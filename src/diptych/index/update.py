"""One pass that brings an index up to date: threads read new photos, they are encoded, batches are written."""

from __future__ import annotations

import functools
import itertools
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Floats, Picture
from diptych.data.file_kinds import PACKAGED_SUFFIXES, VIDEO_SUFFIXES, install_hint
from diptych.data.images import picture_path
from diptych.data.read_ahead import read_ahead
from diptych.errors import DataError
from diptych.index.backend import Content, IndexStore, text_hash
from diptych.index.encoding_pool import ImageEncoder, OwnEncoder
from diptych.index.reading import ImageReader, ReadImage, unreadable
from diptych.index.sources.accounting import FileCounts
from diptych.index.sources.listing import Listing, Source
from diptych.index.spec import IndexSpec
from diptych.index.storage_cost import measure
from diptych.index.vectors import encode, encode_set
from diptych.model import Model
from diptych.models.engines.engine import Encodings
from diptych.progress import ProgressCallback

TEXTS_PER_BATCH = 256

# A transaction ends when either is reached; a killed process loses no more than that.
IMAGES_PER_TRANSACTION = 256
SECONDS_PER_TRANSACTION = 5.0

SAMPLE = 2000  # vectors that the cost of the storage types is measured with
_NOT_FINITE = "the model's encoding of it is not finite"

Item = TypeVar("Item")


class Update:
    """Brings a store up to date with a listing of its source; `spec` has the current addresses of model and source."""

    def __init__(
        self,
        store: IndexStore,
        spec: IndexSpec,
        source: Source,
        listing: Listing,
        model: Model,
        workers: int,
        *,
        encoder: ImageEncoder | None = None,
    ) -> None:
        """`encoder` is what encodes images, by default this process."""
        self._encoder = encoder or OwnEncoder(model)
        self._store, self._source, self._listing, self._workers = store, source, listing, workers
        self._spec = spec
        self._model = model
        self.encoded = self.texts_encoded = self.removed = self.failed = 0
        self._found_again = 0  # images with new keys whose contents are known: copies and renamed ones
        self.interrupted = False
        self.files = FileCounts()
        self._batch: list[ReadImage] = []  # to encode
        self._encoding: deque[tuple[list[ReadImage], Callable[[], Encodings]]] = deque()
        self._ready: list[ReadImage] = []  # to write, once those in the batch are encoded
        self._new: dict[bytes, Content | None] = {}  # contents not written yet; None: not encoded yet
        self._failed: set[bytes] = set()
        self._sample: list[Floats] = []
        self._waiting: list[str] = []  # what an interrupt leaves undone
        self._reader = ImageReader(source, listing, model, self._is_known)
        self._compare()

    def _compare(self) -> None:
        """Find out what to do from the stamps of all images; no file is opened."""
        known, files = self._store.image_stamps(), self._listing.files
        self._known, self._indexed = known.keys(), set(known)
        gone = known.keys() - files.keys()
        if self._listing.unlisted:
            gone = {key for key in gone if not key.startswith(tuple(self._listing.unlisted))}
        self.writer = self._store.writer(gone)
        problems = self._store.problem_records()
        failed = {(problem.key, problem.size, problem.modified) for problem in problems if problem.size is not None}
        changed = sorted(key for key, stamp in files.items() if known.get(key) != stamp)
        suffixes = {key: _suffix(self._source.picture(key)) for key in changed}
        self._videos = {key for key in changed if suffixes[key] in VIDEO_SUFFIXES}
        self._only_info_changed = {
            key for key in changed if key in known and known[key][:2] == files[key][:2] and key not in self._videos
        }
        self._todo = [key for key in changed if key in self._only_info_changed or (key, *files[key][:2]) not in failed]
        self._solved = [
            problem.key
            for problem in problems
            if problem.size is not None and problem.key not in files and problem.key not in self._listing.text_files
        ]
        noted = {problem.key: problem.reason for problem in problems if problem.size is None}
        self.needs_packages = self._leave_out_what_needs_packages(suffixes)
        self._source_problems = {**self._listing.problems, **self.needs_packages}
        is_same = noted == self._source_problems and self._store.spec == self._spec
        is_unfinished = bool(self._store.meta("unfinished"))
        self._is_up_to_date = is_same and not (self._todo or gone or self._solved or is_unfinished)

    @property
    def copies(self) -> int:
        """The number of new images whose content the index had already."""
        return max(0, self._found_again - self.writer.renamed)

    def _leave_out_what_needs_packages(self, suffixes: Mapping[str, str]) -> dict[str, str]:
        """Leave out new files that an optional package would read; one problem per ending says what to install."""
        hints = {suffix: hint for suffix in PACKAGED_SUFFIXES if (hint := install_hint(suffix))}
        left_out = Counter(suffixes[key] for key in self._todo if suffixes[key] in hints)
        self._todo = [key for key in self._todo if suffixes[key] not in hints]
        return {
            f"*{suffix}": f"{count:,} {'file' if count == 1 else 'files'}: {hints[suffix]}"
            for suffix, count in left_out.items()
        }

    def run(self, interrupted: threading.Event, progress: ProgressCallback | None) -> None:
        """Do the work; stops early when `interrupted` is set, with everything finished written."""
        if not self._is_up_to_date:
            self.writer.begin(self._spec)
            self._last_write = time.monotonic()
            self._read(interrupted, progress)
            if not self.interrupted:
                self._finish()
        self.files = FileCounts.count(self._listing, self._indexed, self._waiting)
        self.writer.set_synced(datetime.now(timezone.utc).isoformat(timespec="seconds"), self.files.to_json())

    def _read(self, interrupted: threading.Event, progress: ProgressCallback | None) -> None:
        photos = [key for key in self._todo if key not in self._videos]
        videos = [key for key in self._todo if key in self._videos]  # last: they take longer
        total = len(self._todo)
        taken = map(self._take, read_ahead(self._read_image, photos, self._workers))
        added = map(functools.partial(self._add_video, interrupted=interrupted), videos)
        for done, _ in enumerate(itertools.chain(taken, added), 1):
            if progress:
                progress(done, total)
            if self.interrupted or (interrupted.is_set() and done < total):
                self._waiting = [*photos, *videos][done - self.interrupted :]  # a video that was begun is not done
                self.interrupted = True
                break
        self._encode()
        self._write()

    def _read_image(self, key: str) -> ReadImage:
        return self._reader.info(key) if key in self._only_info_changed else self._reader.photo(key)

    def _add_video(self, key: str, interrupted: threading.Event) -> None:
        """Read, encode and write the frames of one video, all of them or none."""
        self._encode()
        self._write()
        frames: list[ReadImage] = []
        try:
            for frame in self._reader.frames(key, self.writer.frames):
                frames.append(frame)
                if frame.prepared is not None:
                    self._new[frame.digest] = None
                    self._batch.append(frame)
                if len(self._batch) >= self._reader.options.batch_size:
                    self._encode()
                if interrupted.is_set():
                    self._forget_new()
                    self.interrupted = True
                    return
        except (DataError, OSError) as reason:
            self._forget_new()
            frames = [unreadable(key, reason)]
        self._ready = frames
        self._encode()
        self._write()

    def _forget_new(self) -> None:
        """Leave what is not written yet, of which some may be encoded."""
        self._batch, self._new = [], {}
        self._encoding.clear()

    def _is_known(self, digest: bytes) -> bool:
        return digest in self._new or self.writer.content("image", digest) is not None

    def _take(self, image: ReadImage) -> None:
        """Queue an image for encoding or writing, and do either when there is enough."""
        if image.prepared is not None:
            if self._is_known(image.digest):  # an equal image was read at the same time
                image.prepared = image.content = None
            else:
                self._new[image.digest] = None
                self._batch.append(image)
        self._ready.append(image)
        if self._batch and len(self._batch) >= self._reader.options.batch_size:
            self._encode()
        is_late = not self._batch and time.monotonic() - self._last_write > SECONDS_PER_TRANSACTION
        if is_late or len(self._ready) >= IMAGES_PER_TRANSACTION:
            self._encode()
            self._write()

    def _encode(self) -> None:
        """Begin to encode the batch."""
        if not self._batch:
            return
        prepared = [image.prepared for image in self._batch if image.prepared is not None]
        self._encoding.append((self._batch, self._encoder.begin(prepared)))
        for image in self._batch:
            image.prepared = None
        self._batch = []
        while len(self._encoding) > self._encoder.ahead:
            self._take_encoded()

    def _take_encoded(self) -> None:
        """Wait for the batch that was begun first."""
        batch, result = self._encoding.popleft()
        encodings = result()
        for image, vector, vector_set in self._as_bytes(batch, encodings):
            if vector is None or image.content is None:
                self._failed.add(image.digest)
            else:
                self._new[image.digest] = replace(image.content, vector=vector, vector_set=vector_set)
                self.encoded += 1
        missing = SAMPLE - sum(len(part) for part in self._sample)
        self._sample.append(encodings.vectors[: max(0, missing)])

    def _encode_texts(self) -> list[Content]:
        """The contents of the texts of the images in `_ready` that the index does not have."""
        texts = {text_hash(text): text for image in self._ready if image.info for text in image.info.texts}
        new = [digest for digest in texts if self.writer.content("text", digest) is None]
        new.sort(key=lambda digest: len(texts[digest]))  # texts of similar length need little padding
        contents = []
        for begin in range(0, len(new), TEXTS_PER_BATCH):
            part = new[begin : begin + TEXTS_PER_BATCH]
            encodings = self._model.engine.encode_texts([texts[digest] for digest in part])
            for digest, vector, vector_set in self._as_bytes(part, encodings):
                if vector is None:
                    raise DataError(f"the model's encoding of the text {texts[digest][:60]!r} is not finite")
                contents.append(Content("text", digest, vector, vector_set))
        return contents

    def _as_bytes(
        self, items: Sequence[Item], encodings: Encodings
    ) -> Iterator[tuple[Item, bytes | None, bytes | None]]:
        """Each item with its vector and its set, if any, as bytes; a vector that is not finite is None."""
        finite: NDArray[np.bool_] = np.asarray(np.isfinite(encodings.vectors).all(1))
        if encodings.sets is not None:
            finite &= np.array([np.isfinite(members).all() for members in encodings.sets], bool)
        vectors = encode(np.where(finite[:, None], encodings.vectors, 0).astype(np.float32), self._spec.storage)
        for row, item in enumerate(items):
            vector_set = None if encodings.sets is None else encode_set(encodings.sets[row])
            yield item, vectors[row] if finite[row] else None, vector_set

    def _write(self) -> None:
        """Write everything that is ready in one transaction."""
        while self._encoding:
            self._take_encoded()
        if not self._ready:
            return
        texts = self._encode_texts()
        with self.writer.transaction():
            for content in self._in_order({**self._new, **{text.hash: text for text in texts}}):
                self.writer.add(content)
            for image in self._ready:
                self._write_image(image)
            for video in {image.frame_of for image in self._ready if image.frame_of is not None}:
                self.writer.keep_frames(video, {image.key for image in self._ready if image.frame_of == video})
        self.texts_encoded += len(texts)
        self._ready, self._new = [], {}
        self._last_write = time.monotonic()

    def _in_order(self, contents: dict[bytes, Content | None]) -> Iterator[Content]:
        """New contents, each image followed by its texts, so that their order does not depend on transactions."""
        for image in self._ready:
            texts = () if image.info is None else image.info.texts
            for digest in (image.digest, *map(text_hash, texts)):
                if (content := contents.pop(digest, None)) is not None:
                    yield content

    def _write_image(self, image: ReadImage) -> None:
        stamp = self._listing.files[image.file]
        reason = _NOT_FINITE if image.digest in self._failed else image.reason
        if reason is not None or image.info is None:
            self.failed += 1
            self.writer.put_problem(image.key, stamp, str(reason), permanent=image.permanent)
            if image.permanent:
                self._indexed.discard(image.file)
            return
        content = self.writer.content("image", image.digest) if image.digest else self.writer.content_of(image.key)
        assert content is not None
        self._found_again += bool(image.digest) and image.content is None and image.file not in self._known
        self.writer.put_image(image.key, content, stamp, image.info)
        self._indexed.add(image.file)

    def _finish(self) -> None:
        """Remove what is gone, and note what the storage types cost."""
        cost = self._storage_cost()
        with self.writer.transaction():
            self.removed = self.writer.finish(self._source_problems, self._solved, cost)

    def _storage_cost(self) -> dict[str, Any] | None:
        """The cost of each storage type, unless it has been measured with at least as many vectors before."""
        sample = np.concatenate([np.empty((0, self._spec.size), np.float32), *self._sample])
        sample = sample[np.isfinite(sample).all(1)]
        before = self._store.meta("storage_cost") or {}
        return {**measure(sample), "of": len(sample)} if len(sample) > before.get("of", 1) else None


def _suffix(picture: Picture) -> str:
    path = picture_path(picture)
    return "" if path is None else path.suffix.lower()
