"""Compare 32 concurrent clients of a service on loopback with direct library calls for the same texts.

The service is `diptych.serve` under uvicorn in a process of its own, with an index of 200,000 random vectors of size
512; the text tower is a GRU of size 512 with random weights. The clients run in another process, each with a persistent
connection, and send every text once. The library gets the same texts in batches of the same size as the service's. The
service shares the cores with the clients, the library does not. The two alternate, and the best round of each counts.
With `--quick`, there are fewer queries.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from diptych.index.entries import SearchRequest
from diptych.index.search import Searcher
from diptych.index.spec import IndexSpec
from diptych.index.sqlite.store import Store
from diptych.index.vectors import encode
from diptych.machine import keep_freed_memory
from diptych.model import Model
from diptych.models.engines.torch_engine import TorchEngine
from diptych.models.matchers.vse import VSESettings
from diptych.models.towers.image.cnn import CNNSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.text.vocabulary import Vocabulary
from harness import arguments, finish
from probes.clients import CLIENTS, SECONDS, WORDS, K, texts

ENTRIES, SIZE = 200_000, 512
TARGET = 0.7
CLIENT = Path(__file__).parent / "probes" / "clients.py"


class Named(Model):
    """A model in memory that an index can belong to."""

    address, identity = "benchmark", "benchmark"


def make_model() -> Model:
    """The same model in every process."""
    torch.manual_seed(0)
    vocabulary = Vocabulary.from_texts([" ".join(WORDS)], 1)
    settings = VSESettings(
        joint=SIZE,
        text=GRUSettings(hidden=SIZE, word=300),
        image=CNNSettings(pixels=32, width=2),
        words=len(vocabulary),
    )
    return Named(engine=TorchEngine(settings.build().eval(), vocabulary, torch.device("cpu")))


def make_index(file: Path) -> None:
    """An index of random unit vectors, one per image."""
    spec = IndexSpec("benchmark", "benchmark", SIZE, False, "float32", "nowhere", None, "0")
    store = Store.create(file, spec)
    random = np.random.default_rng(0)
    with store.database.transaction():
        for start in range(0, ENTRIES, 10_000):
            vectors = random.standard_normal((10_000, SIZE), dtype=np.float32)
            encoded = encode(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), "float32")
            ids = range(start + 1, start + 10_001)
            store.database.each(
                "INSERT INTO contents(id, kind, hash, checksum, vector) VALUES(?, 'image', ?, 0, ?)",
                [(id, str(id).encode(), vector) for id, vector in zip(ids, encoded, strict=True)],
            )
            store.database.each(
                "INSERT INTO entries(id, kind, key, content) VALUES(?, 'image', ?, ?)",
                [(id, f"{id}.jpg", id) for id in ids],
            )
    store.close()


def serve(file: str) -> None:
    """Run the service; called in a process of its own."""
    from diptych.serve.app import create_app
    from diptych.serve.startup import listen, make_server, url_of

    keep_freed_memory()
    searcher = Searcher(Store.open(file), make_model())
    searcher.search_texts(WORDS, SearchRequest(k=K))
    server = make_server(create_app({"benchmark": searcher}))
    with listen("127.0.0.1", 0) as listening:
        print(url_of(listening), flush=True)  # when it is ready, as `diptych serve` does
        server.run(sockets=[listening])


@contextmanager
def started(file: Path) -> Iterator[int]:
    """Run the service during a `with` block; yields its port."""
    process = subprocess.Popen([sys.executable, __file__, "serve", str(file)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline().rpartition(":")[2])
    finally:
        process.terminate()
        process.wait(10)


def batches(port: int) -> tuple[float, float]:
    """The number of batches so far, and of the queries in them."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        metrics = answer.read().decode()
    count, total = (re.search(rf"^diptych_batch_size_{name} (\S+)$", metrics, re.M) for name in ("count", "sum"))
    assert count
    assert total
    return float(count[1]), float(total[1])


def main() -> None:
    """Measure the service and the library alternately."""
    options = arguments(__doc__)
    each, rounds = (8, 3) if options.quick else (40, 5)
    keep_freed_memory()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "index.diptych"
        make_index(file)
        searcher = Searcher(Store.open(file), make_model())
        searcher.search_texts(WORDS, SearchRequest(k=K))
        count, service, direct, sizes = each * CLIENTS, [], [], []
        with started(file) as port:
            for number in range(rounds):
                before = batches(port)
                command = [sys.executable, str(CLIENT), str(port), str(number * count), str(each)]
                service.append(_run_clients(command))
                after = batches(port)
                sizes.append((after[1] - before[1]) / (after[0] - before[0]))
                direct.append(_search_directly(searcher, texts(number * count, count), max(1, round(sizes[-1]))))
                rates = f"{count / service[-1]['seconds']:.0f}/s, directly {count / direct[-1]:.0f}/s"
                print(f"round {number + 1} of {rounds}: {rates}, batches of {sizes[-1]:.1f}", file=sys.stderr)
        searcher.store.close()
    taken = np.concatenate([each["taken"] for each in service])
    errors = sum(each["errors"] for each in service)
    best = min(each["seconds"] for each in service)
    ratio = min(direct) / best
    finish(
        "serving",
        ratio=ratio,
        target=TARGET,
        ok=ratio >= TARGET and not errors,
        errors=errors,
        requests_per_second=round(count / best, 1),
        direct_per_second=round(count / min(direct), 1),
        batch=round(float(np.mean(sizes)), 1),
        p50_milliseconds=round(1000 * float(np.quantile(taken, 0.5)), 1),
        p99_milliseconds=round(1000 * float(np.quantile(taken, 0.99)), 1),
    )


def _run_clients(command: list[str]) -> dict[str, Any]:
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=2 * SECONDS)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _search_directly(searcher: Searcher, queries: list[str], size: int) -> float:
    started_at = time.perf_counter()
    for start in range(0, len(queries), size):
        searcher.search_texts(queries[start : start + size], SearchRequest(k=K))
    return time.perf_counter() - started_at


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2])
    else:
        main()
