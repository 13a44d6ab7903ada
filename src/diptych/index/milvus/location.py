"""A collection as the location of an index: its name is an alias, which is moved when a replacement is complete."""

from __future__ import annotations

import getpass
import hashlib
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from diptych.errors import IndexFileError
from diptych.files import locked_file
from diptych.index.milvus.about import value_rows
from diptych.index.milvus.address import MilvusAddress
from diptych.index.milvus.client import Client
from diptych.index.milvus.doctor import examine
from diptych.index.milvus.schema import ABOUT, create_collection, is_ours
from diptych.index.milvus.store import MilvusStore
from diptych.index.spec import IndexSpec
from diptych.progress import ProgressCallback

LOCK_TIMEOUT = 3.0  # seconds to wait for another writer
_NEW = "__new"


@dataclass(frozen=True)
class MilvusLocation:
    """An address; `name` is that of the alias, and the collections behind it are called NAME__1, NAME__2 and so on."""

    address: MilvusAddress
    name: str

    @classmethod
    def parse(cls, address: str) -> MilvusLocation:
        """The location that an address names."""
        parsed = MilvusAddress.parse(address)
        return cls(parsed, parsed.collection)

    def __str__(self) -> str:
        return self.address.text

    def exists(self) -> bool:
        """Whether there is a collection."""
        client = Client(self.address)
        try:
            return client.real_name(self.name) is not None
        finally:
            client.close()

    def open(self, *, write: bool = False) -> MilvusStore:
        """The index in the collection."""
        client = Client(self.address)
        try:
            store = MilvusStore(client, self.name, write=write)
            client.slowly("load_collection", store.collection, replica_number=self.address.replicas)
            if write:  # what an earlier process has written is visible from here on
                client.count(store.collection, "", ABOUT, level="Strong")
                store.forget()
            return store
        except BaseException:
            client.close()
            raise

    def create(self, spec: IndexSpec) -> MilvusStore:
        """Create a collection without entries, and let the name stand for it when it can be opened."""
        client = Client(self.address)
        try:
            collection = self._new_collection(client)
            create_collection(client, collection, spec.size)
            first = {
                "making": spec.to_json(),
                "options": {"index": self.address.index, "thumbnails": self._absolute_thumbnails()},
                "generation": time.time_ns() // 1000,
            }
            rows = [row for name, value in first.items() for row in value_rows(name, value, spec.size)]
            client.slowly("upsert", collection, rows, partition_name=ABOUT)
            client.call("create_alias", collection, self.name)
        finally:
            client.close()
        return self.open(write=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """A block within which no other process of this machine changes the index."""
        name = hashlib.sha256(f"{self.address.server}/{self.address.database}/{self.name}".encode()).hexdigest()[:16]
        folder = Path(tempfile.gettempdir(), f"diptych-{getpass.getuser()}")
        with locked_file(folder / f"{self.address.collection}-{name}", IndexFileError, LOCK_TIMEOUT):
            yield

    def check_target(self, *, fresh: bool) -> None:
        """Refuse a collection that Diptych has not made."""
        if self.exists():
            self.open().close()

    def replacement(self) -> MilvusLocation:
        """The same place under another name."""
        return replace(self, name=self.address.collection + _NEW)

    def replace(self, by: MilvusLocation) -> None:
        """Let the name stand for another collection, at once for those who search it."""
        client = Client(self.address)
        try:
            old, new = client.real_name(self.name), client.real_name(by.name)
            client.call("drop_alias", by.name)  # first: with two names, the index could be taken for its replacement
            client.call("alter_alias", new, self.name)
            if old is not None and old != new:
                client.slowly("drop_collection", old)
        finally:
            client.close()

    def remove(self) -> None:
        """Drop the collection, if any."""
        client = Client(self.address)
        try:
            collection = client.real_name(self.name)
            if collection is not None:
                client.call("drop_alias", self.name)
                client.slowly("drop_collection", collection)
        finally:
            client.close()

    def examine(self, progress: ProgressCallback | None = None) -> Iterator[str]:
        """One line per fault of the index."""
        store = self.open()
        try:
            yield from examine(store, progress)
        finally:
            store.close()

    def _new_collection(self, client: Client) -> str:
        """A name that no collection has had while there was an index; what stopped processes have left is dropped.

        A process that has not searched for long may still know the index by the name of a collection before this one.
        """
        numbers = {f"{self.address.collection}__0": 0}
        for name in client.call("list_collections"):
            stem, _, number = name.rpartition("__")
            if stem == self.address.collection and number.isdecimal():
                numbers[name] = int(number)
                found = client.describe(name)
                if found is not None and not found["aliases"] and is_ours(found):
                    client.slowly("drop_collection", name)
        return f"{self.address.collection}__{max(numbers.values()) + 1}"

    def _absolute_thumbnails(self) -> str | None:
        place = self.address.thumbnails
        return place if place is None or "://" in place else str(Path(place).absolute())
