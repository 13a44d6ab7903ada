"""SCAN's and BFAN's scoring against a loop over captions and against the bare product of all regions and all words.

The loop is what the originals do, in float32: a caption at a time, against all images, with the attended vectors
formed. A training step is the scoring, the max of hinges and all gradients to both encodings.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, leaky_relu, normalize

from diptych.models.bfan import BFANSettings
from diptych.models.region_towers.features import RegionFeatureSettings
from diptych.models.scan import SCANSettings
from harness import arguments, finish, interleaved

ITEMS, REGIONS, WORDS, SIZE = 128, 36, 12, 1024
TARGET, SPEEDUP_TARGET, STEP_TARGET = 1.5, 5, 3
MARGIN = 0.2


def attended(queries: Tensor, context: Tensor, smooth: float, focal: bool) -> Tensor:
    """The attended vector of each query, as the originals form it: (images, queries, size)."""
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
    """A caption at a time against all images: (images, texts)."""
    columns = [one(images, text.expand(len(images), *text.shape).contiguous()) for text in texts]
    return torch.stack(columns, 1)


def plain_scan(images: Tensor, words: Tensor, *, direction: str, smooth: float, lse: float) -> Tensor:
    """SCAN's score of all images and one caption that is repeated for each: (images,)."""
    queries, context = (words, images) if direction == "t2i" else (images, words)
    return (lse * plain_cosines(queries, context, smooth, False)).exp().sum(1).log() / lse


def plain_bfan(images: Tensor, words: Tensor) -> Tensor:
    """BFAN's score of all images and one caption that is repeated for each: (images,)."""
    to_images = plain_cosines(words, images, 20.0, True).mean(1)
    return to_images + plain_cosines(images, words, 20.0, True).mean(1)


def hinges(scores: Tensor) -> Tensor:
    """The max of hinges, both ways."""
    own = torch.eye(len(scores), dtype=torch.bool)
    positive = scores.diagonal()
    texts = (MARGIN + scores - positive[:, None]).clamp(min=0).masked_fill(own, 0)
    images = (MARGIN + scores - positive[None]).clamp(min=0).masked_fill(own, 0)
    return texts.amax(1).sum() + images.amax(0).sum()


def step(score: Callable[[Tensor, Tensor], Tensor], images: Tensor, texts: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of one training step's scoring to both encodings."""
    images, texts = images.clone().requires_grad_(), texts.clone().requires_grad_()
    hinges(score(images, texts)).backward()
    assert images.grad is not None
    assert texts.grad is not None
    return images.grad, texts.grad


def main() -> None:
    """Check that the scores agree, then compare the times."""
    options = arguments(__doc__)
    torch.manual_seed(0)
    images = normalize(torch.randn(ITEMS, REGIONS, SIZE), dim=2)
    texts = normalize(torch.randn(ITEMS, WORDS, SIZE) + 2 * images[:, :WORDS], dim=2)
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
    with torch.no_grad():
        far = {name: (ours[name](images, texts) - plain[name](images, texts)).abs().max().item() for name in ours}
        fast = {"product": lambda: torch.mm(regions, words.t(), out=whole)}
        fast |= {name: partial(ours[name], images, texts) for name in ours}
        times = interleaved(fast, rounds=8 if options.quick else 20)
        slow = {f"{name}_loop": partial(plain[name], images, texts) for name in plain}
        times |= interleaved(slow, rounds=1 if options.quick else 3)
    steps = {
        f"{name}_{kind}": partial(step, score[name], images, texts)
        for name in ("t2i", "i2t")
        for kind, score in (("step", ours), ("step_loop", plain))
    }
    times |= interleaved(steps, rounds=1 if options.quick else 3)
    ratios = {name: times[name].wall / times["product"].wall for name in ours}
    speedups = {name: times[f"{name}_loop"].wall / times[name].wall for name in ours}
    step_speedups = {name: times[f"{name}_step_loop"].wall / times[f"{name}_step"].wall for name in ("t2i", "i2t")}
    finish(
        "cross_attention",
        ratio=max(ratios.values()),
        target=TARGET,
        ok=max(ratios.values()) <= TARGET
        and min(speedups.values()) >= SPEEDUP_TARGET
        and min(step_speedups.values()) >= STEP_TARGET
        and max(far.values()) < 1e-5,
        ratios={name: round(ratio, 3) for name, ratio in ratios.items()},
        speedups_over_loop={name: round(speedup, 1) for name, speedup in speedups.items()},
        speedup_target=SPEEDUP_TARGET,
        step_speedups_over_loop={name: round(speedup, 1) for name, speedup in step_speedups.items()},
        step_speedup_target=STEP_TARGET,
        largest_difference={name: float(f"{value:.1e}") for name, value in far.items()},
        seconds={name: round(timing.wall, 3) for name, timing in times.items()},
        cpu_seconds={name: round(timing.cpu, 3) for name, timing in times.items()},
        shape=[ITEMS, REGIONS, WORDS, SIZE],
        threads=torch.get_num_threads(),
    )


if __name__ == "__main__":
    main()
