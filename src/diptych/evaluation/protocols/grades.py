"""How well scores agree with the grades that people gave to pairs of an image and a text, by rank correlation.

There are three views of the same pairs, since the literature has no common practice:

- All pairs in one list, as Flickr8k-Expert is reported: by tau-c, with one row per judge (Hessel et al. 2021,
  "CLIPScore"). It compares scores across images and texts.
- Within an image (its texts) or a text (its images), averaged over those that have more than one grade. It compares
  only what one query compares.
- One pair of each of half of the images or texts, drawn at random: the mean of Spearman's rho over the draws and its
  standard deviation, as CxC is reported (Parekh et al. 2021, "Crisscrossed Captions").

The intervals of the first two come from draws of groups: each takes all pairs of its images, or, if texts are the
queries, of its texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diptych.data.corpus import Corpus, Integers, Problem
from diptych.data.grades import GradeRow, Grades, read_grades
from diptych.errors import ScoreError
from diptych.evaluation.metrics.agreement import correlations_within, sampled_spearman
from diptych.evaluation.metrics.rank_correlation import MEASURES, RankedPairs, correlations
from diptych.evaluation.metrics.scores import Score
from diptych.evaluation.metrics.significance import (
    Intervals,
    check_bootstrap,
    draw_weights,
    group_means,
    percentile_bounds,
)
from diptych.evaluation.protocols.rerank import PairScore, pair_score
from diptych.evaluation.runs import FEATURES, ensemble_score, open_for_run, open_run
from diptych.evaluation.tabular import TabularResult, TextTable, bootstrap_caption
from diptych.model import Model
from diptych.models.encoded_corpus import EncodedCorpus
from diptych.progress import ProgressCallback

Reals = NDArray[np.float64]

MIN_SAMPLED = 4  # images or texts, so that a half of them is more than one pair

_ROWS = {"": "all pairs", "image_": "within an image", "text_": "within a text"}
_SAMPLED_ROWS = {"cxc_image_": "one pair per image", "cxc_text_": "one pair per text"}


@dataclass(frozen=True, eq=False, repr=False)
class GradesResult(TabularResult):
    """Correlations by name: `spearman`, `tau_b` and `tau_c` of all pairs, and those with `image_` or `text_` before it.

    `cxc_image_spearman` and `cxc_text_spearman` are means over draws, and `deviations` has their standard deviations.
    `queries` is the number of images and of texts that have more than one grade. `problems` are the rows left out.
    """

    pairs: int
    images: int
    texts: int
    queries: Mapping[str, int]
    metrics: Mapping[str, float]
    intervals: Intervals
    deviations: Mapping[str, float]
    problems: tuple[Problem, ...]

    def to_json(self) -> dict[str, Any]:
        """Sizes, correlations, intervals and deviations under stable names."""
        return {
            "protocol": "grades",
            "pairs": self.pairs,
            "images": self.images,
            "texts": self.texts,
            "left_out": len(self.problems),
            "queries": dict(self.queries),
            "metrics": dict(self.metrics),
            "intervals": self.intervals.to_json(),
            "deviations": dict(self.deviations),
        }

    def columns(self) -> dict[str, list[Any]]:
        """One row per correlation: its name, its value, and the bounds of its interval (NaN for means over draws)."""
        bounds = [self.intervals.bounds.get(name, (np.nan, np.nan)) for name in self.metrics]
        low, high = map(list, zip(*bounds, strict=True))
        return {"metric": list(self.metrics), "value": list(self.metrics.values()), "low": low, "high": high}

    def table(self) -> TextTable:
        """One row per view of the pairs."""
        rows = []
        for prefix, title in _ROWS.items():
            if f"{prefix}spearman" in self.metrics:
                count = self.queries.get(prefix.rstrip("_"), self.pairs)
                cells = [self._cell(f"{prefix}{measure}") for measure in MEASURES]
                rows.append([title, f"{count:,}", *cells])
        for prefix, title in _SAMPLED_ROWS.items():
            name = f"{prefix}spearman"
            if name in self.metrics:
                rows.append([title, "", f"{self.metrics[name]:.3f}\n±{self.deviations[name]:.3f}"])
        return TextTable(
            title=f"{self.pairs:,} grades: {self.images:,} images, {self.texts:,} texts",
            header=["", "count", "Spearman", "tau-b", "tau-c"],
            rows=rows,
            caption=f"{bootstrap_caption(self.intervals.level, self.intervals.draws)}; ± standard deviation of draws",
        )

    def _cell(self, name: str) -> str:
        low, high = self.intervals.bounds[name]
        return f"{self.metrics[name]:.3f}\n{low:.3f} to {high:.3f}"


def evaluate_grades(  # noqa: PLR0913 (options, by keyword only)
    run: Model | Path | str,
    corpus: Corpus | Path | str,
    grades: Path | str | Iterable[GradeRow],
    split: str = "test",
    *,
    level: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
    device: str = "auto",
    features: Path | str | None = FEATURES,
    workers: int = 2,
    progress: ProgressCallback | None = None,
) -> GradesResult:
    """Measure how well a run's scores agree with people's grades of pairs in one split of a corpus.

    `grades` is a table with the columns text, image and grade, or rows of them. A text is named by itself or by its id,
    an image by its file name or its id. Rows that cannot be used are left out, and are the `problems` of the result.
    Only the pairs in the table are scored. `features` is a folder of feature stores, as for `evaluate`.
    """
    check_bootstrap(level, draws, seed)
    part = open_for_run(corpus, run).split(split)
    found = read_grades(grades, part)
    encoded = open_run(run, device, features).encode_corpus(graded_part(part, found), workers, progress)
    return evaluate_encoded_grades([encoded], part, found, level=level, draws=draws, seed=seed)


def graded_part(corpus: Corpus, grades: Grades) -> Corpus:
    """The images and texts that have a grade, all in one group, because any two of them may be a pair."""
    images, texts = np.unique(grades.images), np.unique(grades.texts)
    groups = np.zeros(len(images), np.int64), np.zeros(len(texts), np.int64)
    return replace(corpus.take(images, texts), image_groups=groups[0], text_groups=groups[1])


def evaluate_encoded_grades(
    encoded: Sequence[EncodedCorpus],
    corpus: Corpus,
    grades: Grades,
    *,
    level: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> GradesResult:
    """Measure encodings of `graded_part`; several are an ensemble. Images that cannot be read lose their grades."""
    ensemble_score(encoded)  # refuses encodings of different images and texts
    images, texts = np.unique(grades.images), np.unique(grades.texts)
    is_read = np.array([corpus.image_ids[image] not in encoded[0].skipped for image in images])
    unread = [Problem(corpus.image_ids[image], None, "has grades, but cannot be read") for image in images[~is_read]]
    kept = np.isin(grades.images, images[is_read])
    grades = Grades(grades.images[kept], grades.texts[kept], grades.values[kept], (*grades.problems, *unread))
    of_rows = pair_score(encoded)

    def pairs(some: Integers, others: Integers) -> Tensor:
        return of_rows(np.searchsorted(images[is_read], some), np.searchsorted(texts, others))

    return measure_grades(pairs, corpus, grades, level=level, draws=draws, seed=seed)


def score_of_pairs(score: Score) -> PairScore:
    """The scores of selected pairs from those of all images with all texts; all texts of an image are read at once."""

    def pairs(images: Integers, texts: Integers) -> Tensor:
        found = torch.empty(len(images), dtype=torch.float64)
        order = np.argsort(images, kind="stable")
        names, starts = np.unique(images[order], return_index=True)
        for image, rows in zip(names, np.split(order, starts[1:]), strict=True):
            found[rows] = score.against(torch.from_numpy(texts[rows]))(torch.tensor([image]))[0].cpu().double()
        return found

    return pairs


@torch.no_grad()
def measure_grades(
    pairs: PairScore, corpus: Corpus, grades: Grades, *, level: float = 0.95, draws: int = 1000, seed: int = 0
) -> GradesResult:
    """Measure the scores of the graded pairs, each of which is scored once. `pairs` takes rows of the corpus."""
    check_bootstrap(level, draws, seed)
    if np.ptp(grades.values) == 0:
        raise ScoreError(f"{corpus.name}: all {len(grades):,} grades are {grades.values[0]:g}; nothing to compare with")
    scores = _scores(pairs, corpus, grades)
    metrics = correlations(scores, grades.values)
    bounds = percentile_bounds(MEASURES, _drawn(scores, corpus.image_groups, grades, draws, seed), level)
    queries, deviations = {}, {}
    for name, rows, groups in (
        ("image", grades.images, corpus.image_groups),
        ("text", grades.texts, corpus.text_groups),
    ):
        used, found = correlations_within(scores, grades.values, rows)
        queries[name] = len(used)
        if len(used):
            names = [f"{name}_{measure}" for measure in MEASURES]
            metrics |= dict(zip(names, found.mean(0).tolist(), strict=True))
            drawn = group_means([found], [groups[used]], draws, np.random.default_rng(seed))
            bounds |= percentile_bounds(names, drawn, level)
    for name, rows in (("image", grades.images), ("text", grades.texts)):
        if len(np.unique(rows)) >= MIN_SAMPLED:
            sampled = sampled_spearman(scores, grades.values, rows, draws, np.random.default_rng(seed))
            metrics[f"cxc_{name}_spearman"] = float(sampled.mean())
            deviations[f"cxc_{name}_spearman"] = float(sampled.std())
    return GradesResult(
        pairs=len(grades),
        images=len(np.unique(grades.images)),
        texts=len(np.unique(grades.texts)),
        queries=queries,
        metrics=metrics,
        intervals=Intervals(bounds, level, draws, seed),
        deviations=deviations,
        problems=grades.problems,
    )


def _scores(pairs: PairScore, corpus: Corpus, grades: Grades) -> Reals:
    """The score of each graded pair; raises ScoreError if it is not a number."""
    codes, pair_of = np.unique(grades.images * len(corpus.texts) + grades.texts, return_inverse=True)
    images, texts = np.divmod(codes, len(corpus.texts))
    scores = pairs(images, texts).double().numpy()
    if len(wrong := np.flatnonzero(np.isnan(scores))):
        image, text = corpus.image_ids[images[wrong[0]]], corpus.texts[texts[wrong[0]]]
        raise ScoreError(f"image {image} and text {text!r}: their score is not a number")
    found: Reals = scores[pair_of]
    return found


def _drawn(scores: Reals, image_groups: Integers, grades: Grades, draws: int, seed: int) -> Reals:
    """The correlations of all pairs in each draw of groups of images: (draws, MEASURES)."""
    pairs = RankedPairs(scores, grades.values)
    names, group_of = np.unique(image_groups[grades.images], return_inverse=True)
    weights = draw_weights(draws, len(names), np.random.default_rng(seed))
    return np.vstack([pairs.correlations(part, group_of) for part in weights])
