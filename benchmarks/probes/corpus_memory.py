"""Measure the memory of corpora in memory: a table of 1, then 10 million captions, five per image.

The images are empty files, because a corpus decodes nothing before training. One process per size reads the table,
takes the train split, and encodes its texts, as a training does before its first step.

    python benchmarks/probes/corpus_memory.py [FOLDER]
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from diptych.data.open import open_corpus
from diptych.text.vocabulary import Vocabulary

CAPTIONS = (1_000_000, 10_000_000)
TEXTS_PER_IMAGE, FILES_PER_FOLDER, WORDS = 5, 10_000, 20_000


def write_table(folder: Path, captions: int) -> None:
    """A table, and the empty files that it names."""
    random = np.random.default_rng(0)
    words = np.array([f"word{number}" for number in range(WORDS)])
    with (folder / f"{captions}.csv").open("w", encoding="utf-8") as table:
        table.write("image,text,split\n")
        for image in range(captions // TEXTS_PER_IMAGE):
            name = f"{image // FILES_PER_FOLDER:04d}/photo_{image:09d}.jpg"
            file = folder / name
            if image % FILES_PER_FOLDER == 0:
                file.parent.mkdir(exist_ok=True)
            file.touch()
            split = "val" if image < 1000 else "train"
            for text in words[random.integers(WORDS, size=(TEXTS_PER_IMAGE, 9))]:
                table.write(f"{name},{' '.join(text)},{split}\n")


def gigabytes() -> float:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def measure(table: Path) -> dict[str, float]:
    """The most memory after each part, in GB, and the seconds of each."""
    started, figures = time.perf_counter(), {"imported": gigabytes()}
    corpus = open_corpus(table)
    figures |= {"images": len(corpus.image_ids), "texts": len(corpus.texts)}
    figures |= {"opened": gigabytes(), "opened_seconds": time.perf_counter() - started}
    train = corpus.split("train").matched()
    figures |= {"train": gigabytes(), "digest": len(corpus.digest()) and gigabytes()}
    words = Vocabulary.from_texts(train.texts, 4)
    tokens = words.encode_all(train.texts)
    return figures | {"tokens": len(tokens) and gigabytes(), "seconds": time.perf_counter() - started}


def main() -> None:
    """Measure in one process per size, and print a line for each."""
    if len(sys.argv) > 1 and sys.argv[1].endswith(".csv"):
        print(json.dumps(measure(Path(sys.argv[1]))))
        return
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as name:
        for captions in CAPTIONS:
            write_table(Path(name), captions)
            command = [sys.executable, __file__, f"{name}/{captions}.csv"]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            print(json.dumps({key: round(value, 2) for key, value in json.loads(done.stdout).items()}), flush=True)


if __name__ == "__main__":
    main()
