"""What an index in Milvus says about itself, and what was skipped: rows of the partition `about`.

A value is stored as JSON in as many rows as it needs, because a string in Milvus has at most 65,535 bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from diptych.index.backend import Problem
from diptych.index.milvus.client import Client, Row
from diptych.index.milvus.schema import ABOUT, FIELDS, any_of, literal, row_id, scan

_VALUE, _PROBLEM = "value", "problem"
_PART = 60_000  # characters; the JSON is ASCII
_MOST_PARTS = 4096


def value_rows(name: str, value: Any, size: int) -> list[dict[str, Any]]:
    """The rows of a value."""
    text = json.dumps(value)
    parts = [text[begin : begin + _PART] for begin in range(0, len(text), _PART)]
    facts = {"parts": len(parts)}
    return [_row(_VALUE, f"{name}#{place}", part, facts, place, size) for place, part in enumerate(parts)]


def read_value(client: Client, collection: str, name: str, level: str) -> Any:
    """A value by its name; None if it was never set."""
    first = _rows(client, collection, [f"{name}#0"], level)
    if not first:
        return None
    parts = min(first[0]["facts"]["parts"], _MOST_PARTS)
    rows = first if parts == 1 else _rows(client, collection, [f"{name}#{place}" for place in range(parts)], level)
    try:
        return json.loads("".join(row["text"] for row in sorted(rows, key=lambda row: int(row["place"]))))
    except ValueError:  # read while it was being replaced
        return None


def problem_row(problem: Problem, size: int) -> dict[str, Any]:
    """The row of a problem."""
    facts = {"size": problem.size, "modified": problem.modified}
    return _row(_PROBLEM, problem.key, problem.reason[:10_000], facts, 0, size)


def problem_ids(keys: Iterable[str]) -> list[int]:
    """The ids of the rows of the problems with these keys."""
    return [row_id(_PROBLEM, key) for key in keys]


def problems(client: Client, collection: str, level: str) -> list[Problem]:
    """All problems, by their keys."""
    rows = scan(client, collection, ABOUT, FIELDS, level=level, where=f"split == {literal(_PROBLEM)}")
    found = [Problem(row["key"], row["facts"]["size"], row["facts"]["modified"], row["text"]) for row in rows]
    return sorted(found, key=lambda problem: problem.key)


def _rows(client: Client, collection: str, keys: Iterable[str], level: str) -> list[Row]:
    where = any_of("id", [row_id(_VALUE, key) for key in keys])
    return client.query(collection, where, FIELDS, ABOUT, level=level)


def _row(kind: str, key: str, text: str, facts: Mapping[str, Any], place: int, size: int) -> dict[str, Any]:
    texts = {"key": key, "hash": "", "folder": "", "day": "", "split": kind, "text": text}
    numbers = {"id": row_id(kind, key), "look": 0, "image": 0, "place": place, "moment": -1.0}
    return {**texts, **numbers, "vector": np.zeros(size, np.float32), "columns": {}, "facts": dict(facts)}
