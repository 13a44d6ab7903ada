"""Compare ranking 5,000 images and 25,000 texts with the bare matrix product and with sorting per query.

The bare product is the faster of two variants: in one piece, and in blocks of 1,000 texts. Sorting per query is what
the original code does, in float64; it is timed on the first queries and scaled to all of them. Sorting in float32 is
timed as well; its products alone take less time, so there is less to gain.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from diptych.evaluation.metrics.ranks import ranks
from diptych.evaluation.metrics.scores import embedding_score
from harness import arguments, finish, interleaved

IMAGES, TEXTS_EACH, SIZE = 5000, 5, 1024
TEXTS = IMAGES * TEXTS_EACH
SAMPLED_IMAGES, SAMPLED_TEXTS = 60, 300
TARGET, SPEEDUP_TARGET = 1.5, 20


def embeddings(count: int = IMAGES) -> tuple[Tensor, Tensor]:
    """Images, and texts that are somewhat similar to their image, so that ranks are neither all 1 nor random."""
    images = normalize(torch.randn(count, SIZE))
    texts = normalize(images.repeat_interleave(TEXTS_EACH, 0) + 0.3 * torch.randn(count * TEXTS_EACH, SIZE))
    return images, texts


def product_in_pieces(images: Tensor, texts: Tensor) -> None:
    """Every score, 1,000 texts at a time."""
    for part in texts.split(1000):
        images @ part.T


def sorted_image_ranks(images: np.ndarray, texts: np.ndarray) -> list[int]:
    """The rank of each sampled image's best text, by sorting all texts."""
    found = []
    for image in range(SAMPLED_IMAGES):
        order = np.argsort(images[image] @ texts.T)[::-1]
        positives = range(TEXTS_EACH * image, TEXTS_EACH * (image + 1))
        found.append(1 + min(int(np.flatnonzero(order == text)[0]) for text in positives))
    return found


def sorted_text_ranks(images: np.ndarray, texts: np.ndarray) -> list[int]:
    """The rank of each sampled text's image, by sorting all images; the texts of an image share a product."""
    found = []
    for image in range(SAMPLED_TEXTS // TEXTS_EACH):
        queries = texts[TEXTS_EACH * image : TEXTS_EACH * (image + 1)]
        for scores in queries @ images.T:
            found.append(1 + int(np.flatnonzero(np.argsort(scores)[::-1] == image)[0]))
    return found


def main() -> None:
    """Check that the ranks agree, then compare the times."""
    options = arguments(__doc__)
    torch.manual_seed(0)
    images, texts = embeddings()
    single = images.numpy(), texts.numpy()
    double = images.double().numpy(), texts.double().numpy()
    groups = np.arange(IMAGES), np.arange(TEXTS) // TEXTS_EACH
    score = embedding_score(lambda rows, columns: rows @ columns.T, images, texts)

    found = ranks(score, *groups)
    agreement = np.mean(
        [
            *(found.images[:SAMPLED_IMAGES] == sorted_image_ranks(*double)),
            *(found.texts[:SAMPLED_TEXTS] == sorted_text_ranks(*double)),
        ]
    )
    whole = torch.empty(IMAGES, TEXTS)
    times = interleaved(
        {
            "ours": lambda: ranks(score, *groups),
            "product": lambda: torch.mm(images, texts.T, out=whole),
            "product_in_pieces": lambda: product_in_pieces(images, texts),
            "argsort_images": lambda: sorted_image_ranks(*double),
            "argsort_texts": lambda: sorted_text_ranks(*double),
            "argsort_images_float32": lambda: sorted_image_ranks(*single),
            "argsort_texts_float32": lambda: sorted_text_ranks(*single),
        },
        rounds=3 if options.quick else 10,
    )
    bare = min(times["product"].wall, times["product_in_pieces"].wall)
    bare_cpu = min(times["product"].cpu, times["product_in_pieces"].cpu)
    sorting, sorting_single = (
        times[f"argsort_images{kind}"].wall * IMAGES / SAMPLED_IMAGES
        + times[f"argsort_texts{kind}"].wall * TEXTS / SAMPLED_TEXTS
        for kind in ("", "_float32")
    )
    ratio, speedup = times["ours"].wall / bare, sorting / times["ours"].wall
    finish(
        "ranking",
        ratio=ratio,
        target=TARGET,
        # below 1, because scores in float32 may swap two texts that differ in float64
        ok=ratio <= TARGET and speedup >= SPEEDUP_TARGET and agreement > 0.99,
        speedup_over_argsort=round(speedup, 1),
        speedup_target=SPEEDUP_TARGET,
        speedup_over_argsort_in_float32=round(sorting_single / times["ours"].wall, 1),
        cpu_ratio=round(times["ours"].cpu / bare_cpu, 3),
        agreement_with_argsort=round(float(agreement), 4),
        seconds={name: round(timing.wall, 3) for name, timing in times.items()},
        cpu_seconds={name: round(timing.cpu, 3) for name, timing in times.items()},
        argsort_seconds_scaled={"float64": round(sorting, 1), "float32": round(sorting_single, 1)},
        argsort_sample={"images": SAMPLED_IMAGES, "texts": SAMPLED_TEXTS},
        shape=[IMAGES, TEXTS, SIZE],
        threads=torch.get_num_threads(),
    )


if __name__ == "__main__":
    main()
