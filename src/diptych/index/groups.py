"""Near-duplicates among the candidates of a ranking, which arrive a few at a time, best first."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Floats, Integers
from diptych.index.backend import IndexStore
from diptych.index.duplicates import first_same_image, plain_words
from diptych.index.entries import SearchRequest
from diptych.index.feedback import images_of
from diptych.index.pools import EntryPool
from diptych.index.ranking import WINDOW, Groups
from diptych.index.thumbnails import colour_grid
from diptych.index.words import WordStore


def new_groups(store: IndexStore, pool: EntryPool, request: SearchRequest) -> Groups:
    """Groups among the candidates for a request."""
    grouped = ImageGroups(store, pool) if request.to == "image" else TextGroups(store, pool)
    return AllowedGroups(store, pool, request, grouped.add)


class AllowedGroups:
    """Groups of the candidates that a request does not exclude; a text is excluded with its image."""

    def __init__(
        self, store: IndexStore, pool: EntryPool, request: SearchRequest, add: Callable[[Integers, Integers], Integers]
    ) -> None:
        self._store, self._pool, self._request, self._add = store, pool, request, add
        hidden = [*images_of(store, request.less), *([] if request.without is None else [request.without])]
        self._hidden = store.contents_of(hidden) if hidden else np.zeros(0, np.int64)

    def add(self, rows: Integers) -> Integers:
        """For each new row, the row of the hit that represents it, or -1 if it is excluded."""
        ids = self._pool.ids_of(rows)
        contents = self._store.contents_of(ids)
        allowed = self._allowed(ids, contents)
        hit_of = np.full(len(rows), -1, np.int64)
        hit_of[allowed] = self._add(rows[allowed], contents[allowed])
        return hit_of

    def _allowed(self, ids: Integers, contents: Integers) -> NDArray[np.bool_]:
        allowed = ~np.isin(contents, self._hidden)
        if self._request.excluded and isinstance(self._store, WordStore):
            images = ids
            if self._request.to == "text":
                images = np.array([entry.image or 0 for entry in self._store.entries(ids)], np.int64)
            allowed &= ~np.isin(images, self._excluded_images)
        return allowed

    @functools.cached_property
    def _excluded_images(self) -> Integers:
        assert isinstance(self._store, WordStore)
        return self._store.described_by(self._request.excluded)


class ImageGroups:
    """Groups of images; each new image is compared with the last `WINDOW` hits."""

    def __init__(self, store: IndexStore, pool: EntryPool) -> None:
        self._store, self._pool = store, pool
        self._rows, self._contents = np.zeros(0, np.int64), np.zeros(0, np.int64)  # of the hits
        self._looks = np.zeros(0, np.uint64)

    def add(self, rows: Integers, contents: Integers) -> Integers:
        """For each new row and its content, the row of the hit that represents it."""
        known = len(self._rows)
        rows = np.concatenate([self._rows, rows])
        contents = np.concatenate([self._contents, contents])
        looks = np.concatenate([self._looks, self._store.looks(self._pool.ids_of(rows[known:]))])

        @functools.cache
        def colours(position: int) -> Floats:
            jpeg = self._store.thumbnail(int(self._pool.ids_of(rows[[position]])[0]))
            return np.zeros((8, 8, 3), np.float32) if jpeg is None else colour_grid(jpeg)

        videos = self._store.videos_of(self._pool.ids_of(rows))
        first = first_same_image(contents, looks, self._pool.vectors_of(rows), colours, known, videos)
        hits = np.flatnonzero(first == np.arange(len(first)))[-WINDOW:]
        self._rows, self._contents, self._looks = rows[hits], contents[hits], looks[hits]
        return rows[first[known:]]


class TextGroups:
    """Groups of texts with the same words."""

    def __init__(self, store: IndexStore, pool: EntryPool) -> None:
        self._store, self._pool = store, pool
        self._seen: dict[str, int] = {}  # the row of the first text with these words

    def add(self, rows: Integers, _contents: Integers) -> Integers:
        """For each new row, the row of the hit that represents it."""
        texts = [entry.text or "" for entry in self._store.entries(self._pool.ids_of(rows))]
        words = map(plain_words, texts)
        return np.array(
            [self._seen.setdefault(key, row) for key, row in zip(words, rows.tolist(), strict=True)], np.int64
        )
