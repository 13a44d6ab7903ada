"""The connection to a Milvus server: every call is tried again for a while, and fails with one line.

A call that the server does not answer is repeated with growing pauses for `PATIENCE` seconds; all calls that change an
index can be repeated without changing it twice. After a call has failed for so long, others fail at once for `REST`
seconds: the requests of a service would otherwise wait for each other, one patience after another.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from diptych.errors import IndexFileError, one_line
from diptych.index.milvus.address import MilvusAddress
from diptych.optional import import_optional

INSTALL = "pip install 'diptych[milvus]'"
PATIENCE, REST = 10.0, 2.0  # seconds
MOST = 16_384  # rows of one answer: Milvus returns no more

Row: TypeAlias = Mapping[str, Any]

_SLOW = 120.0  # seconds, for what loads or builds
_NOT_FOUND = 100  # Milvus' code for a collection that does not exist
_FIRST_PAUSE = 0.2


class CollectionGoneError(IndexFileError):
    """The collection does not exist (any more)."""


class Client:
    """A connection, opened by the first call; threads may share it."""

    def __init__(self, address: MilvusAddress) -> None:
        self.address = address
        self._pymilvus = import_optional("pymilvus", INSTALL, "an SQLite file")
        for name in [name for name in logging.root.manager.loggerDict if name.split(".")[0] == "pymilvus"]:
            logging.getLogger(name).setLevel(logging.CRITICAL)  # errors are raised, and reported in one line
        logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
        self._connection: Any = None
        self._failed = -math.inf  # when the server last did not answer for all of the patience
        self._failure = ""

    @property
    def types(self) -> Any:
        """The types of fields."""
        return self._pymilvus.DataType

    def call(self, method: str, *args: Any, **options: Any) -> Any:
        """Call a method of pymilvus' client; raises an IndexFileError that names the server and the remedy."""
        if time.monotonic() - self._failed < REST:
            raise IndexFileError(self._failure)
        deadline, pause = time.monotonic() + PATIENCE, _FIRST_PAUSE
        while True:
            try:
                return getattr(self._connect(), method)(*args, **{"timeout": PATIENCE, **options})
            except Exception as reason:  # pymilvus and gRPC raise many types
                if not self._is_transient(reason):
                    raise self._error(reason) from None
                if time.monotonic() + pause > deadline:
                    error = self._error(reason)
                    self._failure, self._failed = str(error), time.monotonic()
                    raise error from None
                self.close()  # a client that has lost its server may not find it again
                time.sleep(pause)
                pause = min(2 * pause, 2.0)

    def prepare(self) -> tuple[Any, Any]:
        """An empty schema and empty index parameters, to be filled."""
        client = self._pymilvus.MilvusClient
        return client.create_schema(auto_id=False, enable_dynamic_field=False), client.prepare_index_params()

    def real_name(self, name: str) -> str | None:
        """The collection that an alias, or its own name, stands for; None if there is none."""
        found = self.describe(name)
        return None if found is None else str(found["collection_name"])

    def describe(self, name: str) -> Mapping[str, Any] | None:
        """What Milvus knows about a collection, named by itself or an alias; None if there is none."""
        try:
            found: Mapping[str, Any] = self.call("describe_collection", name)
        except CollectionGoneError:
            return None
        return found

    def query(
        self, collection: str, where: str, fields: Sequence[str], partition: str, *, level: str, limit: int = MOST
    ) -> list[Row]:
        """At most `limit` rows of a partition that meet a condition, in no particular order."""
        found = self.call(
            "query",
            collection,
            filter=where,
            output_fields=list(fields),
            limit=limit,
            partition_names=[partition],
            consistency_level=level,
        )
        return [dict(row) for row in found]

    def count(self, collection: str, where: str, partition: str, *, level: str) -> int:
        """The number of rows of a partition that meet a condition; an empty one is met by all."""
        found = self.call(
            "query",
            collection,
            filter=where,
            output_fields=["count(*)"],
            partition_names=[partition],
            consistency_level=level,
        )
        return int(found[0]["count(*)"])

    def slowly(self, method: str, *args: Any, **options: Any) -> Any:
        """The same as `call` for what may take longer, such as loading a collection."""
        return self.call(method, *args, timeout=_SLOW, **options)

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except Exception:  # nothing depends on it
                return

    def _connect(self) -> Any:
        if self._connection is None:
            to = self.address
            self._connection = self._pymilvus.MilvusClient(
                uri=to.uri,
                token=os.environ.get("MILVUS_TOKEN", ""),
                db_name=to.database,
                timeout=PATIENCE,
                dedicated=True,
            )
        return self._connection

    def _is_transient(self, reason: Exception) -> bool:
        """Whether the server may answer the next time: it could not be reached, or it has just been started."""
        text = str(reason).lower()
        words = ("unavailable", "not ready", "not healthy", "fail connecting", "timeout", "deadline", "not loaded")
        return any(word in text for word in (*words, "no available", "connection", "closed channel", "retry"))

    def _error(self, reason: Exception) -> IndexFileError:
        where, code = self.address, getattr(reason, "code", None)
        text = " ".join(str(getattr(reason, "message", "")).split())[:300] or one_line(reason)
        if code == _NOT_FOUND or "can't find collection" in text or "collection not found" in text:
            return CollectionGoneError(f"{where.text}: no such index in this Milvus; {_make(where.text)}")
        if self._is_transient(reason):
            return IndexFileError(
                f"{where.text}: no Milvus answers at {where.server} ({text[:160]}); start it or check the "
                "address, then run the command again; finished work is kept"
            )
        if "auth" in text.lower() or "permission" in text.lower():
            return IndexFileError(f"{where.text}: Milvus refuses access ({text}); set MILVUS_TOKEN=user:password")
        return IndexFileError(f"{where.text}: Milvus reports an error ({text})")


def _make(address: str) -> str:
    return f"make one: diptych index starter FOLDER --into {address!r}"
