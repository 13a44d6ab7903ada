"""Measure the memory of a process that streams 10,000, 100,000 and 1,000,000 pairs, one process each.

The shards have 10,000 samples each: photos of 64 pixels with a caption. All are links to one file, so that the disk
holds one of them; a stream reads each as a file of its own. A process opens the shards by their index, reads all texts
for the vocabulary, reads a whole epoch in batches of 128 through the buffer, decodes every tenth of them, and begins
another epoch near its end, as a training that resumes does.

    python benchmarks/probes/stream_memory.py
"""

from __future__ import annotations

import io
import json
import os
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from diptych.data.open import open_corpus
from diptych.data.sampling.batch import PairReader
from diptych.data.sampling.stream import StreamGroups, StreamPictures, StreamSampler, StreamTexts, StreamWindow
from diptych.data.shards.corpus import StreamCorpus
from diptych.data.shards.index import write_index
from diptych.features.readers import PixelReader
from diptych.text.vocabulary import Vocabulary

SIZES = (10_000, 100_000, 1_000_000)
SHARD, VAL, WORDS, BUFFER, BATCH = 10_000, 100, 5000, 2048, 128


def write_shard(file: Path, samples: int) -> None:
    """A shard of drawn photos with captions of random words."""
    random = np.random.default_rng(0)
    with tarfile.open(file, "w", format=tarfile.USTAR_FORMAT) as tar:
        for number in range(samples):
            content = io.BytesIO()
            cells = Image.fromarray(random.integers(0, 256, (8, 8, 3), np.uint8))
            cells.resize((64, 64), Image.Resampling.BICUBIC).save(content, "JPEG")
            caption = " ".join(f"w{word}" for word in random.integers(WORDS, size=11))
            for ending, value in (("jpg", content.getvalue()), ("txt", caption.encode())):
                member = tarfile.TarInfo(f"{number:06d}.{ending}")
                member.size = len(value)
                tar.addfile(member, io.BytesIO(value))


def make(folder: Path, pairs: int) -> None:
    """The shards of as many pairs."""
    folder.mkdir()
    for number in range(pairs // SHARD):
        os.link(folder.parent / "shard.tar", folder / f"train-{number:06d}.tar")
    os.link(folder.parent / "val.tar", folder / "val-000000.tar")
    first = open_corpus(f"{folder}/{{train,val}}-000000.tar")
    assert isinstance(first, StreamCorpus)
    train, val = first.shards
    shards = [replace(train, name=f"{folder}/train-{number:06d}.tar") for number in range(pairs // SHARD)]
    write_index(folder, [*shards, val], {"name": folder.name})


def megabytes() -> float:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def stream(folder: Path) -> dict[str, float]:
    """What a training does with its data, and the most memory after each part of it."""
    started, figures = time.perf_counter(), {"imported": megabytes()}
    corpus = open_corpus(folder)
    assert isinstance(corpus, StreamCorpus)
    samples, window = corpus.stream(["train"]), StreamWindow()
    figures |= {"pairs": len(samples), "opened": megabytes()}
    words = Vocabulary.from_texts(samples.texts(), 4)
    figures |= {"vocabulary": megabytes(), "vocabulary_seconds": time.perf_counter() - started}
    pictures = StreamPictures(window, len(samples))
    reader = PairReader(StreamGroups(window), PixelReader(pictures, 64, keep=False), StreamTexts(window, words))
    sampler = StreamSampler(samples, window, BATCH, (0, 1), BUFFER)
    started, pairs = time.perf_counter(), 0
    for number, batch in enumerate(sampler.epoch(1)):
        pairs += len(batch.images)
        if number % 10 == 0:
            reader.read(batch)
    assert pairs == len(samples)
    figures |= {"epoch": megabytes(), "epoch_seconds": time.perf_counter() - started}
    started = time.perf_counter()
    for batch in sampler.epoch(2)[len(sampler) - 5 :]:
        reader.read(batch)
    return figures | {"resumed": megabytes(), "resume_seconds": time.perf_counter() - started}


def main() -> None:
    """Measure in one process per size, and print a line for each."""
    if len(sys.argv) > 1:
        print(json.dumps(stream(Path(sys.argv[1]))))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_shard(folder / "shard.tar", SHARD)
        write_shard(folder / "val.tar", VAL)
        for size in SIZES:
            make(folder / str(size), size)
            command = [sys.executable, __file__, str(folder / str(size))]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            figures = {key: round(value, 1) for key, value in json.loads(done.stdout).items()}
            print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
