"""Reranking: a fast embedding run (the retriever) lists N answers per query, and a costly run scores only those.

A positive in the list is ranked within it by the reranker; a positive beyond the list keeps the rank that the retriever
gave it. A pair listed in both directions is scored once, and a longer list only adds its new pairs.
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
from diptych.evaluation.metrics.ranks import Ranks, ranks
from diptych.evaluation.metrics.recall import Metrics, metrics_from_ranks
from diptych.evaluation.metrics.scores import Index, Score
from diptych.evaluation.metrics.tiles import BLOCK
from diptych.evaluation.runs import ensemble_score
from diptych.models.encoded_corpus import EncodedCorpus
from diptych.progress import ProgressCallback

# Numbers in the gathered encodings of one block of pairs: 64 MB.
MAX_GATHERED = 1 << 24

# The scores of image k with text k, by their rows.
PairScore = Callable[[Integers, Integers], Tensor]

_LEAST = torch.iinfo(torch.int64).min
_ITEM = 2**31 - 1  # the lower bits of a key: the row of the item
_NEGATIVE = 2**31  # the bit above them: set for negatives


@dataclass(frozen=True, eq=False)
class RerankingRow:
    """The result with lists of `top` answers: ranks, the number of pairs the reranker scored, and scoring seconds.

    `top` is 0 for the retriever alone, and None for the reranker alone, which scores all pairs.
    """

    top: int | None
    ranks: Ranks
    pairs: int
    seconds: float

    @property
    def percent_scored(self) -> float:
        """The percentage of all pairs that the reranker scored."""
        return 100 * self.pairs / (len(self.ranks.images) * len(self.ranks.texts))

    @property
    def metrics(self) -> Metrics:
        """Recalls and ranks in both directions."""
        return metrics_from_ranks(self.ranks)

    def to_json(self) -> dict[str, Any]:
        """Everything but the ranks under stable names; `top` is "all" for the reranker alone."""
        return {
            "top": "all" if self.top is None else self.top,
            "pairs": self.pairs,
            "percent_of_pairs": self.percent_scored,
            "seconds": self.seconds,
            "metrics": self.metrics.to_json(),
        }


@dataclass(frozen=True, eq=False)
class RerankingResult:
    """Recall by list length: the retriever alone, each length, and all pairs if requested."""

    rows: tuple[RerankingRow, ...]

    def to_json(self) -> dict[str, Any]:
        """The sizes, and the rows as a list."""
        first = self.rows[0].ranks
        sizes = {"images": len(first.images), "texts": len(first.texts)}
        return {**sizes, "rerank": [row.to_json() for row in self.rows]}


def rerank(
    rerankers: Sequence[EncodedCorpus],
    retriever: EncodedCorpus,
    tops: Sequence[int],
    *,
    all_pairs: bool = False,
    progress: ProgressCallback | None = None,
) -> RerankingResult:
    """Measure a reranker, or the mean of several, on the lists of a retriever, for each list length in `tops`.

    `all_pairs` adds the reranker on all pairs. `progress` receives the number of pairs scored and the total.
    """
    for reranker in rerankers:
        check_same_encodings(reranker, retriever)
    score, groups = ensemble_score([retriever]), (retriever.image_groups, retriever.text_groups)
    rows = list(rerank_scores(pair_score(rerankers), score, *groups, tops, progress=progress))
    if all_pairs:
        start = time.perf_counter()
        full = ranks(ensemble_score(rerankers), *groups)
        rows.append(RerankingRow(None, full, score.images * score.texts, time.perf_counter() - start))
    return RerankingResult(tuple(rows))


def check_retriever(retriever: EncodedCorpus) -> None:
    """Raise a ScoreError if the model that lists is as costly as the one that it lists for."""
    if retriever.matcher().embedding_dim is None:
        name = retriever.settings.name
        raise ScoreError(
            f"a model {name!r} scores each pair separately, so its lists would cost as much as all scores; "
            "list with an embedding run, such as one of the recipe `vsepp`"
        )


def check_same_encodings(reranker: EncodedCorpus, retriever: EncodedCorpus) -> None:
    """Raise a ScoreError if the retriever is not an embedding run, or if it saw other images and texts."""
    check_retriever(retriever)
    if reranker.digest == retriever.digest:
        return
    read_once = sorted(reranker.skipped.keys() ^ retriever.skipped.keys())
    sizes = " and ".join(f"{len(each.images):,} x {len(each.texts):,}" for each in (reranker, retriever))
    reason = f"only one of them could read {read_once[0]}" if read_once else "they are of different corpora or splits"
    raise ScoreError(f"the runs encoded different images and texts ({sizes}): {reason}; encode the same with both")


def pair_score(encoded: Sequence[EncodedCorpus], most: int = MAX_GATHERED) -> PairScore:
    """The scores of selected pairs, the mean over several runs, gathering at most `most` numbers at a time."""

    def scores_of_run(each: EncodedCorpus, images: Integers, texts: Integers) -> Iterator[Tensor]:
        matcher = each.matcher()
        size = max(1, most // max(1, each.images[0].numel() + each.texts[0].numel()))
        for start in range(0, len(images), size):
            part = (torch.from_numpy(rows[start : start + size]) for rows in (images, texts))
            image, text = (rows.to(each.images.device) for rows in part)
            yield matcher.score_pairs(each.images[image], each.texts[text]).cpu()

    def score(images: Integers, texts: Integers) -> Tensor:
        return torch.stack([torch.cat(list(scores_of_run(each, images, texts))) for each in encoded]).mean(0)

    return score


@torch.no_grad()
def rerank_scores(
    pairs: PairScore,
    retriever: Score,
    image_groups: Integers,
    text_groups: Integers,
    tops: Sequence[int],
    *,
    block: int = BLOCK,
    progress: ProgressCallback | None = None,
) -> Iterator[RerankingRow]:
    """The retriever's score alone, then each length of its lists in ascending order."""
    if not tops or min(tops) < 1:
        raise ScoreError(f"lists of {', '.join(map(str, tops)) or 'no'} answers; take lengths of 1 or more, such as 10")
    start = time.perf_counter()
    lists = _TopLists(retriever, image_groups, text_groups, max(tops))
    alone = ranks(lists.score, image_groups, text_groups, block=block)  # its tiles fill the lists as well
    seconds = time.perf_counter() - start
    yield RerankingRow(0, alone, 0, seconds)
    texts_of, images_of = lists.texts_of_images(), lists.images_of_texts()
    total = len(_pair_codes(texts_of, images_of, retriever.texts))
    scored = _ScoredPairs(pairs, retriever.texts, progress and (lambda done: progress(done, total)))
    for top in sorted(set(tops)):
        start = time.perf_counter()
        texts, images = texts_of[:, :top], images_of[:, :top]
        scored.add(_pair_codes(texts, images, retriever.texts))
        image_scores = scored.scores_of(np.arange(len(texts))[:, None], texts)  # (images, top)
        text_scores = scored.scores_of(images, np.arange(len(images))[:, None])  # (texts, top)
        reranked = replace(
            alone,
            images=_ranks_in_lists(image_scores, texts, image_groups, text_groups, alone.images),
            texts=_ranks_in_lists(text_scores, images, text_groups, image_groups, alone.texts),
        )
        seconds += time.perf_counter() - start
        yield RerankingRow(top, reranked, len(scored.codes), seconds)


def _pair_codes(texts_of: Integers, images_of: Integers, texts: int) -> Integers:
    """The listed pairs of both directions, each once, as image * texts + text, in ascending order."""
    by_image = np.arange(len(texts_of))[:, None] * texts + texts_of
    by_text = images_of * texts + np.arange(len(images_of))[:, None]
    return np.union1d(by_image, by_text)


def _ranks_in_lists(
    scores: NDArray[np.float64], listed: Integers, query_groups: Integers, answer_groups: Integers, beyond: Integers
) -> Integers:
    """The rank of each query's best positive within its list, or the rank `beyond` if the list holds no positive."""
    positive = query_groups[:, None] == answer_groups[listed]
    best = np.where(positive, scores, -np.inf).max(1)
    above = (~positive & (scores >= best[:, None])).sum(1)
    return np.where(positive.any(1), 1 + above, beyond)


class _ScoredPairs:
    """The pairs scored so far, in the order of their codes."""

    def __init__(self, pairs: PairScore, texts: int, progress: Callable[[int], None] | None) -> None:
        self.pairs, self.texts, self.progress = pairs, texts, progress
        self.codes, self.scores = np.empty(0, np.int64), np.empty(0)

    def add(self, codes: Integers, at_once: int = 1 << 14) -> None:
        """Score the pairs that are new."""
        fresh = np.setdiff1d(codes, self.codes, assume_unique=True)
        parts = [self.scores]
        for start in range(0, len(fresh), at_once):
            images, texts = np.divmod(fresh[start : start + at_once], self.texts)
            parts.append(_checked(self.pairs(images, texts), images, texts))
            if self.progress:
                self.progress(len(self.codes) + start + len(images))
        codes = np.concatenate([self.codes, fresh])
        order = np.argsort(codes)
        self.codes, self.scores = codes[order], np.concatenate(parts)[order]

    def scores_of(self, images: Integers, texts: Integers) -> NDArray[np.float64]:
        """The scores of pairs that were added."""
        return self.scores[np.searchsorted(self.codes, images * self.texts + texts)]


def _checked(scores: Tensor, images: Integers, texts: Integers) -> NDArray[np.float64]:
    values = scores.double().numpy()  # holds a score of any precision exactly
    if len(wrong := np.flatnonzero(np.isnan(values))):
        pair = f"image {images[wrong[0]]} and text {texts[wrong[0]]}"
        raise ScoreError(f"{pair}: their score is not a number (rows count from 0)")
    return np.asarray(values)


class _TopLists:
    """The first answers of each query by a score, collected while its tiles are computed for another purpose.

    Of equal scores, negatives come first, as they rank first, then the smaller row. Score, negative flag and row form
    one integer key, so that no two keys are equal; scores finer than float32 are rounded to it.
    """

    def __init__(self, score: Score, image_groups: Integers, text_groups: Integers, top: int) -> None:
        self._source = score
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
        against = self._source.against(columns)

        def tile(rows: Index) -> Tensor:
            scores = against(rows)
            self._collect(rows, columns, scores.cpu())
            return scores

        return tile

    def _collect(self, rows: Index, columns: Index, scores: Tensor) -> None:
        images, texts = torch.arange(len(self._texts))[rows], torch.arange(len(self._images))[columns]
        negative = self._image_groups[images][:, None] != self._text_groups[texts]
        bits = (scores.float() + 0.0).contiguous().view(torch.int32)  # adding zero makes -0 equal to 0
        ordered = bits ^ ((bits >> 31) & _ITEM)  # as integers of the same order: below zero a larger magnitude is less
        keys = (ordered.long() << 32) + negative * _NEGATIVE  # (images, texts)
        self._texts[images] = _highest(self._texts[images], keys + (_ITEM - texts))
        self._images[texts] = _highest(self._images[texts], (keys + (_ITEM - images)[:, None]).t())


def _highest(keys: Tensor, more: Tensor) -> Tensor:
    return torch.cat([keys, more], 1).topk(keys.shape[1]).values
