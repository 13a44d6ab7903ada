"""Compare a VSRN step with the adaptive offline quintuplet loss with a step with online negatives, on the same pairs.

36 regions of size 2048, 4 reasoning blocks, embeddings and GRUs of 2048, decoder of 512, vocabulary 10k, 12 tokens per
text, batches of 32; with `--quick`, embeddings of 768. Offline negatives are drawn by the sampler of the training from
lists for a corpus of Flickr8k's size, so nearly every pair brings two more images and two more texts.

The paper (Table 6) reports 1.46 on a GPU. On a CPU the time of a step is that of its arithmetic, and there is three
times as much to encode; only the decoder and the optimiser have no more to do. The parts of the steps are therefore
timed by themselves as well. `floor` is the ratio if the negatives were encoded without gradients, a lower bound for any
way of skipping the gradients of inactive hinges. The target is met only if both wall time and CPU time meet it, because
on a busy machine wall time alone can favour either step. Shares and `floor` are computed from CPU time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from diptych.data.corpus import Corpus, Integers
from diptych.data.image_reader import Draw
from diptych.data.sampling.batch import PairBatch, PairReader
from diptych.data.sampling.offline import OfflineSampler, OfflineSettings
from diptych.data.sampling.pairs import PairSampler
from diptych.machine import keep_freed_memory
from diptych.models.layers.region_reasoning import Layout
from diptych.models.matchers.vsrn import VSRN, VSRNSettings
from diptych.models.tower import Tokens
from diptych.models.towers.region.features import RegionFeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.objectives.hinge import Hinge
from diptych.objectives.quintuplet import Quintuplet
from diptych.text.tokenisers.token_table import TokenTable
from diptych.training.engine.optimiser import make_optimiser
from diptych.training.engine.step import Step
from diptych.training.needs.offline import Offline
from diptych.training.recipe import Optimiser
from harness import Timing, arguments, finish, interleaved
from plain import FEATURES, VOCABULARY, draw_texts

PAIRS, REGIONS, IMAGES, TEXTS_PER_IMAGE = 32, 36, 6_000, 5
TARGET = 1.5


class DrawnRegions:
    """Reads random regions for any image."""

    def __init__(self) -> None:
        self.skipped: dict[int, str] = {}
        self._random = np.random.default_rng(0)

    def read(self, images: Integers, draw: Draw = ()) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """(images, regions, size), all of them readable."""
        regions = self._random.standard_normal((len(images), REGIONS, FEATURES), dtype=np.float32)
        return regions, np.ones(len(images), np.bool_)


def draw_batches() -> tuple[PairBatch, PairBatch, Offline]:
    """The same pairs without and with offline negatives, drawn from random lists, and the need that scores these."""
    random = np.random.default_rng(0)
    texts = IMAGES * TEXTS_PER_IMAGE
    groups = np.repeat(np.arange(IMAGES), TEXTS_PER_IMAGE)
    split = np.full(texts, "train")
    numbers = [str(number) for number in range(texts)]
    corpus = Corpus("drawn", numbers[:IMAGES], np.arange(IMAGES), split[:IMAGES], numbers, groups, split)
    ids, lengths = draw_texts(random, texts)
    inside = np.arange(ids.shape[1]) < lengths[:, None]
    table = TokenTable(ids[inside].astype(np.int32), np.concatenate([[0], np.cumsum(lengths)]))
    settings = OfflineSettings(lists="drawn")
    offsets = random.integers(1, IMAGES, (IMAGES, settings.top_texts))  # to another group
    near_texts = (np.arange(IMAGES)[:, None] + offsets) % IMAGES * TEXTS_PER_IMAGE
    near_images = (groups[:, None] + random.integers(1, IMAGES, (texts, settings.top_images))) % IMAGES
    reader = PairReader(corpus.text_groups, DrawnRegions(), table)
    offline = OfflineSampler(corpus, near_texts, near_images, settings)
    (pairs, *_) = PairSampler(corpus, PAIRS, (0,), epoch_extensions=[offline]).epoch(0)
    batch = reader.read(pairs)
    images = int(batch.image_of.max()) + 1
    ids, lengths = batch.ids[:PAIRS], batch.lengths[:PAIRS]
    online = PairBatch(batch.images[:images], batch.image_of, ids, lengths, batch.text_of, batch.groups)
    return online, batch, Offline(offline)


def batch_tokens(batch: PairBatch) -> Tokens:
    """The texts of a batch."""
    return Tokens(torch.from_numpy(batch.ids), torch.from_numpy(batch.lengths))


def parts(matcher: VSRN, online: PairBatch, offline: PairBatch) -> dict[str, Callable[[], object]]:
    """Encoding the images and texts of both steps, and captioning, each with its backward pass."""
    layout = Layout.from_regions(normalize(torch.randn(len(online.images), REGIONS, matcher.embedding_dim), dim=2))
    image_of = torch.from_numpy(online.image_of)
    works: dict[str, Callable[[], object]] = {}
    for name, batch in (("online", online), ("offline", offline)):
        works[f"images {name}"] = partial(forward_and_backward, matcher.encode_images, torch.from_numpy(batch.images))
        works[f"texts {name}"] = partial(forward_and_backward, matcher.encode_texts, batch_tokens(batch))
    assert matcher.captioner is not None
    works["captions"] = partial(forward_and_backward, matcher.captioner, *layout, batch_tokens(online), image_of)
    return works


def forward_and_backward(encode: Callable[..., Tensor], *inputs: Any) -> None:
    """Encode, and compute the gradients of the weights."""
    encode(*inputs).sum().backward()


@torch.no_grad()
def encode_negatives(matcher: VSRN, online: PairBatch, offline: PairBatch) -> None:
    """Encode the negatives of the offline step, without gradients."""
    matcher.encode_images(torch.from_numpy(offline.images[len(online.images) :]))
    texts = batch_tokens(offline)
    matcher.encode_texts(Tokens(texts.ids[PAIRS:], texts.lengths[PAIRS:]))


def shares(times: Mapping[str, Timing], name: str) -> dict[str, float]:
    """Each part's share of the time of a step; the rest is scores, clipping and the optimiser."""
    alone = {"images": f"images {name}", "texts": f"texts {name}", "captions": "captions"}
    return {part: round(times[work].cpu / times[name].cpu, 3) for part, work in alone.items()}


def main() -> None:
    """Compare the two steps, interleaved with their parts."""
    options = arguments(__doc__)
    keep_freed_memory()
    torch.manual_seed(0)
    joint = 768 if options.quick else 2048
    online, offline, need = draw_batches()
    image, text = RegionFeatureSettings(shape=(REGIONS, FEATURES)), GRUSettings(hidden=joint)
    matcher = VSRNSettings(joint=joint, image=image, text=text, words=VOCABULARY).build().train()
    optimiser, device = make_optimiser(matcher, Optimiser()), torch.device("cpu")
    works: dict[str, Callable[[], object]] = {
        "online": partial(Step(matcher, Hinge(), optimiser, device, clip=2.0), online),
        "offline": partial(Step(matcher, Quintuplet(), optimiser, device, clip=2.0, needs=(need,)), offline),
    }
    times = interleaved(works, 2 if options.quick else 3)
    works = {"negatives forward": partial(encode_negatives, matcher, online, offline)}
    times |= interleaved({**works, **parts(matcher, online, offline)}, 1 if options.quick else 3)
    ratio = times["offline"].wall / times["online"].wall
    cpu_ratio = times["offline"].cpu / times["online"].cpu
    finish(
        "offline_step",
        ratio=ratio,
        target=TARGET,
        ok=max(ratio, cpu_ratio) <= TARGET,
        cpu_ratio=round(cpu_ratio, 3),
        floor=round(1 + times["negatives forward"].cpu / times["online"].cpu, 3),
        images={"online": len(online.images), "offline": len(offline.images)},
        texts={"online": len(online.ids), "offline": len(offline.ids)},
        shares={name: shares(times, name) for name in ("online", "offline")},
        milliseconds={name: round(1000 * timing.wall) for name, timing in times.items()},
        cpu_milliseconds={name: round(1000 * timing.cpu) for name, timing in times.items()},
        joint=joint,
        pairs=PAIRS,
    )


if __name__ == "__main__":
    main()
