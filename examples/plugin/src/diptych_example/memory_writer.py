"""What an index in memory holds, and the writer that changes it; a transaction that fails leaves it as it was."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from diptych.index.backend import Content, Problem, text_hash
from diptych.index.entries import Kind
from diptych.index.frames import file_key
from diptych.index.sources.listing import ImageInfo, Stamp
from diptych.index.spec import IndexSpec

NOTHING = ImageInfo(None, ())


@dataclass(frozen=True)
class Row:
    """An image or a text; a text has the id of its `image`."""

    kind: Kind
    key: str
    content: int
    image: int | None = None
    text: str | None = None
    place: int = 0  # among the texts of its image
    stamp: Stamp = (0, 0, None)
    info: ImageInfo = NOTHING


@dataclass
class State:
    """The whole index; ids are never used twice."""

    spec: IndexSpec
    generation: int = field(default_factory=time.time_ns)
    last_id: int = 0
    contents: dict[int, Content] = field(default_factory=dict)
    by_hash: dict[tuple[Kind, bytes], int] = field(default_factory=dict)
    rows: dict[int, Row] = field(default_factory=dict)
    problems: dict[str, Problem] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)

    def new_id(self) -> int:
        """The next free number."""
        self.last_id += 1
        return self.last_id

    def images(self) -> dict[str, int]:
        """The id of every image, by its key."""
        return {row.key: id for id, row in self.rows.items() if row.kind == "image"}

    def copy(self) -> State:
        """A copy that can be changed; contents and rows themselves never change."""
        changed = copy.copy(self)
        for name in ("contents", "by_hash", "rows", "problems", "meta"):
            setattr(changed, name, dict(getattr(self, name)))
        return changed


class MemoryIndex:
    """What is behind an address."""

    def __init__(self, spec: IndexSpec) -> None:
        self.state = State(spec)
        self.lock = threading.RLock()


class MemoryWriter:
    """Changes an index in memory."""

    def __init__(self, index: MemoryIndex, gone: Iterable[str]) -> None:
        self._index = index
        self._gone = set(gone) | self._frames_of(set(gone))
        self.renamed = 0

    @property
    def _state(self) -> State:
        return self._index.state

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A block whose changes are all made, or none of them."""
        with self._index.lock:
            before, self._index.state = self._index.state, self._index.state.copy()
            try:
                yield
            except BaseException:
                self._index.state = before
                raise
            self._state.generation += 1

    def begin(self, spec: IndexSpec) -> None:
        """Note that changes have begun."""
        with self.transaction():
            self._state.spec = spec
            self._state.meta["unfinished"] = True

    def move_into(self, name: str) -> None:
        """Put the name of a folder before all keys, paths and problems."""
        state, start = self._state, f"{name}/"
        for id, row in state.rows.items():
            info = replace(row.info, path=row.info.path and start + row.info.path)
            state.rows[id] = replace(row, key=start + row.key, info=info)
        state.problems = {start + key: found._replace(key=start + key) for key, found in state.problems.items()}

    def set_synced(self, moment: str, files: Mapping[str, Any]) -> None:
        """Note when the index was last compared with its source, and how many files there were."""
        self._state.meta["synced"] = moment
        self._state.meta["files"] = dict(files)

    def content(self, kind: Kind, digest: bytes) -> int | None:
        """The id of a content by its hash, if the index has it."""
        return self._state.by_hash.get((kind, digest))

    def content_of(self, key: str) -> int | None:
        """The id of the content of an image by its key."""
        id = self._state.images().get(key)
        return None if id is None else self._state.rows[id].content

    def frames(self, video: bytes) -> list[bytes]:
        """The hashes of the frames of a video, in their order."""
        hashes = (digest for kind, digest in self._state.by_hash if kind == "image")
        return sorted(digest for digest in hashes if digest.startswith(video) and len(digest) > len(video))

    def add(self, content: Content) -> int:
        """Add a content."""
        id = self._state.new_id()
        self._state.contents[id] = content
        self._state.by_hash[content.kind, content.hash] = id
        return id

    def put_image(self, key: str, content: int, stamp: Stamp, about: ImageInfo) -> None:
        """Add or change an image and its texts; one whose key is gone is renamed if it has the same content."""
        state, images = self._state, self._state.images()
        id = images.get(key)
        if id is None:
            old = next((old for old in self._gone & images.keys() if state.rows[images[old]].content == content), None)
            if old is not None:
                self._gone.remove(old)
                self.renamed += 1
            id = state.new_id() if old is None else images[old]
        state.rows[id] = Row("image", key, content, stamp=stamp, info=about)
        texts = {row.text: text_id for text_id, row in state.rows.items() if row.image == id}
        for text_id in texts.values():
            del state.rows[text_id]
        for place, text in enumerate(about.texts):  # a text that stays keeps its id
            row = Row("text", f"{key}#{place}", state.by_hash["text", text_hash(text)], id, text, place)
            state.rows[texts.pop(text, 0) or state.new_id()] = row
        for solved in (key, file_key(key, about.moment), about.text_file):
            state.problems.pop(str(solved), None)
        for broken, reason in about.problems.items():
            state.problems[broken] = Problem(broken, 0, 0, reason)

    def keep_frames(self, video: str, keys: Collection[str]) -> None:
        """Note that a video has only these frames."""
        self._gone |= self._frames_of({video}) - set(keys)

    def put_problem(self, key: str, stamp: Stamp, reason: str, *, permanent: bool) -> None:
        """Note an image that cannot be read."""
        self._state.problems[key] = Problem(key, stamp[0], stamp[1] if permanent else -1, reason)
        if permanent:
            self._gone |= {key, *self._frames_of({key})}

    def _frames_of(self, videos: set[str]) -> set[str]:
        """The keys of the frames of the videos with these keys."""
        frames = (row for row in self._state.rows.values() if row.info.moment is not None)
        return {row.key for row in frames if file_key(row.key, row.info.moment) in videos}

    def finish(
        self, source_problems: Mapping[str, str], solved: Iterable[str], storage_cost: Mapping[str, Any] | None = None
    ) -> int:
        """Remove what is gone, and contents without an entry."""
        state = self._state
        removed = {id for key, id in state.images().items() if key in self._gone}
        state.rows = {id: row for id, row in state.rows.items() if id not in removed and row.image not in removed}
        used = {row.content for row in state.rows.values()}
        state.contents = {id: content for id, content in state.contents.items() if id in used}
        state.by_hash = {(content.kind, content.hash): id for id, content in state.contents.items()}
        forgotten = set(solved)
        state.problems = {
            key: problem for key, problem in state.problems.items() if problem.size is not None and key not in forgotten
        }
        state.problems |= {key: Problem(key, None, None, reason) for key, reason in source_problems.items()}
        if storage_cost is not None:
            state.meta["storage_cost"] = dict(storage_cost)
        state.meta["unfinished"] = False
        return len(removed)
