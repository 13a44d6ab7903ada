"""Ranking 25,000 images and 125,000 texts, whose scores would fill 12.5 GB: the memory it takes beside the embeddings.

Texts come in no order, which is the harder case. The quick form has the same images and texts in 128 dimensions, not
1,024. Needs Linux, to read the memory in use.
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
    """Random unit vectors, made in place: making them must not be the peak of memory."""
    made = torch.empty(rows, size).normal_()
    for part in made.split(1000):
        part.div_(part.norm(dim=1, keepdim=True))
    return made


def used_now() -> int:
    """The bytes of memory that this process holds."""
    resident_pages = Path("/proc/self/statm").read_text().split()[1]
    return int(resident_pages) * os.sysconf("SC_PAGE_SIZE")


def used_at_most() -> int:
    """The most bytes of memory that this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    """Measure the peak while ranking, from what is in use once the embeddings are there."""
    options = arguments(__doc__)
    size = 128 if options.quick else 1024
    torch.manual_seed(0)
    images, texts = embeddings(IMAGES, size), embeddings(TEXTS, size)
    image_groups = np.arange(IMAGES)
    text_groups = np.random.default_rng(0).permutation(np.repeat(image_groups, TEXTS_EACH))
    score = embedding_score(lambda rows, columns: rows @ columns.T, images, texts)

    before = used_now()
    timing = timed(lambda: ranks(score, image_groups, text_groups))
    above = (used_at_most() - before) / 1e9
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
