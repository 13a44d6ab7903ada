"""Compare `evaluate_embeddings` of 5,000 images and 25,000 texts with the bare matrix product in the same tiles.

The call checks its input, normalises the rows, ranks in both directions and draws 1,000 bootstrap samples, once for
torch tensors and once for NumPy arrays. The product computes every score of the same tiles and does nothing else. With
`--quick`, there are half as many images and texts.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from diptych.evaluation.arrays import evaluate_embeddings
from diptych.evaluation.metrics.tiles import BLOCK
from diptych.evaluation.protocols.retrieval import RetrievalResult
from harness import arguments, finish, interleaved
from ranking import (
    IMAGES,
    SAMPLED_IMAGES,
    SAMPLED_TEXTS,
    SIZE,
    TEXTS_EACH,
    embeddings,
    sorted_image_ranks,
    sorted_text_ranks,
)

IMAGES_AT_ONCE = 512
TEXTS_AT_ONCE = BLOCK // IMAGES_AT_ONCE
TARGET = 1.5


def product(images: Tensor, texts: Tensor) -> None:
    """Every score, tile by tile."""
    for columns in texts.split(TEXTS_AT_ONCE):
        for rows in images.split(IMAGES_AT_ONCE):
            rows @ columns.T


def sampled_ranks(result: RetrievalResult) -> np.ndarray:
    """The ranks of the first images and texts, which are compared with plain sorting."""
    (found,) = result.folds
    return np.array([*found.images[:SAMPLED_IMAGES], *found.texts[:SAMPLED_TEXTS]])


def main() -> None:
    """Compare the times, then check that the ranks agree with plain sorting."""
    options = arguments(__doc__)
    torch.manual_seed(0)
    images, texts = embeddings(IMAGES // 2 if options.quick else IMAGES)
    arrays = images.numpy(), texts.numpy()
    groups = np.repeat(np.arange(len(images)), TEXTS_EACH)

    results: list[RetrievalResult] = []
    times = interleaved(
        {
            "torch": lambda: results.append(evaluate_embeddings(images, texts, text_groups=groups)),
            "product": lambda: product(images, texts),
            "numpy": lambda: results.append(evaluate_embeddings(*arrays, text_groups=groups)),
        },
        rounds=4 if options.quick else 8,
    )
    double = images.double().numpy(), texts.double().numpy()
    expected = np.array([*sorted_image_ranks(*double), *sorted_text_ranks(*double)])
    agreement = min(np.mean(sampled_ranks(result) == expected) for result in results)
    ratios = {name: times[name].wall / times["product"].wall for name in ("torch", "numpy")}
    finish(
        "evaluate_embeddings",
        ratio=max(ratios.values()),
        target=TARGET,
        # below 1, because scores in float32 may swap two texts that differ in float64
        ok=max(ratios.values()) <= TARGET and agreement > 0.99,
        ratios={name: round(ratio, 3) for name, ratio in ratios.items()},
        cpu_ratios={name: round(times[name].cpu / times["product"].cpu, 3) for name in ratios},
        agreement_with_argsort=round(float(agreement), 4),
        seconds={name: round(timing.wall, 3) for name, timing in times.items()},
        cpu_seconds={name: round(timing.cpu, 3) for name, timing in times.items()},
        draws=results[0].intervals.draws,
        shape=[len(images), len(texts), SIZE],
        threads=torch.get_num_threads(),
    )


if __name__ == "__main__":
    main()
