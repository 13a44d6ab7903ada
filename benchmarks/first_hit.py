"""The CPU seconds from the start of Python to the first hit: of `diptych search`, and of `diptych serve`.

Both use an index of 1,000 small photos and the starter's text side; the photos' vectors are random, because they do not
change what is measured. The processes cannot import torch: it is blocked. CPU seconds are those of user and system.
Target: at most 0.7 seconds for `search` and 1.0 for `serve`; the ratio is that of the one that is nearer to its limit.

    python benchmarks/first_hit.py [--quick]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from PIL import Image

from diptych.index.sync import sync
from diptych.model import Model
from diptych.models.engines.engine import Encodings
from harness import arguments, finish

PHOTOS = 1000
QUERY = "two dogs on a beach"
SEARCH, SERVE = 0.7, 1.0  # CPU seconds
WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; from diptych.cli.main import main; main()"


class RandomVectors(Model):
    """The starter, except that a photo's vector is random."""

    reads_pictures, is_inner_product, decode_size, embedding_dim = True, True, 8, 1024
    quality = "best"

    def __init__(self) -> None:
        super().__init__(engine=cast("Any", self))
        self.random, self.starter = np.random.default_rng(0), Model.load("starter")

    @property
    def address(self) -> str:
        """That of the starter."""
        return self.starter.address

    @property
    def identity(self) -> str:
        """That of the starter."""
        return self.starter.identity

    def preprocess(self, photo: Image.Image) -> np.ndarray:
        """The photo as bytes."""
        return np.asarray(photo, np.uint8)

    def encode_preprocessed(self, prepared: Sequence[np.ndarray]) -> Encodings:
        """Random vectors of length one."""
        vectors = self.random.standard_normal((len(prepared), 1024), dtype=np.float32)
        return Encodings(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def make_index(folder: Path) -> Path:
    """The index of generated photos."""
    photos, random = folder / "photos", np.random.default_rng(1)
    photos.mkdir()
    for number in range(PHOTOS):
        Image.fromarray(random.integers(0, 256, (8, 8, 3), np.uint8)).save(photos / f"{number}.png")
    sync(RandomVectors(), str(photos), folder / "photos.diptych")
    return folder / "photos.diptych"


def started(*words: object) -> subprocess.Popen[str]:
    """A command line that cannot import torch."""
    command = [sys.executable, "-c", WITHOUT_TORCH, *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def cpu_seconds(process: subprocess.Popen[str]) -> float:
    """The CPU seconds of a process, which ends."""
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_utime + used.ru_stime


def search(index: Path) -> float:
    """The CPU seconds of a search from the shell."""
    process = started("search", index, *QUERY.split())
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        lines, errors = process.stdout.read().splitlines(), process.stderr.read()
    seconds = cpu_seconds(process)
    if process.returncode or len(lines) != 11:  # ten hits below their columns
        raise RuntimeError(f"the search failed: {errors}")
    return seconds


def serve(index: Path) -> float:
    """The CPU seconds of a service until it has answered its first search."""
    process = started("serve", index, "--port", "0")
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        try:
            address = process.stdout.readline().split()[-1:]
            if not address:
                raise RuntimeError(f"the service failed: {process.stderr.read()}")
            url = f"{address[0]}/search?{urllib.parse.urlencode({'text': QUERY})}"
            with urllib.request.urlopen(url, timeout=60) as answer:
                answer.read()
        finally:
            process.kill()  # what it would do to end is not counted
            seconds = cpu_seconds(process)
    return seconds


def main() -> None:
    """Make the index, then start both in turn."""
    rounds = 3 if arguments(__doc__).quick else 10
    with tempfile.TemporaryDirectory() as name:
        index = make_index(Path(name))
        taken: dict[str, list[float]] = {"search": [], "serve": []}
        begin = time.perf_counter()
        for number in range(rounds):
            taken["search"].append(search(index))
            taken["serve"].append(serve(index))
            now = ", ".join(f"{name} {seconds[-1]:.2f} s" for name, seconds in taken.items())
            print(f"round {number + 1} of {rounds}: {now} of CPU", file=sys.stderr)
        wall = time.perf_counter() - begin
    best = {name: min(seconds) for name, seconds in taken.items()}
    ratio = max(best["search"] / SEARCH, best["serve"] / SERVE)
    finish(
        "first_hit",
        ratio=ratio,
        target=1.0,
        ok=ratio <= 1.0,
        search_cpu=round(best["search"], 3),
        serve_cpu=round(best["serve"], 3),
        median_search_cpu=round(float(np.median(taken["search"])), 3),
        median_serve_cpu=round(float(np.median(taken["serve"])), 3),
        photos=PHOTOS,
        wall_per_round=round(wall / rounds, 2),
    )


if __name__ == "__main__":
    main()
