"""Rows of the collection: made of what a source says about an image, and read as entries."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np

from diptych.data.corpus import Floats
from diptych.errors import DataError
from diptych.index.backend import Content
from diptych.index.entries import Entry
from diptych.index.milvus.client import Row
from diptych.index.milvus.schema import LONGEST, row_id
from diptych.index.sources.listing import ImageInfo, Stamp
from diptych.index.spec import IndexSpec
from diptych.index.vectors import decode

_HEADER = ("width", "height", "taken", "camera", "latitude", "longitude")


@dataclass(frozen=True)
class StoredContent:
    """What is kept of a content: its vector, (size,), and of an image its difference hash and its header."""

    hash: str
    vector: Floats
    look: int = 0
    header: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, content: Content, spec: IndexSpec) -> StoredContent:
        """A content to add, whose vector is as precise as the storage of the index."""
        vector = decode([content.vector], spec.storage, spec.size)[0]
        look = int(np.uint64(content.look or 0).astype(np.int64))
        header = None if content.header is None else {name: getattr(content.header, name) for name in _HEADER}
        return cls(content.hash.hex(), vector, look, header)

    @classmethod
    def of_row(cls, row: Row) -> StoredContent:
        """The content of a row that has its vector."""
        header = {name: row["facts"].get(name) for name in _HEADER}
        return cls(row["hash"], np.asarray(row["vector"], np.float32), row["look"], header)


def image_row(key: str, content: StoredContent, stamp: Stamp, about: ImageInfo) -> dict[str, Any]:
    """The row of an image."""
    number, header = row_id("image", key), content.header or {}
    facts = {**header, "path": about.path, "size": stamp[0], "modified": stamp[1], "details": stamp[2]}
    return {
        **_empty(number, key, content),
        "look": content.look,
        "image": number,
        "folder": key.rpartition("/")[0],
        "day": header.get("taken") or _day_of(stamp[1]),
        "split": about.split or "",
        "moment": -1.0 if about.moment is None else about.moment,
        "columns": dict(about.columns),
        "facts": facts,
    }


def text_row(image: Row, text: str, place: int, content: StoredContent) -> dict[str, Any]:
    """The row of a text, which has the filters of its image."""
    same = {name: image[name] for name in ("image", "look", "folder", "day", "split", "moment", "columns", "facts")}
    row = _empty(row_id("text", image["key"], text), f"{image['key']}#{place}", content)
    return {**row, **same, "place": place, "text": text}


def moved(row: Row, start: str) -> dict[str, Any]:
    """An image's row with a folder put before its key, its path and its folder."""
    key, facts = start + row["key"], row["facts"]
    number = row_id("image", key)
    path = None if facts["path"] is None else start + facts["path"]
    folder = (start + row["folder"]).rstrip("/")
    return {**row, "id": number, "image": number, "key": key, "folder": folder, "facts": {**facts, "path": path}}


def checked(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row, if Milvus can hold it: no string or table row may be longer than its limit."""
    lengths = {name: len(row[name].encode("utf-8", "surrogateescape")) for name in ("key", "text")}
    lengths["columns"] = len(json.dumps(row["columns"]).encode())
    name = max(lengths, key=lengths.__getitem__)
    if lengths[name] > LONGEST:
        raise DataError(
            f"{row['key'][:200]}: its {name} has {lengths[name]:,} bytes, and Milvus holds at most {LONGEST:,}; "
            "shorten it, or use an index in an SQLite file"
        )
    return {**row, "vector": np.asarray(row["vector"], np.float32)}


def entry_of(row: Row, spec: IndexSpec) -> Entry:
    """The entry of a row."""
    facts, is_text = row["facts"], bool(row["image"] != row["id"])
    return Entry(
        row["id"],
        "text" if is_text else "image",
        row["key"],
        row["image"],
        row["text"] if is_text else None,
        spec.file_of(facts["path"]),
        row["folder"],
        row["split"] or None,
        row["day"] or None,
        facts.get("width") or 0,
        facts.get("height") or 0,
        row["columns"],
        moment_of(row),
    )


def moment_of(row: Row) -> float | None:
    """The second of a video that a row shows, if it is a frame."""
    return None if row["moment"] < 0 else row["moment"]


def stamp_of(row: Row) -> Stamp:
    """The stamp of an image's file."""
    facts = row["facts"]
    return facts["size"], facts["modified"], facts["details"]


def vectors_of(rows: Sequence[Row], size: int) -> Floats:
    """The vectors of rows: (rows, size)."""
    return np.array([row["vector"] for row in rows], np.float32).reshape(len(rows), size)


def _empty(number: int, key: str, content: StoredContent) -> dict[str, Any]:
    return {"id": number, "vector": content.vector, "key": key, "hash": content.hash, "place": 0, "text": ""}


def _day_of(modified: int) -> str:
    """The local day of a time in nanoseconds; none for a file without one."""
    return datetime.fromtimestamp(modified / 10**9).astimezone().strftime("%Y-%m-%d") if modified else ""
