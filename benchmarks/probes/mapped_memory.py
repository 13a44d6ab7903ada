"""Search an index in this process, and print how much memory the process has in the end; `million.py` starts it.

python benchmarks/probes/mapped_memory.py INDEX QUERIES.npy auto|int8|pq
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import cast

import numpy as np

from diptych.index.loaded import LoadedIndex
from diptych.index.preselection import Codes, Preselection
from diptych.index.sqlite.store import Store


def memory() -> dict[str, int]:
    """Bytes that are resident now, shared pages of files included, of which files, and at most so far."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    found = {name: re.search(rf"^{name}:\s+(\d+) kB", status, re.M) for name in ("VmRSS", "RssFile", "VmHWM")}
    return {name: 1024 * int(match[1]) for name, match in found.items() if match}


def main() -> None:
    """Open, search query by query, and say what it took."""
    file, queries, codes = sys.argv[1], np.load(sys.argv[2]), cast(Codes, sys.argv[3])
    before = memory()["VmRSS"]
    started = time.perf_counter()
    store = Store.open(file)
    loaded = LoadedIndex(store, map_above=0)
    pool = loaded.in_memory("image")
    preselection = Preselection(store, "benchmark", ivf="never", ivf_above=0, build=False, codes=codes)
    selector = preselection.of(loaded, "image")
    opened = time.perf_counter() - started
    for query in queries:
        if selector is None:
            pool.top(query[None], 36)
        else:
            pool.rank(query, selector.candidates(query[None], 72)[0], 36, False)
    print(json.dumps({"before": before, "opened": opened, **memory()}))


if __name__ == "__main__":
    main()
