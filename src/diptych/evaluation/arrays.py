"""Evaluation of a caller's own arrays: embeddings or a score matrix, NumPy or torch, from whatever model.

Scores are computed in tiles, as for runs: memory use is that of the arrays and of one tile. Groups are integers or
strings, one per row; an image and a text of the same group are a positive pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from numpy.typing import ArrayLike

from diptych.errors import ScoreError
from diptych.evaluation.array_groups import Groups, read_groups
from diptych.evaluation.array_scores import (
    Array,
    Similarity,
    read_embeddings,
    read_matrix_score,
    similarity_score,
    tile_size,
)
from diptych.evaluation.metrics.paired_difference import PairedDifferences, paired_difference
from diptych.evaluation.metrics.recall import CUTOFFS
from diptych.evaluation.protocols.retrieval import RetrievalResult, evaluate_score
from diptych.evaluation.tabular import TabularResult, TextTable, bootstrap_caption


def evaluate_embeddings(  # noqa: PLR0913 (options, by keyword only)
    images: Array | ArrayLike,
    texts: Array | ArrayLike,
    image_groups: Groups | None = None,
    text_groups: Groups | None = None,
    *,
    similarity: Similarity = "cosine",
    folds: int = 1,
    gallery: int | None = None,
    average_precision: bool | None = None,
    cutoffs: Sequence[int] = CUTOFFS,
    level: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> RetrievalResult:
    """Measure retrieval in both directions with embeddings, one row per image and one row per text.

    Args:
        images: (images, dimensions), or anything with one row per image if `similarity` is a function.
        texts: (texts, dimensions), of the same type and on the same device.
        image_groups: defaults to the row numbers of the images.
        text_groups: defaults to the row numbers of the texts; without any groups, text k belongs to image k.
        similarity: "cosine", "dot", "euclidean" (minus the distance), or a function from a block of images and a block
            of texts to their (images, texts) scores, higher is better. It gets NumPy arrays if the arrays are, else
            tensors.
        folds: the number of consecutive galleries whose metrics are averaged.
        gallery: measure the first images only.
        average_precision: whether to measure mAP; by default, if a text has several images.
        cutoffs: the K of recall@K.
        level: of the confidence intervals.
        draws: of groups, for the intervals.
        seed: of the draws.

    Examples:
        >>> import numpy as np
        >>> images = np.eye(3, 8)
        >>> result = evaluate_embeddings(images, np.repeat(images, 2, axis=0), text_groups=np.repeat(np.arange(3), 2))
        >>> result.metrics.i2t_r1, result.intervals.rsum
        (100.0, (600.0, 600.0))
    """
    embeddings = read_embeddings(images, texts, similarity)
    groups = read_groups(image_groups, text_groups, *map(len, embeddings))
    return evaluate_score(
        similarity_score(*embeddings, similarity),
        *groups,
        folds=folds,
        gallery=gallery,
        average_precision=average_precision,
        cutoffs=cutoffs,
        level=level,
        draws=draws,
        seed=seed,
        block=tile_size(*embeddings),
    )


def evaluate_scores(  # noqa: PLR0913 (options, by keyword only)
    matrix: Array | ArrayLike,
    image_groups: Groups | None = None,
    text_groups: Groups | None = None,
    *,
    folds: int = 1,
    gallery: int | None = None,
    average_precision: bool | None = None,
    cutoffs: Sequence[int] = CUTOFFS,
    level: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> RetrievalResult:
    """Measure retrieval in both directions with an (images, texts) matrix of scores, higher is better.

    The matrix may be memory-mapped. See `evaluate_embeddings` for the groups and the options.

    Examples:
        >>> import numpy as np
        >>> evaluate_scores(np.array([[0.9, 0.2], [0.95, 0.3]])).metrics.i2t_r1
        50.0
    """
    score = read_matrix_score(matrix)
    return evaluate_score(
        score,
        *read_groups(image_groups, text_groups, score.images, score.texts),
        folds=folds,
        gallery=gallery,
        average_precision=average_precision,
        cutoffs=cutoffs,
        level=level,
        draws=draws,
        seed=seed,
    )


@dataclass(frozen=True, eq=False, repr=False)
class ScoreComparison(TabularResult):
    """Two results on the same queries, and the second minus the first with intervals of the difference.

    `comparison.differences.i2t_r1` is a difference with `value`, `low`, `high` and `is_significant`.
    """

    first: RetrievalResult
    second: RetrievalResult
    differences: PairedDifferences

    def to_json(self) -> dict[str, Any]:
        """Both results and the differences under stable names, without the ranks."""
        results = {"first": self.first.to_json(), "second": self.second.to_json()}
        return results | {"differences": self.differences.to_json()}

    def columns(self) -> dict[str, list[Any]]:
        """One row per metric: its name and both values, the difference, its bounds, and whether it is significant."""
        named = self.differences.differences
        first, second = self.first.metrics.to_json(), self.second.metrics.to_json()
        return {
            "metric": list(named),
            "first": [first[name] for name in named],
            "second": [second[name] for name in named],
            "difference": [each.value for each in named.values()],
            "low": [each.low for each in named.values()],
            "high": [each.high for each in named.values()],
            "significant": [each.is_significant for each in named.values()],
        }

    def table(self) -> TextTable:
        """One row per metric; a star marks the differences whose interval excludes 0."""
        rows = []
        for name, first, second, value, low, high, significant in zip(*self.columns().values(), strict=True):
            interval = f"{low:+.1f} to {high:+.1f}"
            rows.append([name, f"{first:.1f}", f"{second:.1f}", f"{value:+.1f}", interval, "*" if significant else ""])
        how = bootstrap_caption(self.differences.level, self.differences.draws)
        return TextTable(
            title=self.first.table().title,
            header=["", "first", "second", "difference", "interval", ""],
            rows=rows,
            caption=f"second minus first; {how}; * excludes 0",
        )


def compare_scores(  # noqa: PLR0913 (options, by keyword only)
    first: Array | ArrayLike | RetrievalResult,
    second: Array | ArrayLike | RetrievalResult,
    image_groups: Groups | None = None,
    text_groups: Groups | None = None,
    *,
    folds: int = 1,
    gallery: int | None = None,
    average_precision: bool | None = None,
    cutoffs: Sequence[int] = CUTOFFS,
    level: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> ScoreComparison:
    """Whether the second model is better than the first: the differences of their metrics, with paired intervals.

    Both are (images, texts) score matrices of the same images and texts, or both are results of `evaluate`,
    `evaluate_embeddings` or `evaluate_scores`; results bring their own groups, folds and gallery. Both models are
    measured on every draw of groups, so that only their difference varies.

    Examples:
        >>> import numpy as np
        >>> comparison = compare_scores(np.array([[0.9, 0.2], [0.95, 0.3]]), np.eye(2))
        >>> comparison.differences.i2t_r1.value
        50.0
    """
    if isinstance(first, RetrievalResult) and isinstance(second, RetrievalResult):
        given = image_groups is not None or text_groups is not None or gallery is not None
        if given or (folds, average_precision, tuple(cutoffs)) != (1, None, CUTOFFS):
            raise ScoreError(
                "results bring their own groups, folds, gallery, mAP and cutoffs; give them when evaluating"
            )
        compared = first, second
    elif isinstance(first, RetrievalResult) or isinstance(second, RetrievalResult):
        raise ScoreError("a result and a score matrix; compare two results, or two matrices")
    else:
        _check_same_shape(first, second)
        measure = partial(
            evaluate_scores,
            image_groups=image_groups,
            text_groups=text_groups,
            folds=folds,
            gallery=gallery,
            average_precision=average_precision,
            cutoffs=cutoffs,
            level=level,
            draws=draws,
            seed=seed,
        )
        compared = measure(first), measure(second)
    return _compare_results(*compared, level, draws, seed)


def _check_same_shape(first: Array | ArrayLike, second: Array | ArrayLike) -> None:
    one, other = read_matrix_score(first), read_matrix_score(second)
    if (one.images, one.texts) != (other.images, other.texts):
        sizes = f"{one.images} x {one.texts} and {other.images} x {other.texts}"
        raise ScoreError(f"scores of {sizes} images and texts; compare scores of the same images and texts")


def _compare_results(
    first: RetrievalResult, second: RetrievalResult, level: float, draws: int, seed: int
) -> ScoreComparison:
    cutoffs, others = (tuple(result.metrics.image_to_text.recalls) for result in (first, second))
    if cutoffs != others:
        raise ScoreError(f"results with recall at {cutoffs} and at {others}; evaluate both with the same cutoffs")
    paired = paired_difference(first.folds, second.folds, cutoffs=cutoffs, level=level, draws=draws, seed=seed)
    return ScoreComparison(first, second, paired)
