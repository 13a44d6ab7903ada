"""Compare mining the hardest 300 texts of 29,000 images and 60 images of 145,000 texts with the bare matrix product.

The bare product multiplies the same blocks and does nothing else; the two alternate after each block of texts. There
are two sets of embeddings: random ones with shuffled texts, and clustered ones in which a text has many close images.
Memory is the peak while mining, beyond what the process used when the embeddings were ready. With `--quick`, there is a
tenth of the scores, and random embeddings only. Requires Linux, to read memory usage.
"""

from __future__ import annotations

import itertools
import sys
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from diptych.evaluation.metrics.scores import embedding_score
from diptych.evaluation.metrics.tiles import BLOCK
from diptych.machine import keep_freed_memory
from diptych.mining.exclusions import Exclusions
from diptych.mining.score_pass import ScorePass
from diptych.mining.top_scores import items_of
from harness import arguments, finish
from ranking_memory import current_memory, peak_memory

TEXTS_EACH, SIZE = 5, 1024
TOP_TEXTS, TOP_IMAGES = 300, 60
SAMPLED = 50
TARGET, GIGABYTES_TARGET = 1.5, 1.5


@dataclass(frozen=True)
class Comparison:
    """Wall time and CPU time of mining and of the bare product, in seconds."""

    mining: float
    product: float
    mining_cpu: float
    product_cpu: float
    agreement: float  # with plain sorting, on some of the lists


def embeddings(images: int, *, clustered: bool) -> tuple[Tensor, Tensor]:
    """Unit vectors, computed in place so that this is not the peak of memory."""
    made = torch.empty(images, SIZE).normal_(), torch.empty(images * TEXTS_EACH, SIZE).normal_()
    if clustered:
        centres = torch.randn(images // 100, SIZE)
        made[0].add_(centres[torch.randint(len(centres), (images,))])
        for each, part in enumerate(made[1].split(TEXTS_EACH)):
            part.add_(made[0][each])
    for part in itertools.chain(*(side.split(1000) for side in made)):
        part.div_(part.norm(dim=1, keepdim=True))
    return made


def compare(images: Tensor, texts: Tensor, text_groups: np.ndarray) -> Comparison:
    """Mine and multiply alternately."""
    groups = np.arange(len(images))
    strings = [str(text) for text in range(len(texts))]
    score = embedding_score(lambda rows, columns: rows @ columns.T, images, texts)
    tiles = ScorePass(score, Exclusions(groups, text_groups, strings), TOP_TEXTS, TOP_IMAGES, BLOCK)
    left = tiles.remaining()
    taken = np.zeros(4)
    for columns in tiles.columns:
        part = texts[columns]
        times = [(time.perf_counter(), time.process_time())]
        for _ in tiles.rows:
            next(left)
        times.append((time.perf_counter(), time.process_time()))
        for rows in tiles.rows:
            images[rows] @ part.T
        times.append((time.perf_counter(), time.process_time()))
        taken += np.diff(times, axis=0).T.ravel()
        ratio = taken[0] / taken[1]
        print(f"{columns.stop:,} texts: {taken[0]:.1f} s, {ratio:.3f} x the product", file=sys.stderr)
    mining, product, mining_cpu, product_cpu = taken.tolist()
    return Comparison(mining, product, mining_cpu, product_cpu, agreement(tiles, images, texts, text_groups))


def agreement(tiles: ScorePass, images: Tensor, texts: Tensor, text_groups: np.ndarray) -> float:
    """The share of entries of some lists that plain sorting finds, too; rounding leaves it slightly below 1."""
    found = []
    for top, own, others, groups, other_groups in (
        (tiles.texts_of_images, images, texts, np.arange(len(images)), text_groups),
        (tiles.images_of_texts, texts, images, text_groups, np.arange(len(images))),
    ):
        some = np.linspace(0, len(own) - 1, SAMPLED).astype(np.int64)
        lists = items_of(top.best()[some])
        scores = (own[some] @ others.T).numpy()
        scores[groups[some, None] == other_groups] = -np.inf
        best = np.argsort(-scores, axis=1)[:, : top.size]
        found += [np.isin(each, wanted).mean() for each, wanted in zip(lists, best, strict=True)]
    return float(np.mean(found))


def main() -> None:
    """Compare the times on both sets, and measure the peak memory."""
    options = arguments(__doc__)
    keep_freed_memory()
    count = 9170 if options.quick else 29_000
    torch.manual_seed(0)
    in_order = np.repeat(np.arange(count), TEXTS_EACH)
    sets = {"random": np.random.default_rng(0).permutation(in_order), "clustered": in_order}
    if options.quick:
        del sets["clustered"]
    taken, above = {}, 0.0
    for name, text_groups in sets.items():
        images, texts = embeddings(count, clustered=name == "clustered")
        before = current_memory()
        taken[name] = compare(images, texts, text_groups)
        above = max(above, (peak_memory() - before) / 1e9)
        gigabytes = (images.nbytes + texts.nbytes) / 1e9
        del images, texts
    ratios = {name: each.mining / each.product for name, each in taken.items()}
    agreed = min(each.agreement for each in taken.values())
    finish(
        "mining",
        ratio=max(ratios.values()),
        target=TARGET,
        ok=max(ratios.values()) <= TARGET and above < GIGABYTES_TARGET and agreed > 0.99,
        ratios={name: round(ratio, 3) for name, ratio in ratios.items()},
        cpu_ratios={name: round(each.mining_cpu / each.product_cpu, 3) for name, each in taken.items()},
        gigabytes_above_embeddings=round(above, 3),
        gigabytes_target=GIGABYTES_TARGET,
        gigabytes_of_embeddings=round(gigabytes, 3),
        agreement_with_argsort=round(agreed, 5),
        seconds={name: [round(each.mining, 1), round(each.product, 1)] for name, each in taken.items()},
        lists=[TOP_TEXTS, TOP_IMAGES],
        shape=[count, count * TEXTS_EACH, SIZE],
        threads=torch.get_num_threads(),
    )


if __name__ == "__main__":
    main()
