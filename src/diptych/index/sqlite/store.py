"""Reads an index: entries with their vectors and thumbnails, and the model that made them, in one SQLite file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Floats, Integers
from diptych.errors import DataError, IndexFileError
from diptych.index.albums import Album, AlbumEditor
from diptych.index.backend import Ids, Problem
from diptych.index.details import ImageDetails
from diptych.index.entries import Entry, Filters, Kind
from diptych.index.frames import file_key, number_names
from diptych.index.packed import PackedVectors
from diptych.index.sources.listing import Stamp
from diptych.index.spec import IndexSpec
from diptych.index.sqlite import albums, browse, details, filtering, picture_words, words
from diptych.index.sqlite.database import Database
from diptych.index.vectors import decode, decode_set
from diptych.models.engines.engine import Encodings

if TYPE_CHECKING:
    from diptych.index.sqlite.writer import Writer

# Entries by their ids, in the given order; a text has the path, day and columns of its image.
_BY_ID = "FROM json_each(?) AS wanted JOIN entries AS e ON e.id = wanted.value"
_IMAGE = "JOIN entries AS i ON i.id = coalesce(e.image, e.id) JOIN contents AS c ON c.id = i.content"
_TAKEN = "nullif(i.day, '')"
_BATCH = 2048  # vectors that are read at a time


class Store:
    """An open index; threads may share it, and are served one at a time.

    Changes by other processes are visible to the next call; calls within `reading` see the same state.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self.path = database.path
        self._spec: tuple[int, IndexSpec] | None = None  # with its generation
        _ = self.spec  # which refuses a file without one

    @classmethod
    def open(cls, path: str | Path, *, write: bool = False) -> Store:
        """The index in a file; raises an IndexFileError if it is missing, damaged, or of another format."""
        database = Database(Path(path), write=write)
        try:
            return cls(database)
        except BaseException:
            database.close()
            raise

    @classmethod
    def create(cls, path: str | Path, spec: IndexSpec) -> Store:
        """Create an index without entries, open for writing."""
        return cls(Database.create(Path(path), spec.to_json()))

    @property
    def spec(self) -> IndexSpec:
        """The model and the source of the index."""
        generation = self.generation
        if self._spec is None or self._spec[0] != generation:
            self._spec = generation, _parse_spec(self.path, self.database.meta("making"))
        return self._spec[1]

    @property
    def generation(self) -> int:
        """A number that grows with every change by any process."""
        return self.database.generation

    @property
    def address(self) -> str:
        """The path of the file."""
        return str(self.path)

    @property
    def cache_path(self) -> Path:
        """The path of the file."""
        return self.path

    @property
    def instance(self) -> tuple[int, int] | None:
        """The file behind the path; another one if it was replaced."""
        return self.database.file

    def exists(self) -> bool:
        """Whether the file has not been deleted."""
        return self.path.exists()

    def bytes_used(self) -> int:
        """The size of the file."""
        return self.path.stat().st_size

    def writer(self, gone: Iterable[str]) -> Writer:
        """What changes the index, for a file that was opened for writing."""
        from diptych.index.sqlite.writer import Writer

        return Writer(self, gone)

    def reading(self) -> AbstractContextManager[None]:
        """A block within which all calls see the same state; other threads wait until it ends."""
        return self.database.reading()

    def counts(self) -> dict[Kind, int]:
        """The number of entries of each kind."""
        # Each count reads an index instead of the table; all entries that are not images are texts.
        images = "SELECT count(*) FROM entries WHERE kind = 'image'"
        ((found, total),) = self.database.rows(f"SELECT ({images}), (SELECT count(*) FROM entries)")
        return {"image": found, "text": total - found}

    def vectors(self, kind: Kind) -> tuple[Integers, Floats]:
        """The ids of all entries of a kind, ascending, and their vectors, (entries, size)."""
        with self.reading():
            total = self.counts()[kind]
            ids, vectors = np.empty(total, np.int64), np.empty((total, self.spec.size), np.float32)
            end = 0
            for some, packed in self.packed(kind):
                begin, end = end, end + len(some)
                ids[begin:end], vectors[begin:end] = some, packed[:]
        return ids[:end], vectors[:end]

    def packed(self, kind: Kind) -> Iterator[tuple[Integers, PackedVectors]]:
        """The same some entries at a time, as they are stored; within `reading`."""
        spec = self.spec
        statement = (
            "SELECT e.id, c.vector FROM entries AS e JOIN contents AS c ON c.id = e.content "
            "WHERE e.kind = ? ORDER BY e.id"
        )
        for rows in self.database.batches(statement, (kind,), _BATCH):
            ids, vectors = zip(*rows, strict=True)
            try:
                yield np.array(ids, np.int64), PackedVectors.unpacked(vectors, spec.storage, spec.size)
            except IndexFileError as reason:
                raise IndexFileError(
                    f"{self.path}: {reason}; `diptych index rebuild {self.path}` rebuilds it from the images"
                ) from None

    def sets(self, ids: Ids) -> tuple[Floats, ...] | None:
        """The sets of vectors of these entries of one kind, (members, size) each; None if the model has no sets."""
        rows = self._select(ids, "c.sets", "JOIN contents AS c ON c.id = e.content")
        if all(encoded is None for (encoded,) in rows):
            return None
        return tuple(decode_set(encoded) for (encoded,) in rows)

    def encoded(self, id: int) -> tuple[Kind, Encodings]:
        """The kind of an entry, and its encoding as it was indexed."""
        with self.reading():
            spec = self.spec
            contents = "JOIN contents AS c ON c.id = e.content"
            ((kind, vector, vector_set),) = self._select([id], "e.kind, c.vector, c.sets", contents)
        sets = None if vector_set is None else (decode_set(vector_set),)
        return kind, Encodings(decode([vector], spec.storage, spec.size), sets)

    def looks(self, ids: Ids) -> NDArray[np.uint64]:
        """The difference hash of the image of each of these entries; near-duplicates differ in a few of the 64 bits."""
        return np.array([look or 0 for (look,) in self._select(ids, "c.look", _IMAGE)], np.int64).view(np.uint64)

    def videos_of(self, ids: Ids) -> Integers:
        """A number for the video of which each of these images is a frame, 0 for a photo."""
        if not self.database.rows("SELECT 1 FROM entries WHERE moment IS NOT NULL LIMIT 1"):
            return np.zeros(len(ids), np.int64)
        found = self._select(ids, "e.key, e.moment")
        return number_names([None if moment is None else file_key(key, moment) for key, moment in found])

    def contents_of(self, ids: Ids) -> Integers:
        """The id of the content of each of these entries; equal files share one, and so do equal texts."""
        return np.array([content for (content,) in self._select(ids, "e.content")], np.int64)

    def entries(self, ids: Ids) -> list[Entry]:
        """These entries, in the given order."""
        columns = (
            "e.id, e.kind, e.key, i.id, e.text, i.path, i.folder, i.split, "
            f"{_TAKEN}, c.width, c.height, coalesce(i.columns, '{{}}'), i.moment"
        )
        with self.reading():
            spec = self.spec
            rows = self._select(ids, columns, _IMAGE)
        entries = []
        for id, kind, key, image, text, path, folder, split, taken, width, height, columns, moment in rows:
            file = spec.file_of(path)
            size, values = (width or 0, height or 0), json.loads(columns)
            entries.append(Entry(id, kind, key, image, text, file, folder, split, taken, *size, values, moment))
        return entries

    def captions(self, image_ids: Ids) -> dict[int, list[str]]:
        """The texts of each of these images."""
        captions: dict[int, list[str]] = {int(image): [] for image in image_ids}
        rows = self.database.rows(
            "SELECT image, text FROM entries WHERE image IN (SELECT value FROM json_each(?)) ORDER BY place",
            (_json(image_ids),),
        )
        for image, text in rows:
            captions[image].append(text)
        return captions

    def matching(self, kind: Kind, filters: Filters) -> Integers:
        """The ids of the entries of a kind that pass the filters, ascending; texts are filtered by their image."""
        conditions = ["e.kind = ?"]
        values: list[str | int] = [kind]
        for condition, *parameters in filtering.conditions(self.database, filters):
            conditions.append(condition)
            values += parameters
        if filters.album is not None:
            albums.check_album(self.database, filters.album)
            conditions.append("c.kind = 'image' AND c.hash IN (SELECT hash FROM album_images WHERE album = ?)")
            values.append(filters.album)
        statement = f"SELECT e.id FROM entries AS e {_IMAGE} WHERE {' AND '.join(conditions)} ORDER BY e.id"
        return np.array([row[0] for row in self.database.rows(statement, values)], np.int64)

    def described_by(self, phrases: Sequence[str]) -> Integers:
        """The ids of the images with any of these phrases in captions or in the picture, ascending."""
        return words.described_by(self.database, phrases)

    def by_words(self, text: str, *, every: bool) -> tuple[Integers, Floats]:
        """The images with all of these words, or with at least one of them, best first, and their BM25 scores."""
        return words.by_words(self.database, text, every=every)

    def with_words(self, text: str) -> Integers:
        """The ids of the images with all of these words, ascending."""
        return words.with_words(self.database, text)

    def has_descriptions(self) -> bool:
        """Whether any image has a caption, or words that were read in it."""
        return words.has_descriptions(self.database)

    def unread_pictures(self) -> list[tuple[int, str, float | None]]:
        """The contents that were not read yet, each with the key of one of its images, and its second of a video."""
        return picture_words.unread(self.database)

    def add_picture_words(self, found: Sequence[tuple[int, str]]) -> None:
        """Note the words of some contents, and make their images searchable by them."""
        picture_words.add(self.database, found)

    def has_word(self, word: str) -> bool:
        """Whether a word, in lower case and without accents, is in captions, names, folders or pictures."""
        return words.has_word(self.database, word)

    def word_counts(self) -> dict[str, int]:
        """All words in captions, names, folders and pictures, with how often each occurs."""
        return words.word_counts(self.database)

    def image_stamps(self) -> dict[str, Stamp]:
        """The stamp of every file with an image, by its key; a video has one for all of its frames."""
        select = "SELECT key, size, modified, details{} FROM entries WHERE kind = 'image' AND moment IS {} NULL"
        photos = self.database.rows(select.format("", ""))
        frames = self.database.rows(select.format(", moment", "NOT"))
        stamps = {key: (size, modified, details) for key, size, modified, details in photos}
        return stamps | {file_key(key, moment): (*stamp, details) for key, *stamp, details, moment in frames}

    def columns(self) -> list[str]:
        """The columns of the source's table."""
        return filtering.columns(self.database)

    def folders(self) -> list[str]:
        """All folders of the source that contain an image, directly or further below."""
        rows = self.database.rows("SELECT DISTINCT folder FROM entries WHERE kind = 'image' AND folder != ''")
        paths = (path.split("/") for (path,) in rows)
        return sorted({"/".join(parts[:depth]) for parts in paths for depth in range(1, 1 + len(parts))})

    def splits(self) -> list[str]:
        """The splits of the source."""
        return filtering.splits(self.database)

    def newest(
        self, count: int, after: browse.Place | None = None, filters: Filters | None = None
    ) -> list[browse.Place]:
        """Day and id of the next `count` images that pass the filters, newest first, after a place."""
        return browse.newest(self.database, count, after, filters)

    def subfolders(self, parent: str = "") -> list[tuple[str, int, bool]]:
        """The folders directly in a folder: path, how many images `newest` shows of it, and whether it has folders."""
        return browse.subfolders(self.database, parent)

    def thumbnail(self, id: int) -> bytes | None:
        """The thumbnail of an image, or of the image of a text, as JPEG; None if there is no such entry."""
        rows = self.database.rows(
            "SELECT t.jpeg FROM entries AS e JOIN entries AS i ON i.id = coalesce(e.image, e.id) "
            "JOIN thumbnails AS t ON t.content = i.content WHERE e.id = ?",
            (int(id),),
        )
        return rows[0][0] if rows else None

    def details(self, image: int) -> ImageDetails:
        """What the index knows about an image beyond its entry."""
        return details.details(self.database, image)

    @property
    def album_edition(self) -> int:
        """A number that grows with every change of an album by any process."""
        return albums.edition(self.database)

    def albums(self) -> list[Album]:
        """All albums: the favourites, then the others by name."""
        return albums.albums(self.database)

    def album_names(self, image: int) -> dict[int, str]:
        """The names of the albums that an image is in, by their ids."""
        return albums.album_names(self.database, image)

    def ids_of(self, names: Sequence[str]) -> dict[str, int]:
        """The ids of images by their keys, or by the paths of their files below the indexed folder."""
        return albums.ids_of(self.database, names)

    def edit_albums(self) -> AbstractContextManager[AlbumEditor]:
        """An editor of the albums, whose changes are all made at the end of the block, or none of them."""
        return albums.editing(self.path)

    def problems(self) -> list[tuple[str, str]]:
        """What was skipped, by its key in the source, and the reason."""
        return [(key, reason) for key, reason in self.database.rows("SELECT key, reason FROM problems ORDER BY key")]

    def problem_records(self) -> list[Problem]:
        """What was skipped, with the state of the file at that time."""
        return [Problem(*row) for row in self.database.rows("SELECT key, size, modified, reason FROM problems")]

    def meta(self, name: str) -> Any:
        """A value that the index stores about itself, such as `synced` or `storage_cost`, or None."""
        return self.database.meta(name)

    def set_meta(self, name: str, value: Any) -> None:
        """Store a value about the index itself."""
        self.database.set_meta(name, value)

    def close(self) -> None:
        """Close the file."""
        self.database.close()

    def _select(self, ids: Ids, columns: str, joined: str = "") -> list[tuple[Any, ...]]:
        """Columns of these entries, in the given order."""
        rows = self.database.rows(f"SELECT {columns} {_BY_ID} {joined} ORDER BY wanted.key", (_json(ids),))
        if len(rows) != len(ids):
            known = {row[0] for row in self.database.rows(f"SELECT e.id {_BY_ID}", (_json(ids),))}
            unknown = next((id for id in ids if id not in known), None)
            raise DataError(f"{self.path}: no entry {unknown}; it may have been removed meanwhile")
        return rows


def _parse_spec(path: Path, stored: Any) -> IndexSpec:
    try:
        return IndexSpec.from_json(stored)
    except (TypeError, ValueError, AttributeError):
        raise IndexFileError(
            f"{path}: does not name its model and source; make it again: diptych index RUN SOURCE --into {path} --fresh"
        ) from None


def _json(ids: Ids) -> str:
    return json.dumps([int(id) for id in ids])
