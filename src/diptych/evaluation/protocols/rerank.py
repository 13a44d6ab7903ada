"""Reranking: a cheap embedding run lists the first N answers of each query, and a costly run scores those alone.

A right answer in the list is ranked within it by the costly run; one beyond the list keeps the rank that the cheap run
gave it. A pair that both directions list is scored once, and a longer list adds only its new pairs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diptych.data.corpus import Integers
from diptych.errors import ScoreError
from diptych.evaluation.metrics.ranks import BLOCK, Index, Ranks, Score, ranks
from diptych.evaluation.metrics.recall import Metrics, metrics_from_ranks
from diptych.evaluation.runs import ensemble_score
from diptych.models.encoded_corpus import EncodedCorpus
from diptych.progress import ProgressCallback

# Numbers of the gathered encodings of one block of pairs: 64 MB.
GATHERED = 1 << 24

# The scores of image k with text k, by their rows.
PairScore = Callable[[Integers, Integers], Tensor]

_LEAST = torch.iinfo(torch.int64).min
_ITEM = 2**31 - 1  # the lower bits of a key, which hold an item
_NEGATIVE = 2**31  # the bit above them


@dataclass(frozen=True, eq=False)
class RerankingRow:
    """What lists of `top` answers reach: the ranks, how many pairs the costly run scored, and the seconds of scoring.

    0 is the cheap run alone, and None the costly run alone, which scores all pairs.
    """

    top: int | None
    ranks: Ranks
    pairs: int
    seconds: float

    @property
    def share(self) -> float:
        """The percentage of all pairs that the costly run scored."""
        return 100 * self.pairs / (len(self.ranks.images) * len(self.ranks.texts))

    @property
    def metrics(self) -> Metrics:
        """Recalls and ranks in both directions."""
        return metrics_from_ranks(self.ranks)

    def to_json(self) -> dict[str, Any]:
        """All but the ranks of each query, under lasting names; `top` is "all" for the costly run alone."""
        top = "all" if self.top is None else self.top
        named = {"top": top, "pairs": self.pairs, "percent_of_pairs": self.share, "seconds": self.seconds}
        return {**named, "metrics": self.metrics.to_json()}


@dataclass(frozen=True, eq=False)
class RerankingResult:
    """Recall against the length of the lists: the cheap run alone, each length, and all pairs where asked for."""

    rows: tuple[RerankingRow, ...]

    def to_json(self) -> dict[str, Any]:
        """The sizes and a list of the rows."""
        first = self.rows[0].ranks
        sizes = {"images": len(first.images), "texts": len(first.texts)}
        return {**sizes, "rerank": [row.to_json() for row in self.rows]}


def rerank(
    encoded: Sequence[EncodedCorpus],
    cheap: EncodedCorpus,
    tops: Sequence[int],
    *,
    every: bool = False,
    progress: ProgressCallback | None = None,
) -> RerankingResult:
    """Measure a costly run, or the mean of several, on the lists of a cheap one for each length of the lists.

    `every` adds the costly run on all pairs. `progress` is told how many pairs of how many are scored.
    """
    for each in encoded:
        check_same_encodings(each, cheap)
    score, groups = ensemble_score([cheap]), (cheap.image_groups, cheap.text_groups)
    rows = list(rerank_scores(pair_score(encoded), score, *groups, tops, progress=progress))
    if every:
        start = time.perf_counter()
        full = ranks(ensemble_score(encoded), *groups)
        rows.append(RerankingRow(None, full, score.images * score.texts, time.perf_counter() - start))
    return RerankingResult(tuple(rows))


def check_retriever(cheap: EncodedCorpus) -> None:
    """Refuse to list with a model that is as costly as what it lists for."""
    if cheap.matcher().embedding_dim is None:
        name = cheap.settings.name
        raise ScoreError(
            f"a model {name!r} scores each pair by itself, and its lists would cost as much as all scores; "
            "list with an embedding run, such as one of the recipe `vsepp`"
        )


def check_same_encodings(encoded: EncodedCorpus, cheap: EncodedCorpus) -> None:
    """Refuse what cannot be reranked: no embedding run, or a run that saw other images and texts."""
    check_retriever(cheap)
    if encoded.digest == cheap.digest:
        return
    alone = sorted(encoded.skipped.keys() ^ cheap.skipped.keys())
    sizes = " and ".join(f"{len(each.images):,} x {len(each.texts):,}" for each in (encoded, cheap))
    why = f"only one of them could read {alone[0]}" if alone else "they are of different corpora or splits"
    raise ScoreError(f"the runs encoded different images and texts ({sizes}): {why}; encode the same with both")


def pair_score(encoded: Sequence[EncodedCorpus], numbers: int = GATHERED) -> PairScore:
    """The scores of chosen pairs, the mean over several runs, with at most so many numbers gathered at once."""

    def of_one(each: EncodedCorpus, images: Integers, texts: Integers) -> Iterator[Tensor]:
        matcher = each.matcher()
        size = max(1, numbers // max(1, each.images[0].numel() + each.texts[0].numel()))
        for start in range(0, len(images), size):
            part = (torch.from_numpy(rows[start : start + size]) for rows in (images, texts))
            image, text = (rows.to(each.images.device) for rows in part)
            yield matcher.score_pairs(each.images[image], each.texts[text]).cpu()

    def score(images: Integers, texts: Integers) -> Tensor:
        return torch.stack([torch.cat(list(of_one(each, images, texts))) for each in encoded]).mean(0)

    return score


@torch.no_grad()
def rerank_scores(
    pairs: PairScore,
    cheap: Score,
    image_groups: Integers,
    text_groups: Integers,
    tops: Sequence[int],
    *,
    block: int = BLOCK,
    progress: ProgressCallback | None = None,
) -> Iterator[RerankingRow]:
    """The cheap score alone, then each length of its lists in ascending order."""
    if not tops or min(tops) < 1:
        raise ScoreError(f"lists of {', '.join(map(str, tops)) or 'no'} answers; take lengths of 1 or more, such as 10")
    start = time.perf_counter()
    lists = _Lists(cheap, image_groups, text_groups, max(tops))
    alone = ranks(lists.score, image_groups, text_groups, block=block)  # its tiles fill the lists as well
    seconds = time.perf_counter() - start
    yield RerankingRow(0, alone, 0, seconds)
    texts_of, images_of = lists.texts_of_images(), lists.images_of_texts()
    total = len(_codes(texts_of, images_of, cheap.texts))
    scored = _Scored(pairs, cheap.texts, progress and (lambda done: progress(done, total)))
    for top in sorted(set(tops)):
        start = time.perf_counter()
        texts, images = texts_of[:, :top], images_of[:, :top]
        scored.add(_codes(texts, images, cheap.texts))
        of_images = scored.of(np.arange(len(texts))[:, None], texts)  # (images, top)
        of_texts = scored.of(images, np.arange(len(images))[:, None])  # (texts, top)
        found = replace(
            alone,
            images=_within(of_images, texts, image_groups, text_groups, alone.images),
            texts=_within(of_texts, images, text_groups, image_groups, alone.texts),
        )
        seconds += time.perf_counter() - start
        yield RerankingRow(top, found, len(scored.codes), seconds)


def _codes(texts_of: Integers, images_of: Integers, texts: int) -> Integers:
    """The listed pairs of both directions, each once, as image * texts + text, in order."""
    by_image = np.arange(len(texts_of))[:, None] * texts + texts_of
    by_text = images_of * texts + np.arange(len(images_of))[:, None]
    return np.union1d(by_image, by_text)


def _within(
    scores: NDArray[np.float64], listed: Integers, query_groups: Integers, answer_groups: Integers, beyond: Integers
) -> Integers:
    """The rank of each query's best positive within its list, or the rank beyond where the list holds none."""
    positive = query_groups[:, None] == answer_groups[listed]
    best = np.where(positive, scores, -np.inf).max(1)
    above = (~positive & (scores >= best[:, None])).sum(1)
    return np.where(positive.any(1), 1 + above, beyond)


class _Scored:
    """The pairs that were scored so far, in the order of their codes."""

    def __init__(self, pairs: PairScore, texts: int, progress: Callable[[int], None] | None) -> None:
        self.pairs, self.texts, self.progress = pairs, texts, progress
        self.codes, self.scores = np.empty(0, np.int64), np.empty(0)

    def add(self, codes: Integers, at_once: int = 1 << 14) -> None:
        """Score those of the pairs that are new."""
        fresh = np.setdiff1d(codes, self.codes, assume_unique=True)
        parts = [self.scores]
        for start in range(0, len(fresh), at_once):
            images, texts = np.divmod(fresh[start : start + at_once], self.texts)
            parts.append(self._checked(self.pairs(images, texts), images, texts))
            if self.progress:
                self.progress(len(self.codes) + start + len(images))
        codes = np.concatenate([self.codes, fresh])
        order = np.argsort(codes)
        self.codes, self.scores = codes[order], np.concatenate(parts)[order]

    def of(self, images: Integers, texts: Integers) -> NDArray[np.float64]:
        """The scores of pairs that were added."""
        return self.scores[np.searchsorted(self.codes, images * self.texts + texts)]

    @staticmethod
    def _checked(scores: Tensor, images: Integers, texts: Integers) -> NDArray[np.float64]:
        values = scores.double().numpy()  # holds any score exactly
        if len(wrong := np.flatnonzero(np.isnan(values))):
            pair = f"image {images[wrong[0]]} and text {texts[wrong[0]]}"
            raise ScoreError(f"{pair}: their score is not a number (rows count from 0)")
        return np.asarray(values)


class _Lists:
    """The first answers of each query by a score, gathered while its tiles go by.

    Of equal scores a negative comes first, as it ranks first, then the smaller row. A score, that and the row make
    one key, so that no two are equal; scores finer than float32 are rounded for it.
    """

    def __init__(self, score: Score, image_groups: Integers, text_groups: Integers, top: int) -> None:
        self._of = score
        self._image_groups, self._text_groups = torch.from_numpy(image_groups), torch.from_numpy(text_groups)
        self._texts = torch.full((score.images, min(top, score.texts)), _LEAST)
        self._images = torch.full((score.texts, min(top, score.images)), _LEAST)
        self.score = Score(score.images, score.texts, self._against)

    def texts_of_images(self) -> Integers:
        """The listed texts of each image, best first."""
        return (_ITEM - (self._texts & _ITEM)).numpy()

    def images_of_texts(self) -> Integers:
        """The listed images of each text, best first."""
        return (_ITEM - (self._images & _ITEM)).numpy()

    def _against(self, columns: Index) -> Callable[[Index], Tensor]:
        part = self._of.against(columns)

        def tile(rows: Index) -> Tensor:
            scores = part(rows)
            self._take(rows, columns, scores.cpu())
            return scores

        return tile

    def _take(self, rows: Index, columns: Index, scores: Tensor) -> None:
        images, texts = torch.arange(len(self._texts))[rows], torch.arange(len(self._images))[columns]
        negative = self._image_groups[images][:, None] != self._text_groups[texts]
        bits = (scores.float() + 0.0).contiguous().view(torch.int32)  # with zero added: -0 equals 0
        ordered = bits ^ ((bits >> 31) & _ITEM)  # as integers of the same order: below zero a larger magnitude is less
        keys = (ordered.long() << 32) + negative * _NEGATIVE  # (images, texts)
        self._texts[images] = _best(self._texts[images], keys + (_ITEM - texts))
        self._images[texts] = _best(self._images[texts], (keys + (_ITEM - images)[:, None]).t())


def _best(kept: Tensor, more: Tensor) -> Tensor:
    return torch.cat([kept, more], 1).topk(kept.shape[1]).values
