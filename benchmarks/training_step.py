"""Compare a VSE++ training step with a plain step in the style of the original code, and with its bare products.

2048-d stored features, word embedding 300, GRU 1024, vocabulary 10k, batch 128, 12 tokens per text with start and end.
Words are drawn with probability proportional to 1 / rank^1.2, so that texts share about as many words and prefixes as
Flickr8k's captions (see `plain.draw_texts`). Shared words and prefixes are computed once, so the speedup depends on
them: the ratio for probabilities proportional to 1 / rank, where texts share less (41% distinct words, 81% distinct
prefixes that continue), is reported as well.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from diptych.data.sampling.batch import PairBatch
from diptych.machine import keep_freed_memory
from diptych.models.layers.prefix_gru import PrefixTree
from diptych.models.matchers.vse import VSE, VSESettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.objectives.hinge import Hinge
from diptych.training.engine.optimiser import make_optimiser
from diptych.training.engine.step import Step
from diptych.training.recipe import Optimiser
from harness import Timing, arguments, finish, interleaved
from plain import FEATURES, JOINT, PAIRS, VOCABULARY, WORD, PlainStep, draw_texts

SPEED_TARGET, FRACTION_TARGET = 1.5, 0.5


def batches(count: int, exponent: float = 1.2) -> list[PairBatch]:
    """Pairs of distinct images with texts of Zipf-distributed words."""
    random = np.random.default_rng(0)
    made = []
    for _ in range(count):
        ids, lengths = draw_texts(random, PAIRS, exponent)
        images = random.standard_normal((PAIRS, FEATURES), dtype=np.float32)
        rows = np.arange(PAIRS)
        made.append(PairBatch(images, rows, ids, lengths, rows, groups=rows))
    return made


def longest_first(batch: PairBatch) -> tuple[Tensor, Tensor, Tensor]:
    """A batch as the plain step expects it: images, ids and lengths, sorted by length."""
    order = np.argsort(-batch.lengths, kind="stable")
    images, ids, lengths = batch.images[order], batch.ids[order], batch.lengths[order]
    return torch.from_numpy(images), torch.from_numpy(ids), torch.from_numpy(lengths)


class OurStep:
    """The step of Diptych."""

    def __init__(self) -> None:
        settings = VSESettings(image=FeatureSettings(shape=(FEATURES,)), words=VOCABULARY)
        self.matcher = VSE(settings).train()
        optimiser = make_optimiser(self.matcher, Optimiser())
        self.step = Step(self.matcher, Hinge(), optimiser, torch.device("cpu"), clip=2.0)

    def __call__(self, batch: PairBatch) -> float:
        """Train on one batch and return its loss."""
        loss, _ = self.step(batch)
        return loss.total.item()


class BareProducts:
    """The matrix products that a step requires, and nothing else, on prepared arrays."""

    def __init__(self, made: list[PairBatch]) -> None:
        self.shapes = {id(batch): self.needed(batch) for batch in made}
        self.arrays: dict[tuple[int, int], Tensor] = {}
        for shapes in self.shapes.values():
            for rows, inner, columns in shapes:
                for shape in ((rows, inner), (inner, columns), (rows, columns)):
                    self.arrays.setdefault(shape, torch.rand(shape))

    @staticmethod
    def needed(batch: PairBatch) -> list[tuple[int, int, int]]:
        """The shape (rows, inner, columns) of each product, counting each distinct word and prefix once."""
        tree = PrefixTree.from_ids(torch.from_numpy(batch.ids), torch.from_numpy(batch.lengths))
        words, gates = len(tree.distinct), 3 * JOINT
        shapes = [(words, WORD, gates), (words, gates, WORD), (gates, words, WORD)]
        for inner in tree.inner:
            shapes += [(len(inner), JOINT, gates), (len(inner), gates, JOINT)]
        shapes.append((gates, sum(len(inner) for inner in tree.inner), JOINT))
        shapes += [(PAIRS, FEATURES, JOINT), (JOINT, PAIRS, FEATURES)]
        return [*shapes, (PAIRS, JOINT, PAIRS), (PAIRS, PAIRS, JOINT), (PAIRS, PAIRS, JOINT)]

    def __call__(self, batch: PairBatch) -> None:
        """Compute the products of one batch."""
        for rows, inner, columns in self.shapes[id(batch)]:
            torch.mm(self.arrays[rows, inner], self.arrays[inner, columns], out=self.arrays[rows, columns])


def main() -> None:
    """Time all three, interleaved."""
    options = arguments(__doc__)
    keep_freed_memory()  # for all three
    torch.manual_seed(0)
    made = batches(4)
    rarer = batches(2, exponent=1.0)
    plain, ours, bare = PlainStep(), OurStep(), BareProducts(made)
    rounds = 5 if options.quick else 15
    times: dict[str, Timing] = interleaved(
        {
            "plain": lambda: [plain(*longest_first(batch)) for batch in made],
            "ours": lambda: [ours(batch) for batch in made],
            "products": lambda: [bare(batch) for batch in made],  # type: ignore[func-returns-value]
            "plain_rarer_words": lambda: [plain(*longest_first(batch)) for batch in rarer],
            "ours_rarer_words": lambda: [ours(batch) for batch in rarer],
        },
        rounds,
    )
    speed = times["plain"].wall / times["ours"].wall
    fraction = times["products"].wall / times["ours"].wall
    finish(
        "training_step",
        ratio=speed,
        target=SPEED_TARGET,
        ok=speed >= SPEED_TARGET and fraction >= FRACTION_TARGET,
        fraction_of_bare_products=round(fraction, 3),
        fraction_target=FRACTION_TARGET,
        ratio_with_rarer_words=round(times["plain_rarer_words"].wall / times["ours_rarer_words"].wall, 3),
        milliseconds={name: round(1000 * times[name].wall / len(made), 1) for name in ("plain", "ours", "products")},
        cpu_milliseconds={name: round(1000 * times[name].cpu / len(made), 1) for name in ("plain", "ours", "products")},
    )


if __name__ == "__main__":
    main()
