"""Compare SCAN's and BFAN's scoring with a loop over captions and with the bare product of all regions and words.

The loop is that of the original implementations, in float32: one caption at a time against all images, with explicit
attended vectors; it is timed on the first captions and scaled to all of them. A training step consists of the scoring,
the max of hinges and the gradients of both encodings. All scores of SCAN must agree with the loop; nearly all of
BFAN's, which drops or keeps each attention weight, a decision that rounding can flip.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, leaky_relu, normalize

from diptych.machine import keep_freed_memory
from diptych.models.matchers.bfan import BFANSettings
from diptych.models.matchers.scan import SCANSettings
from diptych.models.towers.region.features import RegionFeatureSettings
from harness import arguments, finish, interleaved

ITEMS, REGIONS, WORDS, SIZE = 128, 36, 12, 1024
TARGET, SPEEDUP_TARGET, STEP_TARGET = 1.5, 5, 3
MARGIN = 0.2
CAPTIONS = 8  # that the loop is timed on


def attended(queries: Tensor, context: Tensor, smooth: float, focal: bool) -> Tensor:
    """The attended vector of each query, as the original code computes it: (images, queries, size)."""
    scores = leaky_relu(torch.bmm(context, queries.transpose(1, 2)), 0.1)  # (images, context, queries)
    normed = scores / (scores.pow(2).sum(2, keepdim=True).sqrt() + 1e-8)
    weights = (smooth * normed.transpose(1, 2).contiguous()).softmax(2)  # (images, queries, context)
    if focal:
        kept = (weights * weights.shape[2] - weights.sum(2, keepdim=True) > 0).float()
        weights = weights * kept
        weights = weights / weights.sum(2, keepdim=True)
    return torch.bmm(weights, context)


def plain_cosines(queries: Tensor, context: Tensor, smooth: float, focal: bool) -> Tensor:
    """The cosine of each query with its attended vector: (images, queries)."""
    return cosine_similarity(queries, attended(queries, context, smooth, focal), dim=2)


def loop(images: Tensor, texts: Tensor, one: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """One caption at a time against all images: (images, texts)."""
    columns = [one(images, text.expand(len(images), *text.shape).contiguous()) for text in texts]
    return torch.stack(columns, 1)


def plain_scan(images: Tensor, words: Tensor, *, direction: str, smooth: float, lse: float) -> Tensor:
    """SCAN's scores of all images with one caption, repeated for each image: (images,)."""
    queries, context = (words, images) if direction == "t2i" else (images, words)
    return (lse * plain_cosines(queries, context, smooth, False)).exp().sum(1).log() / lse


def plain_bfan(images: Tensor, words: Tensor) -> Tensor:
    """BFAN's scores of all images with one caption, repeated for each image: (images,)."""
    to_images = plain_cosines(words, images, 20.0, True).mean(1)
    return to_images + plain_cosines(images, words, 20.0, True).mean(1)


def hinges(scores: Tensor) -> Tensor:
    """The max of hinges in both directions; text k belongs to image k, and there may be fewer texts than images."""
    is_positive = torch.eye(*scores.shape, dtype=torch.bool)
    positive, texts = scores.diagonal(), scores.shape[1]
    over_images = (MARGIN + scores - positive).clamp(min=0).masked_fill(is_positive, 0).amax(0)
    over_texts = (MARGIN + scores[:texts] - positive[:, None]).clamp(min=0).masked_fill(is_positive[:texts], 0).amax(1)
    return over_images.sum() + over_texts.sum()


def step(score: Callable[[Tensor, Tensor], Tensor], images: Tensor, texts: Tensor) -> None:
    """The scoring of one training step, with the gradients of both encodings."""
    images, texts = images.clone().requires_grad_(), texts.clone().requires_grad_()
    hinges(score(images, texts)).backward()


def main() -> None:
    """Check that the scores agree, then compare the times."""
    options = arguments(__doc__)
    keep_freed_memory()  # as every command does
    torch.manual_seed(0)
    images = normalize(torch.randn(ITEMS, REGIONS, SIZE), dim=2)
    texts = normalize(torch.randn(ITEMS, WORDS, SIZE) + 2 * images[:, :WORDS], dim=2)
    few = texts[:CAPTIONS]
    tower = RegionFeatureSettings(shape=(REGIONS, 1))
    ours = {
        "t2i": SCANSettings(direction="t2i", smooth=9.0, lse=6.0, image=tower, words=1).build().score,
        "i2t": SCANSettings(direction="i2t", smooth=4.0, lse=5.0, image=tower, words=1).build().score,
        "bfan": BFANSettings(focal="equal", image=tower, words=1).build().score,
    }
    plain: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "t2i": partial(loop, one=partial(plain_scan, direction="t2i", smooth=9.0, lse=6.0)),
        "i2t": partial(loop, one=partial(plain_scan, direction="i2t", smooth=4.0, lse=5.0)),
        "bfan": partial(loop, one=plain_bfan),
    }
    regions, words = images.flatten(0, 1), texts.flatten(0, 1)
    whole = torch.empty(len(regions), len(words))
    works: dict[str, Callable[[], object]] = {"product": lambda: torch.mm(regions, words.t(), out=whole)}
    works |= {name: partial(score, images, texts) for name, score in ours.items()}
    works |= {f"{name}_loop": partial(score, images, few) for name, score in plain.items()}
    steps: dict[str, Callable[[], object]] = {}
    for name in ("t2i", "i2t"):
        steps[f"{name}_step"] = partial(step, ours[name], images, texts)
        steps[f"{name}_step_loop"] = partial(step, plain[name], images, few)
    with torch.no_grad():
        agreement = {
            name: ((ours[name](images, few) - plain[name](images, few)).abs() < 1e-5).double().mean().item()
            for name in ours
        }
        times = interleaved(works, rounds=7 if options.quick else 25)
    times |= interleaved(steps, rounds=2 if options.quick else 5)

    ratios = {name: times[name].wall / times["product"].wall for name in ours}
    scale = ITEMS / CAPTIONS
    speedups = {name: scale * times[f"{name}_loop"].wall / times[name].wall for name in (*ours, "t2i_step", "i2t_step")}
    finish(
        "cross_attention",
        ratio=max(ratios.values()),
        target=TARGET,
        ok=max(ratios.values()) <= TARGET
        and min(speedups[name] for name in ours) >= SPEEDUP_TARGET
        and min(speedups["t2i_step"], speedups["i2t_step"]) >= STEP_TARGET
        and agreement["t2i"] == agreement["i2t"] == 1
        and agreement["bfan"] > 0.98,
        ratios={name: round(ratio, 3) for name, ratio in ratios.items()},
        cpu_ratios={name: round(times[name].cpu / times["product"].cpu, 3) for name in ours},
        speedups_over_loop={name: round(speedup, 1) for name, speedup in speedups.items()},
        speedup_targets={"scoring": SPEEDUP_TARGET, "step": STEP_TARGET},
        agreement_with_loop={name: round(share, 4) for name, share in agreement.items()},
        seconds={name: round(timing.wall, 4) for name, timing in times.items()},
        cpu_seconds={name: round(timing.cpu, 4) for name, timing in times.items()},
        loop_captions=CAPTIONS,
        shape=[ITEMS, REGIONS, WORDS, SIZE],
        threads=torch.get_num_threads(),
    )


if __name__ == "__main__":
    main()
