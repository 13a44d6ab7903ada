"""COCO's test split with more of its positives: ECCV Caption and CxC, and the 5K and 1K protocols beside them.

In COCO, a caption's only positive is the image that it was written for, and every other image that it describes is a
negative. CxC and ECCV Caption list more positives. With CxC, recall@K is measured with every image and 24,972 captions
as queries; with ECCV Caption, recall@K, R-Precision and mAP@R with those 1,261 images and 1,332 captions of which many
answers were judged. The answers are all 25,000 captions, or all 5,000 images, in either case.

Reference: Chun et al. 2022, "ECCV Caption"; Parekh et al. 2021, "Crisscrossed Captions".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from diptych.data.corpus import Corpus, Integers
from diptych.errors import ScoreError
from diptych.evaluation.coco_positives import CocoPositives, coco_rows, read_positives
from diptych.evaluation.metrics.precision_at_r import average_precisions_at_r, r_precisions
from diptych.evaluation.metrics.recall import CUTOFFS, IMAGE_TO_TEXT, TEXT_TO_IMAGE
from diptych.evaluation.metrics.relevance import Relevance, Side, positive_ranks
from diptych.evaluation.metrics.scores import Score, matrix_score
from diptych.evaluation.metrics.significance import Intervals, group_means, percentile_bounds
from diptych.evaluation.metrics.tiles import BLOCK
from diptych.evaluation.protocols.retrieval import evaluate_score
from diptych.evaluation.runs import FEATURES, cached_score, open_for_run, open_run
from diptych.evaluation.tabular import TabularResult, TextTable, bootstrap_caption, with_interval
from diptych.models.encoded_corpus import EncodedCorpus
from diptych.progress import ProgressCallback

FOLDS = 5

_PREFIXES: dict[Side, str] = {"images": IMAGE_TO_TEXT, "texts": TEXT_TO_IMAGE}
_SETS = {"eccv": "ECCV Caption", "cxc": "CxC", "coco_5k": "COCO 5K", "coco_1k": "COCO 1K"}
_COLUMNS = {**{f"r{cutoff}": f"R@{cutoff}" for cutoff in CUTOFFS}, "map_at_r": "mAP@R", "rprecision": "R-P"}
_MAX_CACHED = 1 << 27  # all scores of 5,000 images with 25,000 texts: 500 MB
_IMAGES_AT_ONCE = 64


@dataclass(frozen=True, eq=False, repr=False)
class EccvResult(TabularResult):
    """Metrics in percent by name, such as `eccv_i2t_map_at_r`, `cxc_t2i_r1` and `coco_5k_i2t_r1`, and their intervals.

    The intervals come from draws of images with their captions.
    """

    images: int
    texts: int
    metrics: Mapping[str, float]
    intervals: Intervals

    def to_json(self) -> dict[str, Any]:
        """Protocol, sizes, metrics and intervals under stable names."""
        return {
            "protocol": "eccv",
            "images": self.images,
            "texts": self.texts,
            "metrics": dict(self.metrics),
            "intervals": self.intervals.to_json(),
        }

    def columns(self) -> dict[str, list[Any]]:
        """One row per metric: its name, its value, and the bounds of its interval."""
        low, high = map(list, zip(*(self.intervals.bounds[name] for name in self.metrics), strict=True))
        return {"metric": list(self.metrics), "value": list(self.metrics.values()), "low": low, "high": high}

    def table(self) -> TextTable:
        """One row per set of positives and direction."""
        rows = []
        for name, title in _SETS.items():
            for prefix in _PREFIXES.values():
                names = [f"{name}_{prefix}_{metric}" for metric in _COLUMNS]
                cells = [self._cell(each) for each in names if each in self.metrics]
                rows.append([f"{title} {prefix}", *cells])
        return TextTable(
            title=f"ECCV Caption and CxC: {self.images:,} images, {self.texts:,} texts",
            header=["", *_COLUMNS.values()],
            rows=rows,
            caption=bootstrap_caption(self.intervals.level, self.intervals.draws, "images"),
        )

    def _cell(self, name: str) -> str:
        return with_interval(self.metrics[name], self.intervals.bounds[name])


def evaluate_eccv(
    run: Path | str,
    corpus: Corpus | Path | str,
    split: str = "test",
    *,
    device: str = "auto",
    features: Path | str | None = FEATURES,
    workers: int = 2,
    progress: ProgressCallback | None = None,
) -> EccvResult:
    """Measure a run on COCO's test split with the positives of ECCV Caption and CxC (extra `eccv`).

    The split of the corpus must have the 5,000 images and their captions, with COCO's ids; others in it are left out.
    `features` is a folder of feature stores, as for `evaluate`.
    """
    positives = read_positives()
    part = open_for_run(corpus, run).split(split)
    part = part.take(*coco_rows(part, positives))
    return evaluate_encoded_eccv([open_run(run, device, features).encode_corpus(part, workers, progress)], positives)


def evaluate_encoded_eccv(encoded: Sequence[EncodedCorpus], positives: CocoPositives) -> EccvResult:
    """Measure encodings of the images and texts of `coco_rows`; several are an ensemble."""
    if encoded[0].skipped:
        image, reason = next(iter(encoded[0].skipped.items()))
        raise ScoreError(f"{image}: ECCV Caption and CxC need all {len(positives.image_ids):,} images ({reason})")
    return measure_eccv(cached_score(encoded, _MAX_CACHED), positives)


def selected_score(score: Score, images: Integers, texts: Integers) -> Score:
    """The scores of some images with some texts, in the given order, all in memory; raises ScoreError for a NaN."""
    against, matrix = score.against(torch.from_numpy(texts)), torch.empty(0)
    for start in range(0, len(images), _IMAGES_AT_ONCE):
        rows = images[start : start + _IMAGES_AT_ONCE]
        part = against(torch.from_numpy(rows))
        if len(wrong := part.isnan().nonzero()):
            pair = f"image {rows[wrong[0, 0]]} and text {texts[wrong[0, 1]]}"
            raise ScoreError(f"{pair}: their score is not a number (rows count from 0)")
        if not start:
            matrix = part.new_empty(len(images), len(texts))
        matrix[start : start + len(rows)] = part
    return matrix_score(matrix)


def measure_eccv(
    score: Score, positives: CocoPositives, *, level: float = 0.95, draws: int = 1000, seed: int = 0, block: int = BLOCK
) -> EccvResult:
    """Measure the scores of all images with all texts, in the order of `positives`."""
    image_groups = np.arange(len(positives.image_ids))
    values: dict[str, NDArray[np.float64]] = {}
    groups: list[Integers] = []
    tables = []
    for name, relevances in (("eccv", positives.eccv), ("cxc", positives.cxc)):
        for side, prefix in _PREFIXES.items():
            relevance = relevances[side]
            ranks = positive_ranks(score, relevance, side, block=block)
            measured = _values(ranks, relevance, with_precision=name == "eccv")
            values |= {f"{name}_{prefix}_{metric}": column for metric, column in measured.items()}
            tables.append(np.column_stack(list(measured.values())))
            groups.append(relevance.queries if side == "images" else positives.text_images[relevance.queries])
    drawn = 100 * group_means(tables, groups, draws, np.random.default_rng(seed))
    metrics = {name: float(100 * column.mean()) for name, column in values.items()}
    bounds = percentile_bounds(list(values), drawn, level)
    for name, folds in (("coco_5k", 1), ("coco_1k", FOLDS)):
        result = evaluate_score(
            score, image_groups, positives.text_images, folds=folds, level=level, draws=draws, seed=seed, block=block
        )
        metrics |= {
            f"{name}_{metric}": value
            for metric, value in result.metrics.to_json().items()
            if metric in result.intervals.bounds
        }
        bounds |= {f"{name}_{metric}": bound for metric, bound in result.intervals.bounds.items()}
    return EccvResult(score.images, score.texts, metrics, Intervals(bounds, level, draws, seed))


def _values(ranks: Integers, relevance: Relevance, *, with_precision: bool) -> dict[str, NDArray[np.float64]]:
    """What is averaged over the queries, by the name of its metric."""
    first = ranks[relevance.starts]
    hits = {f"r{cutoff}": (first <= cutoff).astype(np.float64) for cutoff in CUTOFFS}
    if not with_precision:
        return hits
    return hits | {
        "map_at_r": average_precisions_at_r(ranks, relevance),
        "rprecision": r_precisions(ranks, relevance),
    }
