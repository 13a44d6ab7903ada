"""One pass over what a source has and an index has not: threads read photos, the model encodes them in batches."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from diptych.data.corpus import Floats
from diptych.data.images import PictureFile, decode_bytes, read_header
from diptych.data.sampling.pairs import read_ahead
from diptych.errors import DataError, ImageError
from diptych.features.hashes import pixels_hash
from diptych.index.encoder import Encoder, Encodings
from diptych.index.opened import Opened
from diptych.index.source import About, Listing, Source
from diptych.index.sqlite.store import IndexSpec, Store
from diptych.index.sqlite.vectors import encode, encode_set
from diptych.index.sqlite.writer import Content, Writer, text_hash
from diptych.index.storage_cost import measure
from diptych.index.thumbnails import look, thumbnail

TEXTS = 256  # in one forward pass

# A transaction ends with the first of these: it is what a killed process loses at most.
IMAGES_A_TRANSACTION = 256
SECONDS_A_TRANSACTION = 5.0

SAMPLE = 2000  # vectors to measure the cost of the storage types with
_LARGEST_FILE = 2**30
_NOT_FINITE = "the model makes no finite numbers of it"

Item = TypeVar("Item")


@dataclass
class _Seen:
    """What a thread found out about one image; without `prepared` and `reason` its content was known."""

    key: str
    digest: bytes = b""
    about: About | None = None
    prepared: NDArray[Any] | None = None
    content: Content | None = None  # without its vector
    reason: str | None = None
    lasting: bool = True


class Update:
    """Brings a store up to date with a listing of its source; `spec` says where model and source lie now."""

    def __init__(
        self,
        store: Store,
        spec: IndexSpec,
        source: Source,
        listing: Listing,
        opener: Callable[[], Encoder],
        workers: int,
    ) -> None:
        self._store, self._source, self._listing, self._workers = store, source, listing, workers
        self._spec = spec
        self._storage = spec.storage
        self._model = Opened(opener, spec.identity, spec.size)
        self.encoded = self.texts_encoded = self.removed = 0
        self.interrupted = False
        self._batch: list[_Seen] = []  # to encode
        self._ready: list[_Seen] = []  # to write, when those of the batch are encoded
        self._new: dict[bytes, Content | None] = {}  # contents that are not written yet; None: not encoded yet
        self._failed: set[bytes] = set()
        self._sample: list[Floats] = []
        self._compare()

    def _compare(self) -> None:
        """Find what there is to do: one question to the index for all images, and no file is opened."""
        rows = self._store.database.rows("SELECT key, size, modified, details FROM entries WHERE kind = 'image'")
        known = {key: (size, modified, details) for key, size, modified, details in rows}
        files = self._listing.files
        gone = known.keys() - files.keys()
        if self._listing.unlisted:
            gone = {key for key in gone if not key.startswith(tuple(self._listing.unlisted))}
        self.writer = Writer(self._store, gone)
        problems = self._store.database.rows("SELECT key, size, modified, reason FROM problems")
        failed = {(key, size, modified) for key, size, modified, _ in problems if size is not None}
        changed = sorted(key for key, stamp in files.items() if known.get(key) != stamp)
        self._said = {key for key in changed if key in known and known[key][:2] == files[key][:2]}
        self._todo = [key for key in changed if key in self._said or (key, *files[key][:2]) not in failed]
        self._solved = [
            key
            for key, size, *_ in problems
            if size is not None and key not in files and key not in self._listing.beside
        ]
        noted = {key: reason for key, size, _, reason in problems if size is None}
        same = noted == self._listing.problems and self._store.spec == self._spec
        unfinished = bool(self._store.meta("unfinished"))
        self._nothing = same and not (self._todo or gone or self._solved or unfinished)

    def run(self, interrupted: threading.Event, progress: Callable[[int, int], None] | None) -> None:
        """Do it, and stop early, with everything finished written, when asked to."""
        if not self._nothing:
            self._begin()
            self._read(interrupted, progress)
        if not self.interrupted:
            self._finish()
        self._store.database.set_meta("synced", datetime.now(timezone.utc).isoformat(timespec="seconds"))

    def _begin(self) -> None:
        with self._store.database.transaction():
            self._store.database.set_meta("making", asdict(self._spec))
            self._store.database.set_meta("unfinished", True)
        self._written = time.monotonic()

    def _read(self, interrupted: threading.Event, progress: Callable[[int, int], None] | None) -> None:
        total = len(self._todo)
        for done, seen in enumerate(read_ahead(self._look, self._todo, self._workers), 1):
            self._take(seen)
            if progress:
                progress(done, total)
            if interrupted.is_set() and done < total:
                self.interrupted = True
                break
        self._encode()
        self._write()

    def _look(self, key: str) -> _Seen:
        """Read one image, in a thread of its own; what is known by its bytes is not decoded."""
        try:
            about = self._source.about(key)
            if key in self._said:
                return _Seen(key, about=about)
            picture = self._source.picture(key)
            if isinstance(picture, PictureFile):
                return self._look_at_file(key, str(picture.path), about)
            photo = picture.load()
            digest = bytes.fromhex(pixels_hash(photo))
            if self._known(digest):
                return _Seen(key, digest, about)
            return self._prepared(key, digest, about, photo, (photo.width, photo.height, None))
        except ImageError as reason:
            return _Seen(key, reason=str(reason))
        except (DataError, OSError) as reason:
            why = f"cannot be read ({reason.strerror})" if isinstance(reason, OSError) else str(reason)
            return _Seen(key, reason=why, lasting=False)

    def _look_at_file(self, key: str, path: str, about: About) -> _Seen:
        stamp = self._listing.files[key][:2]
        if stamp[0] > _LARGEST_FILE:
            raise ImageError(f"a file of {stamp[0]:,} bytes, above the limit of {_LARGEST_FILE:,}; save it smaller")
        with open(path, "rb") as file:  # noqa: PTH123 (one of very many)
            content = file.read()
            status = os.fstat(file.fileno())
        if (status.st_size, status.st_mtime_ns) != stamp:
            raise DataError("changed while it was read; run the command again")
        digest = hashlib.sha256(content).digest()
        if self._known(digest):
            return _Seen(key, digest, about)
        self._model()
        try:
            photo = decode_bytes(content, key, self._model.decoded)
        except ImageError as reason:
            raise ImageError(str(reason).removeprefix(" ".join(f"{key}: ".splitlines()))) from None
        own = read_header(content)
        return self._prepared(key, digest, about, photo, (own.width, own.height, own.taken))

    def _prepared(
        self, key: str, digest: bytes, about: About, photo: Image.Image, own: tuple[int, int, str | None]
    ) -> _Seen:
        prepared = self._model().prepare(photo)
        content = Content("image", digest, b"", None, look(photo), *own, thumbnail(photo))
        return _Seen(key, digest, about, prepared, content)

    def _known(self, digest: bytes) -> bool:
        return digest in self._new or self.writer.content("image", digest) is not None

    def _take(self, seen: _Seen) -> None:
        """Put an image where it belongs: into the next batch, or with those that are ready."""
        if seen.prepared is not None:
            if self._known(seen.digest):  # an equal one was read at the same time
                seen.prepared = None
            else:
                self._new[seen.digest] = None
                self._batch.append(seen)
        self._ready.append(seen)
        if len(self._batch) >= self._model.at_once:
            self._encode()
        late = not self._batch and time.monotonic() - self._written > SECONDS_A_TRANSACTION
        if late or len(self._ready) >= IMAGES_A_TRANSACTION:
            self._encode()
            self._write()

    def _encode(self) -> None:
        if not self._batch:
            return
        encodings = self._model().images([seen.prepared for seen in self._batch if seen.prepared is not None])
        for seen, vector, own_set in self._kept(self._batch, encodings):
            seen.prepared = None
            if vector is None or seen.content is None:
                self._failed.add(seen.digest)
            else:
                self._new[seen.digest] = replace(seen.content, vector=vector, own_set=own_set)
                self.encoded += 1
        room = SAMPLE - sum(len(some) for some in self._sample)
        self._sample.append(encodings.vectors[: max(0, room)])
        self._batch = []

    def _encode_texts(self) -> list[Content]:
        """The texts of what is ready, as contents, but those that the index has."""
        texts = {text_hash(text): text for seen in self._ready if seen.about for text in seen.about.texts}
        new = [digest for digest in texts if self.writer.content("text", digest) is None]
        new.sort(key=lambda digest: len(texts[digest]))  # texts of about one length waste little on padding
        contents = []
        for begin in range(0, len(new), TEXTS):
            part = new[begin : begin + TEXTS]
            encodings = self._model().texts([texts[digest] for digest in part])
            for digest, vector, own_set in self._kept(part, encodings):
                if vector is None:
                    raise DataError(f"the model makes no finite numbers of the text {texts[digest][:60]!r}")
                contents.append(Content("text", digest, vector, own_set))
        return contents

    def _kept(self, items: Sequence[Item], encodings: Encodings) -> Iterator[tuple[Item, bytes | None, bytes | None]]:
        """Each item with its vector and its set as they are kept; one that is not finite has none."""
        finite: NDArray[np.bool_] = np.asarray(np.isfinite(encodings.vectors).all(1))
        if encodings.sets is not None:
            finite &= np.array([np.isfinite(own).all() for own in encodings.sets], bool)
        vectors = encode(np.where(finite[:, None], encodings.vectors, 0).astype(np.float32), self._storage)
        for row, item in enumerate(items):
            own_set = None if encodings.sets is None else encode_set(encodings.sets[row])
            yield item, vectors[row] if finite[row] else None, own_set

    def _write(self) -> None:
        """Write all that is ready as one transaction."""
        if not self._ready:
            return
        texts = self._encode_texts()
        with self._store.database.transaction():
            for content in (*self._new.values(), *texts):
                if content is not None:
                    self.writer.add(content)
            for seen in self._ready:
                self._write_image(seen)
        self.texts_encoded += len(texts)
        self._ready, self._new = [], {}
        self._written = time.monotonic()

    def _write_image(self, seen: _Seen) -> None:
        stamp = self._listing.files[seen.key]
        reason = _NOT_FINITE if seen.digest in self._failed else seen.reason
        if reason is not None or seen.about is None:
            self.writer.put_problem(seen.key, stamp, str(reason), lasting=seen.lasting)
            return
        content = self.writer.content("image", seen.digest) if seen.digest else self.writer.content_of(seen.key)
        assert content is not None
        self.writer.put_image(seen.key, content, stamp, seen.about)

    def _finish(self) -> None:
        """Remove what is gone, and note what the storage types cost."""
        if self._nothing:
            return
        cost = self._cost()
        with self._store.database.transaction():
            self.removed = self.writer.finish(self._listing.problems, self._solved)
            if cost is not None:
                self._store.database.set_meta("storage_cost", cost)
            self._store.database.set_meta("unfinished", False)

    def _cost(self) -> dict[str, Any] | None:
        """What each storage type costs, measured with what was encoded, if that is more than was measured before."""
        sample = np.concatenate([np.empty((0, self._spec.size), np.float32), *self._sample])
        sample = sample[np.isfinite(sample).all(1)]
        before = self._store.meta("storage_cost") or {}
        return {**measure(sample), "of": len(sample)} if len(sample) > before.get("of", 1) else None
