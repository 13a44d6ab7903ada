"""Measure the memory of ranking 25,000 images and 125,000 texts, whose scores would take 12.5 GB.

The memory of the embeddings is not counted. Texts are shuffled, which is the harder case. With `--quick`, embeddings
have 128 dimensions instead of 1,024. Requires Linux, to read memory usage.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from diptych.evaluation.metrics.ranks import ranks
from diptych.evaluation.metrics.scores import embedding_score
from harness import arguments, finish, timed

IMAGES, TEXTS_EACH = 25_000, 5
TEXTS = IMAGES * TEXTS_EACH
GIGABYTES_TARGET = 1.0


def embeddings(rows: int, size: int) -> Tensor:
    """Random unit vectors, computed in place so that this is not the peak of memory."""
    made = torch.empty(rows, size).normal_()
    for part in made.split(1000):
        part.div_(part.norm(dim=1, keepdim=True))
    return made


def current_memory() -> int:
    """The current memory of this process, in bytes."""
    resident_pages = Path("/proc/self/statm").read_text().split()[1]
    return int(resident_pages) * os.sysconf("SC_PAGE_SIZE")


def peak_memory() -> int:
    """The peak memory of this process, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    """Measure the peak while ranking, beyond what is used when the embeddings are ready."""
    options = arguments(__doc__)
    size = 128 if options.quick else 1024
    torch.manual_seed(0)
    images, texts = embeddings(IMAGES, size), embeddings(TEXTS, size)
    image_groups = np.arange(IMAGES)
    text_groups = np.random.default_rng(0).permutation(np.repeat(image_groups, TEXTS_EACH))
    score = embedding_score(lambda rows, columns: rows @ columns.T, images, texts)

    before = current_memory()
    timing = timed(lambda: ranks(score, image_groups, text_groups))
    above = (peak_memory() - before) / 1e9
    finish(
        "ranking_memory",
        ratio=above / GIGABYTES_TARGET,
        target=1.0,
        ok=above < GIGABYTES_TARGET,
        gigabytes_above_embeddings=round(above, 3),
        gigabytes_target=GIGABYTES_TARGET,
        gigabytes_of_embeddings=round((images.nbytes + texts.nbytes) / 1e9, 3),
        gigabytes_of_all_scores=round(IMAGES * TEXTS * 4 / 1e9, 3),
        seconds=round(timing.wall, 1),
        cpu_seconds=round(timing.cpu, 1),
        shape=[IMAGES, TEXTS, size],
        threads=torch.get_num_threads(),
    )


if __name__ == "__main__":
    main()
