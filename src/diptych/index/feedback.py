"""Relevance feedback: a query is turned towards photos that people like, and away from those that they do not.

After Rocchio (1971): q + a m - b l, where q is the query, m the mean of the photos that are liked and l that of the
others, each as a vector of length one; without a query, m - b l. `benchmarks/probes/feedback.py` chose the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from diptych.data.corpus import Floats
from diptych.errors import DataError, NotFoundError
from diptych.index.backend import IndexStore
from diptych.index.entries import MAX_MARKED
from diptych.index.query import Query
from diptych.model import Model
from diptych.models.embeddings import normalized
from diptych.models.engines.engine import Encodings

MORE, LESS = 0.75, 0.3


def with_feedback(query: Query, store: IndexStore, model: Model) -> Query:
    """The query, turned by the images that its request names; as it is if there are none."""
    request = query.request
    if not request.more and not request.less:
        return query
    if request.mode == "words":
        raise DataError("more and less: a search by words alone has no meaning to compare; choose another mode")
    if request.to != "image":
        raise DataError("more and less: they name images and find images; search for images")
    if max(len(request.more), len(request.less)) > MAX_MARKED:
        raise DataError(f"more and less: name at most {MAX_MARKED} images of each")
    liked, others = images_of(store, request.more), images_of(store, request.less)
    if both := sorted({*liked} & {*others}):
        raise DataError(f"entry {both[0]} is in both more and less; leave out one of them")
    if query.encoding is None and not request.more:
        raise DataError("less: name an image to find more of as well, or describe in words what to look for")
    if query.kind == "text" and query.encoding is not None and (query.encoding.sets or not model.is_inner_product):
        raise DataError("more and less: the model of this index cannot mix words and images; leave out the words")
    more, less = vectors_of(store, liked), vectors_of(store, others)
    start = None if query.encoding is None else query.encoding.vectors[0]
    return replace(query, encoding=Encodings(turned(start, more, less)[None]))


def images_of(store: IndexStore, ids: Sequence[int]) -> list[int]:
    """The ids of images; that of a text stands for its image."""
    images = []
    for id in ids:
        try:
            (entry,) = store.entries([id])
        except DataError:
            raise NotFoundError(f"no entry {id} in this index; it may have been removed") from None
        images.append(id if entry.image is None else entry.image)
    return images


def vectors_of(store: IndexStore, images: Sequence[int]) -> Floats:
    """The vectors of images, (images, size)."""
    rows = [store.encoded(image)[1].vectors[0] for image in images]
    return np.stack(rows) if rows else np.zeros((0, 0), np.float32)


def turned(query: Floats | None, more: Floats, less: Floats) -> Floats:
    """A vector, (size,), turned towards some vectors, (images, size), and away from others; its length stays."""
    vector: Any = 0.0 if query is None else normalized(query)
    length = 1.0 if query is None else float(np.linalg.norm(query))
    if len(more):
        vector = vector + (1 if query is None else MORE) * normalized(normalized(more).mean(0))
    if len(less):
        vector = vector - LESS * normalized(normalized(less).mean(0))
    result: Floats = (length * normalized(vector)).astype(np.float32)
    return result
