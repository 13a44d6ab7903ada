"""32 clients that ask a service on loopback at the same time, against the library called directly with the same texts.

The service is `diptych.serve` under uvicorn in a process of its own, over an index of 200,000 random vectors of 512
numbers; the text tower is a GRU with 512 states and random weights, run as any run is. The clients are another process,
each with a connection that it keeps, and every text is asked once. The library gets the same texts in batches of the
size that the service's batches had. Both share the machine with nothing else: the service also has to leave room for
the clients. The two take turns, and the best round of each counts. The quick form asks fewer questions.
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
from diptych.index.sqlite.store import IndexSpec, Store
from diptych.index.sqlite.vectors import encode
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
    engine = TorchEngine(settings.build().eval(), vocabulary, torch.device("cpu"))
    return Model(lambda: engine, "benchmark", lambda: "benchmark")


def make_index(file: Path) -> None:
    """An index of random vectors of length one, an image each."""
    spec = IndexSpec("benchmark", "benchmark", SIZE, False, "float32", "nowhere", None, "0")
    store = Store.create(file, spec)
    random = np.random.default_rng(0)
    with store.database.transaction():
        for start in range(0, ENTRIES, 10_000):
            vectors = random.standard_normal((10_000, SIZE), dtype=np.float32)
            kept = encode(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), "float32")
            ids = range(start + 1, start + 10_001)
            store.database.each(
                "INSERT INTO contents(id, kind, hash, checksum, vector) VALUES(?, 'image', ?, 0, ?)",
                [(id, str(id).encode(), vector) for id, vector in zip(ids, kept, strict=True)],
            )
            store.database.each(
                "INSERT INTO entries(id, kind, key, content) VALUES(?, 'image', ?, ?)",
                [(id, f"{id}.jpg", id) for id in ids],
            )
    store.close()


def serve(file: str) -> None:
    """The service, in its own process."""
    import uvicorn

    from diptych.serve.app import create_app
    from diptych.serve.startup import listen, url_of

    keep_freed_memory()
    searcher = Searcher(Store.open(file), make_model())
    searcher.search_texts(WORDS, SearchRequest(k=K))
    with listen("127.0.0.1", 0) as listening:
        print(url_of(listening), flush=True)
        app = create_app({"benchmark": searcher})
        config = uvicorn.Config(app, log_level="warning", server_header=False, proxy_headers=False, ws="none")
        uvicorn.Server(config).run(sockets=[listening])


@contextmanager
def started(file: Path) -> Iterator[int]:
    """The service, as long as the block runs; gives its port."""
    process = subprocess.Popen([sys.executable, __file__, "serve", str(file)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline().rpartition(":")[2])
    finally:
        process.terminate()
        process.wait(10)


def batches(port: int) -> tuple[float, float]:
    """How many batches there were so far, and how many questions in them."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        told = answer.read().decode()
    count, total = (re.search(rf"^diptych_batch_size_{name} (\S+)$", told, re.M) for name in ("count", "sum"))
    assert count
    assert total
    return float(count[1]), float(total[1])


def main() -> None:
    """Let the service and the library take turns."""
    options = arguments(__doc__)
    each, rounds = (8, 3) if options.quick else (40, 5)
    keep_freed_memory()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "index.diptych"
        make_index(file)
        searcher = Searcher(Store.open(file), make_model())
        searcher.search_texts(WORDS, SearchRequest(k=K))
        asked, seen, direct, sizes = each * CLIENTS, [], [], []
        with started(file) as port:
            for number in range(rounds):
                before = batches(port)
                command = [sys.executable, str(CLIENT), str(port), str(number * asked), str(each)]
                seen.append(_told(command))
                after = batches(port)
                sizes.append((after[1] - before[1]) / (after[0] - before[0]))
                direct.append(_directly(searcher, texts(number * asked, asked), max(1, round(sizes[-1]))))
                rates = f"{asked / seen[-1]['seconds']:.0f}/s, directly {asked / direct[-1]:.0f}/s"
                print(f"round {number + 1} of {rounds}: {rates}, batches of {sizes[-1]:.1f}", file=sys.stderr)
        searcher.store.close()
    taken = np.concatenate([each["taken"] for each in seen])
    errors = sum(each["errors"] for each in seen)
    best = min(each["seconds"] for each in seen)
    ratio = min(direct) / best
    finish(
        "serving",
        ratio=ratio,
        target=TARGET,
        ok=ratio >= TARGET and not errors,
        errors=errors,
        requests_per_second=round(asked / best, 1),
        direct_per_second=round(asked / min(direct), 1),
        batch=round(float(np.mean(sizes)), 1),
        p50_milliseconds=round(1000 * float(np.quantile(taken, 0.5)), 1),
        p99_milliseconds=round(1000 * float(np.quantile(taken, 0.99)), 1),
    )


def _told(command: list[str]) -> dict[str, Any]:
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=2 * SECONDS)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _directly(searcher: Searcher, asked: list[str], size: int) -> float:
    begun = time.perf_counter()
    for start in range(0, len(asked), size):
        searcher.search_texts(asked[start : start + size], SearchRequest(k=K))
    return time.perf_counter() - begun


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2])
    else:
        main()
