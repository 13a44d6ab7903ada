"""Measure the first screen of the page on an index of 100,000 photos, over HTTP on loopback.

The first screen is what the page requests before its user has done anything: `/indexes`, `/home`, `/folders` and the
first 30 thumbnails, one after the other over one connection. The index has photos of 4,000 days in 400 folders, with
thumbnails of 8 kB. The service is that of the benchmark `serving`, in a process of its own. The first screen after the
start of the service counts as well, and the slowest decides.
"""

from __future__ import annotations

import http.client
import json
import sys
import tempfile
import time
from datetime import date, timedelta
from pathlib import Path

import numpy as np

from diptych.index.spec import IndexSpec
from diptych.index.sqlite.store import Store
from diptych.index.vectors import encode
from harness import arguments, finish
from serving import SIZE, started

PHOTOS, DAYS, FOLDERS = 100_000, 4_000, 400
THUMBNAILS = 30
TARGET = 0.2  # seconds


def make_index(file: Path) -> None:
    """An index of random vectors, with a day, a folder, a size and a thumbnail per photo."""
    store = Store.create(file, IndexSpec("benchmark", "benchmark", SIZE, False, "int8", "nowhere", None, "0"))
    random = np.random.default_rng(0)
    with store.database.transaction():
        for start in range(0, PHOTOS, 10_000):
            vectors = encode(random.standard_normal((10_000, SIZE), dtype=np.float32), "int8")
            ids = range(start + 1, start + 10_001)
            store.database.each(
                "INSERT INTO contents(id, kind, hash, checksum, width, height, taken, vector) "
                "VALUES(?, 'image', ?, 0, 4000, 3000, ?, ?)",
                [(id, str(id).encode(), _day(id), vector) for id, vector in zip(ids, vectors, strict=True)],
            )
            store.database.each("INSERT INTO thumbnails VALUES(?, ?)", [(id, random.bytes(8_000)) for id in ids])
            store.database.each(
                "INSERT INTO entries(id, kind, key, content, folder, modified) VALUES(?, 'image', ?, ?, ?, 0)",
                [(id, f"{_folder(id)}/{id}.jpg", id, _folder(id)) for id in ids],
            )
    store.close()


def _day(id: int) -> str:
    return str(date(2015, 1, 1) + timedelta(days=id * 7919 % DAYS))


def _folder(id: int) -> str:
    return f"{id % 20}/{id % FOLDERS}"


def first_screen(port: int) -> dict[str, float]:
    """The seconds of each kind of request of the first screen, over a new connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    taken: dict[str, float] = {}

    def get(name: str, address: str) -> bytes:
        begun = time.perf_counter()
        connection.request("GET", address)
        answer = connection.getresponse()
        content = answer.read()
        taken[name] = taken.get(name, 0) + time.perf_counter() - begun
        assert answer.status == 200, content
        return content

    get("indexes", "/indexes")
    images = json.loads(get("home", "/home"))["images"]
    get("folders", "/folders")
    for image in images[:THUMBNAILS]:
        get("thumbnails", f"/image/{image['id']}")
    connection.close()
    return taken


def main() -> None:
    """Measure several first screens."""
    options = arguments(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "index.diptych"
        make_index(file)
        print(f"an index of {PHOTOS:,} photos, {file.stat().st_size >> 20} MB", file=sys.stderr)
        with started(file) as port:
            screens = [first_screen(port) for _ in range(5 if options.quick else 20)]
    totals = [sum(screen.values()) for screen in screens]
    parts = {
        f"{name}_milliseconds": round(1000 * float(np.median([s[name] for s in screens])), 1) for name in screens[0]
    }
    finish(
        "home",
        ratio=max(totals) / TARGET,
        target=1,
        ok=max(totals) <= TARGET,
        first_milliseconds=round(1000 * totals[0], 1),
        parts_of_first={name: round(1000 * seconds, 1) for name, seconds in screens[0].items()},
        median_milliseconds=round(1000 * float(np.median(totals)), 1),
        slowest_milliseconds=round(1000 * max(totals), 1),
        **parts,
    )


if __name__ == "__main__":
    main()
