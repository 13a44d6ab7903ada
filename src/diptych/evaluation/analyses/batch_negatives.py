"""How hard the negatives of a batch are: the prediction for random batches, and a measurement with a model's scores.

    P(no negative of a batch of M in the top) = q^(M - 1)        (Faghri et al. 2018, section 2.3, at percentile q)

The paper states that this falls below 1% for M >= 44 at q = 0.9 and for M >= 6,905 at q = 0.999. Its 44 is the number
of negatives: in its formula the query's own text takes one position, so the batch is 45. Its 6,905 is the number of
negatives for 0.1%; for 1% it is 4,603, a batch of 4,604. `negatives_for` returns the paper's figures, `batch_for` the
batch sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diptych.data.corpus import Integers
from diptych.errors import ScoreError
from diptych.evaluation.metrics.scores import Score
from diptych.evaluation.metrics.tiles import BLOCK, check_positives

LEVEL = 0.95
RESAMPLES = 1000


def miss_probability(batch: int, percentile: float) -> float:
    """The probability that no negative of a query in a batch lies beyond a percentile of all its negatives.

    >>> round(miss_probability(45, 0.9), 4)
    0.0097
    """
    _check_percentile(percentile)
    if batch < 1:
        raise ScoreError(f"a batch of {batch} pairs; take at least 1")
    return float(percentile ** (batch - 1))


def negatives_for(percentile: float, at_most: float = 0.01) -> int:
    """The smallest number of negatives that misses the hardest ones with at most this probability.

    >>> negatives_for(0.9), negatives_for(0.999, at_most=0.001)
    (44, 6905)
    """
    _check_percentile(percentile)
    if not 0 < at_most < 1:
        raise ScoreError(f"a probability of {at_most}; take one between 0 and 1, such as 0.01")
    count = max(1, math.floor(math.log(at_most) / math.log(percentile)) - 1)
    while percentile**count > at_most:  # do not rely on the last bit of the logarithms
        count += 1
    return count


def batch_for(percentile: float, at_most: float = 0.01) -> int:
    """The smallest batch with that many negatives: one more, for the query's own pair.

    >>> batch_for(0.9), batch_for(0.999)
    (45, 4604)
    """
    return negatives_for(percentile, at_most) + 1


@dataclass(frozen=True)
class Misses:
    """One direction: the share of queries that missed, its interval, and the mean percentile of the hardest negative.

    The percentile of a negative is the share of all of its query's negatives that score lower.
    """

    share: float
    interval: tuple[float, float]
    hardest: float
    queries: int


@dataclass(frozen=True)
class Sampling:
    """How often batches drawn from a corpus missed the hardest negatives, with the prediction for random batches."""

    batch: int
    percentile: float
    draws: int
    seed: int
    predicted: float
    predicted_hardest: float
    image_to_text: Misses
    text_to_image: Misses

    def to_json(self) -> dict[str, Any]:
        """Everything under stable names."""
        return {**asdict(self), "level": LEVEL}


@torch.no_grad()
def measured_misses(
    score: Score,
    image_groups: Integers,
    text_groups: Integers,
    *,
    batch: int = 128,
    percentile: float = 0.9,
    draws: int = 10,
    seed: int = 0,
    block: int = BLOCK,
) -> Sampling:
    """Draw batches as training does, and measure how hard the hardest negative of each query in them is.

    Batches are drawn independently of the scores, so the shares agree with the prediction except for ties, for pairs
    of one group, and for images that are drawn more often because they have many texts. The scores decide how much
    batches vary: queries that find the same negatives hard miss together. Therefore the interval resamples batches; it
    has no width if none missed. Memory use is that of one block of scores; each batch takes two passes over the corpus
    in each direction.
    """
    predicted = miss_probability(batch, percentile)
    if (score.images, score.texts) != (len(image_groups), len(text_groups)):
        raise ScoreError("scores and groups differ in number; make both from the same corpus and split")
    check_positives(np.arange(len(image_groups)), image_groups, np.arange(len(text_groups)), text_groups)
    if not 2 <= batch <= len(text_groups) or draws < 1:
        most = len(text_groups)
        raise ScoreError(
            f"{draws} batches of {batch} pairs from {most} texts; draw 1 batch or more, of 2 to {most} pairs"
        )
    by_image: list[_BatchMisses] = []
    by_text: list[_BatchMisses] = []
    for images, texts in _draw_batches(image_groups, text_groups, batch, draws, seed):
        groups = text_groups[texts]  # of the queries, in both directions
        for direction, tile, answer_groups, answers in (
            (by_image, _image_tile(score, images), text_groups, texts),
            (by_text, _text_tile(score, texts), image_groups, images),
        ):
            positions = _hardest_positions(tile, groups, answer_groups, answers, max(1, block // batch))
            direction.append(_BatchMisses.count(*positions, percentile))
    random = np.random.default_rng([seed, draws])
    image_to_text, text_to_image = (_summarise(direction, random) for direction in (by_image, by_text))
    hardest = (batch - 1) / batch  # the expected maximum of batch - 1 uniform numbers
    return Sampling(batch, percentile, draws, seed, predicted, hardest, image_to_text, text_to_image)


def _check_percentile(percentile: float) -> None:
    if not 0 < percentile < 1:
        raise ScoreError(f"a percentile of {percentile}; take one between 0 and 1, such as 0.9 for the 90th")


def _draw_batches(
    image_groups: Integers, text_groups: Integers, batch: int, draws: int, seed: int
) -> Iterator[tuple[Integers, Integers]]:
    """Batches of images and texts: distinct texts, each with an image of its group."""
    random = np.random.default_rng(seed)
    order = np.argsort(image_groups, kind="stable")
    first, end = (np.searchsorted(image_groups[order], text_groups, side) for side in ("left", "right"))
    for _ in range(draws):
        texts = random.choice(len(text_groups), batch, replace=False)
        yield order[random.integers(first[texts], end[texts])], texts


# The scores of a batch's queries with a span of all answers: (queries, answers)
_Tile = Callable[[slice], Tensor]


def _image_tile(score: Score, images: Integers) -> _Tile:
    rows = torch.from_numpy(images)
    return lambda span: score.against(span)(rows)


def _text_tile(score: Score, texts: Integers) -> _Tile:
    against = score.against(torch.from_numpy(texts))
    return lambda span: against(span).t()


def _hardest_positions(
    tile: _Tile, query_groups: Integers, answer_groups: Integers, drawn: Integers, width: int
) -> tuple[Integers, Integers]:
    """How many negatives score lower than the hardest one in the batch, and how many negatives there are.

    One entry per query that has a negative in the batch; answers of its own group are no negatives.
    """
    in_batch = np.zeros(len(answer_groups), np.bool_)
    in_batch[drawn] = True
    spans = [slice(start, min(start + width, len(in_batch))) for start in range(0, len(in_batch), width)]
    hardest = torch.full((len(query_groups),), -torch.inf, dtype=torch.float64)  # holds a score of any precision
    negatives, lower = np.zeros((2, len(query_groups)), np.int64)
    for span in spans:
        scores = tile(span)
        if scores.isnan().any():
            raise ScoreError("a score is not a number; evaluate the encodings to see which")
        negative = query_groups[:, None] != answer_groups[span]
        negatives += negative.sum(1)
        usable = torch.from_numpy(negative & in_batch[span]).to(scores.device)
        hardest = torch.maximum(hardest, scores.masked_fill(~usable, -torch.inf).amax(1).cpu().double())
    for span in spans:  # the same tiles again: a score from another product could differ in its last bit
        scores = tile(span)
        below = (scores < hardest.to(scores.dtype).to(scores.device)[:, None]).cpu().numpy()
        lower += (below & (query_groups[:, None] != answer_groups[span])).sum(1)
    has_negative = (query_groups[:, None] != answer_groups[drawn]).any(1)
    return lower[has_negative], negatives[has_negative]


@dataclass(frozen=True)
class _BatchMisses:
    """One batch: its queries, how many of them missed, and the sum of the percentiles of their hardest negatives."""

    queries: int
    missed: int
    percentiles: float

    @classmethod
    def count(cls, lower: Integers, negatives: Integers, percentile: float) -> _BatchMisses:
        needed = np.ceil(negatives * percentile - 1e-9 * negatives)  # in floating point, 0.55 * 100 exceeds 55
        return cls(len(lower), int((lower < needed).sum()), float((lower / negatives).sum()))


def _summarise(batches: list[_BatchMisses], random: np.random.Generator) -> Misses:
    queries, missed, percentiles = (
        np.array([getattr(batch, name) for batch in batches], np.float64)
        for name in ("queries", "missed", "percentiles")
    )
    if not queries.sum():
        raise ScoreError("no batch holds a negative: all its texts are of one group; take larger batches")
    resampled = random.integers(len(batches), size=(RESAMPLES, len(batches)))
    shares: NDArray[np.float64] = missed[resampled].sum(1) / np.maximum(queries[resampled].sum(1), 1)
    low, high = np.quantile(shares, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    total = queries.sum()
    interval = float(low), float(high)
    return Misses(float(missed.sum() / total), interval, float(percentiles.sum() / total), int(total))
