"""The collection that holds an index: its fields, its partitions, and the index over its vectors.

An index is one collection with the partitions `image`, `text` and `about`. Every row of the first two is complete: it
has its vector, the hash of its content, and what filters and answers need, so that an interrupted sync leaves nothing
half-written. `about` holds what the index knows about itself, and what was skipped.

The id of a row is derived from what it stands for. Writing a row again replaces it, so nothing is ever there twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from diptych.data.corpus import Integers
from diptych.index.milvus.address import IndexType, MilvusAddress
from diptych.index.milvus.client import MOST, Client

IMAGE, TEXT, ABOUT = "image", "text", "about"
METRIC = "IP"
LONGEST = 65_535  # bytes of a string, Milvus' own limit

# Of a row: `hash` is that of its content, `image` the id of its image (an image's own), `place` the number of a text
# among those of its image, `moment` the second of a video or -1, and `facts` what is only shown.
STRINGS = ("key", "hash", "folder", "day", "split", "text")
NUMBERS = ("look", "image", "place")
FIELDS = ("id", *STRINGS, *NUMBERS, "moment", "columns", "facts")
WITH_VECTOR = (*FIELDS, "vector")

_ID_BITS = 53  # which every JSON parser reads exactly
_BUILDING = {"HNSW": {"M": 16, "efConstruction": 200}, "IVF_FLAT": {"nlist": 1024}, "IVF_SQ8": {"nlist": 1024}}
_PROBES, _SMALLEST_EF = 64, 128


def row_id(*parts: str) -> int:
    """The id of the row that these strings name, from 1 to 2^53 - 1."""
    digest = hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogateescape"), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> (64 - _ID_BITS)) or 1


def content_id(digest: str) -> int:
    """A number for the content with this hash."""
    return int.from_bytes(hashlib.blake2b(digest.encode(), digest_size=8).digest(), "big") >> 1


def literal(value: str) -> str:
    """A string in an expression."""
    return json.dumps(value, ensure_ascii=False)


def any_of(field: str, values: Any) -> str:
    """The condition that a field has one of these values."""
    return (
        f"{field} in [{', '.join(literal(value) if isinstance(value, str) else str(int(value)) for value in values)}]"
    )


def search_parameters(index: IndexType, depth: int) -> dict[str, Any]:
    """How thoroughly an index is searched for this many rows."""
    of_index = {"HNSW": {"ef": min(max(_SMALLEST_EF, 2 * depth), 32_768)}, "FLAT": {}}
    return {"metric_type": METRIC, "params": of_index.get(index, {"nprobe": _PROBES})}


def create_collection(client: Client, name: str, size: int) -> None:
    """Create an empty collection for vectors of this size and load it, as the address of the client says."""
    to: MilvusAddress = client.address
    schema, parameters = client.prepare()
    types = client.types
    schema.add_field("id", types.INT64, is_primary=True)
    schema.add_field("vector", types.FLOAT_VECTOR, dim=size)
    for field in STRINGS:
        schema.add_field(field, types.VARCHAR, max_length=LONGEST)
    for field in NUMBERS:
        schema.add_field(field, types.INT64)
    schema.add_field("moment", types.DOUBLE)
    schema.add_field("columns", types.JSON)
    schema.add_field("facts", types.JSON)
    parameters.add_index("vector", index_type=to.index, metric_type=METRIC, params=_BUILDING.get(to.index, {}))
    client.slowly("create_collection", name, schema=schema, num_shards=to.shards, consistency_level=to.consistency)
    for partition in (IMAGE, TEXT, ABOUT):
        client.call("create_partition", name, partition)
    client.slowly("create_index", name, parameters)
    client.slowly("load_collection", name, replica_number=to.replicas)


def is_ours(described: Mapping[str, Any]) -> bool:
    """Whether a collection has the fields of an index."""
    return {field["name"] for field in described["fields"]} == set(WITH_VECTOR)


def scan(
    client: Client, collection: str, partition: str, fields: Any, *, level: str, where: str = "", at_once: int = 4000
) -> Any:
    """All rows of a partition that meet a condition, some thousands at a time.

    Ids are spread evenly, so that ranges of ids have about as many rows each; a range with too many is halved.
    """
    count = client.count(collection, where, partition, level=level)
    parts = -(-max(count, 1) // at_once)
    edges = np.linspace(0, 2**_ID_BITS, parts + 1).astype(np.int64).tolist()
    ranges = list(pairwise(edges))[::-1]
    while ranges:
        begin, end = ranges.pop()
        condition = f"id >= {begin} and id < {end}" + (f" and ({where})" if where else "")
        rows = client.query(collection, condition, fields, partition, level=level)
        if len(rows) >= MOST and end - begin > 1:
            middle = (begin + end) // 2
            ranges += [(middle, end), (begin, middle)]
        else:
            yield from rows


def ids_array(rows: Any) -> Integers:
    """The ids of rows, ascending."""
    return np.sort(np.array([row["id"] for row in rows], np.int64))
