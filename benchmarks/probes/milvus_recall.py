"""Measure what Milvus' index types find of the exact answer, and how long a query takes.

    PYTHONPATH=benchmarks python benchmarks/probes/milvus_recall.py [--server HOST:PORT] [--entries 20000 50000]

Needs a running Milvus (docs/milvus.md). The vectors are sentences as the starter encodes them, and, harder, random ones
around 2,000 centres; queries are others of the same kind. Each type is built and searched as
`diptych index --into milvus://` does it.
"""

from __future__ import annotations

import argparse
import time
import uuid

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from diptych.index.exact import Pool
from diptych.index.milvus.address import MilvusAddress
from diptych.index.milvus.client import Client
from diptych.index.milvus.schema import IMAGE, create_collection, search_parameters
from diptych.model import Model
from probes.ivf import clustered

TYPES = ("FLAT", "IVF_FLAT", "IVF_SQ8", "HNSW")
QUERIES, K, MARGIN = 200, 10, 16
BATCH = 1000

WHO = "dog cat horse bird child woman man girl boy farmer sailor nurse runner cow sheep monkey bear robot dancer cook"
DOING = "chasing holding watching painting carrying feeding touching pushing following photographing cleaning ignoring"
WHAT = (
    "ball bicycle kite boat car guitar cake umbrella book ladder hat table bottle flower fish drum mirror lamp "
    "suitcase snowman tractor balloon camera chair basket"
)
WHERE = (
    "on_the_beach in_the_snow in_a_kitchen at_night in_a_forest on_a_mountain in_the_rain by_a_river in_a_museum "
    "on_the_grass under_a_bridge in_a_classroom at_sunset on_a_roof in_a_market"
)

Vectors = NDArray[np.float32]


def captions(entries: int, random: np.random.Generator) -> Vectors:
    """Sentences of everyday words as the starter encodes them."""
    parts = [words.split() for words in (WHO, DOING, WHAT, WHERE)]
    places = np.stack(
        np.unravel_index(random.permutation(np.prod([len(words) for words in parts])), [*map(len, parts)])
    )
    texts = [f"a {parts[0][a]} {parts[1][b]} a {parts[2][c]} {parts[3][d]}" for a, b, c, d in places.T[:entries]]
    texts = [text.replace("_", " ") for text in texts]
    return np.asarray(Model.load("starter").encode_texts(texts), np.float32)


def fill(client: Client, name: str, vectors: Vectors) -> None:
    """Write vectors, and wait until they are sealed and their index is built and loaded."""
    empty = {"key": "", "hash": "", "folder": "", "day": "", "split": "", "text": "", "look": 0, "image": 0, "place": 0}
    for begin in range(0, len(vectors), BATCH):
        part = enumerate(vectors[begin : begin + BATCH], begin + 1)
        rows = [{**empty, "id": id, "vector": row, "moment": -1.0, "columns": {}, "facts": {}} for id, row in part]
        client.slowly("insert", name, rows, partition_name=IMAGE)
    client.slowly("flush", name)
    while client.call("describe_index", name, "vector")["pending_index_rows"]:
        time.sleep(1)
    client.slowly("release_collection", name)
    client.slowly("load_collection", name)


def search(client: Client, name: str, kind: str, query: Vectors, k: int) -> list[int]:
    """The rows of one answer, best first."""
    (hits,) = client.call(
        "search",
        name,
        data=query[None].tolist(),
        anns_field="vector",
        limit=k,
        output_fields=["id"],
        partition_names=[IMAGE],
        search_params=search_parameters(kind, k),  # type: ignore[arg-type]
        consistency_level="Bounded",
    )
    return [hit["id"] - 1 for hit in hits]


def measure(client: Client, name: str, kind: str, queries: Vectors, pool: Pool) -> tuple[float, float]:
    """Recall@10 against exact search, after candidates are scored again, and the median milliseconds of a query."""
    took, found = [], 0
    for query, best in zip(queries, pool.top(queries, K), strict=True):
        started = time.perf_counter()
        rows = np.array(search(client, name, kind, query, K + MARGIN), np.int64)
        took.append(time.perf_counter() - started)
        found += len(np.intersect1d(pool.rank(query, rows, K, False).rows, best.rows))
    return found / (K * len(queries)), 1000 * float(np.median(took))


def main() -> None:
    """Print a table: for each size and type the time to fill it, recall and latency."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default="127.0.0.1:19530")
    parser.add_argument("--entries", type=int, nargs="+", default=[20_000, 50_000])
    parser.add_argument("--size", type=int, default=1024, help="of the random vectors")
    options = parser.parse_args()
    table = Table("entries", "vectors", "type", "filled in s", f"recall@{K}", "ms", box=None)
    for entries in options.entries:
        random = np.random.default_rng(0)
        count = entries + QUERIES
        for source, vectors in (
            ("sentences", captions(count, random)),
            ("random", clustered(count, options.size, random)),
        ):
            compare(table, options.server, source, vectors[QUERIES:], vectors[:QUERIES])
    Console().print(table)


def compare(table: Table, server: str, source: str, vectors: Vectors, queries: Vectors) -> None:
    """Add the rows of all types for some vectors."""
    pool = Pool(np.arange(1, len(vectors) + 1), vectors)
    for kind in TYPES:
        name = f"probe_{uuid.uuid4().hex[:8]}"
        client = Client(MilvusAddress.parse(f"milvus://{server}/{name}?index={kind}"))
        create_collection(client, name, vectors.shape[1])
        try:
            started = time.perf_counter()
            fill(client, name, vectors)
            filled = time.perf_counter() - started
            recall, milliseconds = measure(client, name, kind, queries, pool)
        finally:
            client.slowly("drop_collection", name)
            client.close()
        table.add_row(f"{len(vectors):,}", source, kind, f"{filled:.0f}", f"{recall:.3f}", f"{milliseconds:.1f}")
    took = []
    for query in queries:
        started = time.perf_counter()
        pool.top(query[None], K)
        took.append(time.perf_counter() - started)
    table.add_row(f"{len(vectors):,}", source, "in memory", "", "1.000", f"{1000 * np.median(took):.1f}")


if __name__ == "__main__":
    main()
