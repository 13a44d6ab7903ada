"""Checks an index in Milvus: vectors, references between texts and images, and thumbnails where they are stored."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from diptych.index.milvus.rows import vectors_of
from diptych.index.milvus.schema import FIELDS, IMAGE, TEXT, row_id, scan
from diptych.index.milvus.store import MilvusStore
from diptych.progress import ProgressCallback

_BATCH = 1000


def examine(store: MilvusStore, progress: ProgressCallback | None = None) -> Iterator[str]:
    """One line per fault of an index; none if it is sound."""
    spec, thumbnails = store.spec, store.thumbnails
    images = {row["id"]: row for row in scan(store.client, store.collection, IMAGE, FIELDS, level="Strong")}
    texts = {row["id"]: row for row in scan(store.client, store.collection, TEXT, FIELDS, level="Strong")}
    for row in images.values():
        if row["id"] != row_id("image", row["key"]):
            yield f"{row['key']}: its id is not that of its key"
        if thumbnails is not None and thumbnails.get(row["hash"]) is None:
            yield f"{row['key']}: the image has no thumbnail"
    for row in texts.values():
        if row["image"] not in images:
            yield f"{row['key']}: the text has no image"
    rows = [*images.values(), *texts.values()]
    for begin in range(0, len(rows), _BATCH):
        part = rows[begin : begin + _BATCH]
        vectors = vectors_of(store.rows([row["id"] for row in part]), spec.size)
        finite = [bool(np.isfinite(vector).all()) for vector in vectors]
        yield from (
            f"{row['key']}: its vector is not finite" for row, good in zip(part, finite, strict=True) if not good
        )
        if progress:
            progress(min(begin + _BATCH, len(rows)), len(rows))
