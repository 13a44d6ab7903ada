"""Encoded queries, kept while they are asked for: who types, goes back and turns pages asks the same again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

KEPT = 2048


class Cache(Generic[Key, Value]):
    """The values that were used last, at most so many; threads may share it."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Key) -> Value | None:
        """The value, if it is still there; it is then the last one used."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key]

    def put(self, key: Key, value: Value) -> None:
        """Keep a value; the one that was not used for longest goes."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            if len(self._values) > self._kept:
                self._values.popitem(last=False)

    def __len__(self) -> int:
        return len(self._values)
