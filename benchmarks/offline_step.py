"""The step of VSRN with the adaptive offline quintuplet loss against its step with online negatives, on the same pairs.

36 regions of 2048, 4 blocks of reasoning, joint space and GRUs of 2048, decoder of 512, vocabulary 10k, 12 tokens a
text, batches of 32; the quick form has a joint space of 768. Offline negatives are drawn by the sampler that training
uses, from lists of a corpus of Flickr8k's size, so that nearly every pair brings two more images and two more texts.

The paper (Table 6) finds 1.46 on a GPU. On a CPU a step is its arithmetic, and there is three times as much of it to
encode; only the decoder and the optimiser have no more to do. So that one sees which part it is, the parts are timed
alone as well, and beside the ratio stands what it would be if the negatives were encoded without gradients (`floor`):
less than that no way to skip the gradients of hinges that are not active can reach. The target counts as met only if
the time on the clock and that of the processors both meet it: beside other work the clock alone can flatter either
step. Shares and floor are of the processors' time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from diptych.training.engine.stage import make_optimiser
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from diptych.data.corpus import Corpus, Integers
from diptych.data.image_reader import Draw
from diptych.data.sampling.offline import OfflineSampler, OfflineSettings
from diptych.data.sampling.pairs import PairBatch, PairReader, PairSampler
from diptych.machine import keep_freed_memory
from diptych.models.layers.region_reasoning import Layout
from diptych.models.matchers.vsrn import VSRN, VSRNSettings
from diptych.models.tower import Tokens
from diptych.models.towers.region.features import RegionFeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.objectives.hinge import Hinge
from diptych.objectives.quintuplet import Quintuplet
from diptych.text.vocabulary import TokenTable
from diptych.training.engine.step import Step
from diptych.training.recipe import Optimiser
from harness import Timing, arguments, finish, interleaved
from plain import FEATURES, VOCABULARY, draw_texts

PAIRS, REGIONS, IMAGES, TEXTS_AN_IMAGE = 32, 36, 6_000, 5
TARGET = 1.5


class DrawnRegions:
    """Regions at random, for whichever images are asked for."""

    def __init__(self) -> None:
        self.skipped: dict[int, str] = {}
        self._random = np.random.default_rng(0)

    def read(self, images: Integers, draw: Draw = ()) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """(images, regions, size), all of them readable."""
        regions = self._random.standard_normal((len(images), REGIONS, FEATURES), dtype=np.float32)
        return regions, np.ones(len(images), np.bool_)


def draw_batches() -> tuple[PairBatch, PairBatch]:
    """The same pairs without and with offline negatives, from lists of negatives at random."""
    random = np.random.default_rng(0)
    texts = IMAGES * TEXTS_AN_IMAGE
    groups = np.repeat(np.arange(IMAGES), TEXTS_AN_IMAGE)
    split = np.full(texts, "train")
    numbers = [str(number) for number in range(texts)]
    corpus = Corpus("drawn", numbers[:IMAGES], np.arange(IMAGES), split[:IMAGES], numbers, groups, split)
    ids, lengths = draw_texts(random, texts)
    inside = np.arange(ids.shape[1]) < lengths[:, None]
    table = TokenTable(ids[inside].astype(np.int32), np.concatenate([[0], np.cumsum(lengths)]))
    settings = OfflineSettings(lists="drawn")
    beyond = random.integers(1, IMAGES, (IMAGES, settings.top_texts))  # how far from the own group
    near_texts = (np.arange(IMAGES)[:, None] + beyond) % IMAGES * TEXTS_AN_IMAGE
    near_images = (groups[:, None] + random.integers(1, IMAGES, (texts, settings.top_images))) % IMAGES
    reader = PairReader(corpus.text_groups, DrawnRegions(), table)
    offline = OfflineSampler(corpus, near_texts, near_images, settings)
    (pairs, *_) = PairSampler(corpus, PAIRS, (0,), offline).epoch(0)
    batch = reader.read(pairs)
    own = int(batch.image_of.max()) + 1
    online = PairBatch(batch.images[:own], batch.image_of, batch.ids[:PAIRS], batch.lengths[:PAIRS], batch.groups)
    return online, batch


def tokens_of(batch: PairBatch) -> Tokens:
    """The batch's texts."""
    return Tokens(torch.from_numpy(batch.ids), torch.from_numpy(batch.lengths))


def parts(matcher: VSRN, online: PairBatch, offline: PairBatch) -> dict[str, Callable[[], object]]:
    """Encoding the images and the texts of either step, and captioning, each there and back."""
    layout_of = Layout.from_regions(normalize(torch.randn(len(online.images), REGIONS, matcher.embedding_dim), dim=2))
    image_of = torch.from_numpy(online.image_of)
    works: dict[str, Callable[[], object]] = {}
    for name, batch in (("online", online), ("offline", offline)):
        works[f"images {name}"] = partial(there_and_back, matcher.encode_images, torch.from_numpy(batch.images))
        works[f"texts {name}"] = partial(there_and_back, matcher.encode_texts, tokens_of(batch))
    assert matcher.captioner is not None
    works["captions"] = partial(there_and_back, matcher.captioner, *layout_of, tokens_of(online), image_of)
    return works


def there_and_back(encode: Callable[..., Tensor], *given: Any) -> None:
    """Encode, and carry a gradient into the weights."""
    encode(*given).sum().backward()  # type: ignore[no-untyped-call]


@torch.no_grad()
def encode_negatives(matcher: VSRN, online: PairBatch, offline: PairBatch) -> None:
    """Encode what only the offline step has, without gradients."""
    matcher.encode_images(torch.from_numpy(offline.images[len(online.images) :]))
    texts = tokens_of(offline)
    matcher.encode_texts(Tokens(texts.ids[PAIRS:], texts.lengths[PAIRS:]))


def shares(times: Mapping[str, Timing], name: str) -> dict[str, float]:
    """The parts of a step, timed alone, against its time; what is missing is scores, clipping and the optimiser."""
    alone = {"images": f"images {name}", "texts": f"texts {name}", "captions": "captions"}
    return {part: round(times[work].cpu / times[name].cpu, 3) for part, work in alone.items()}


def main() -> None:
    """Compare the two steps, interleaved with their parts."""
    options = arguments(__doc__)
    keep_freed_memory()
    torch.manual_seed(0)
    joint = 768 if options.quick else 2048
    online, offline = draw_batches()
    image, text = RegionFeatureSettings(shape=(REGIONS, FEATURES)), GRUSettings(hidden=joint)
    matcher = VSRNSettings(joint=joint, image=image, text=text, words=VOCABULARY).build().train()
    optimiser, device = make_optimiser(matcher, Optimiser()), torch.device("cpu")
    works: dict[str, Callable[[], object]] = {
        "online": partial(Step(matcher, Hinge(), optimiser, device, clip=2.0), online),
        "offline": partial(Step(matcher, Quintuplet(), optimiser, device, clip=2.0), offline),
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
