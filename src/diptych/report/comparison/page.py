"""The HTML page of a comparison: training curves, recalls with differences, and queries on which the runs differ.

The curves are Fig. 2 of Faghri et al. 2018 and Fig. 4 of the AOQ paper, whose Fig. 6 shows the cross-retrieval ranks;
the queries are Fig. 2 and 3 of the ConVSE paper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from markupsafe import Markup

from diptych import __version__
from diptych.evaluation.metrics.chance import chance_recall
from diptych.evaluation.metrics.paired_difference import Difference
from diptych.evaluation.metrics.recall import CUTOFFS, IMAGE_TO_TEXT, TEXT_TO_IMAGE
from diptych.evaluation.protocols.retrieval import RetrievalResult
from diptych.report.comparison.compare import ComparedRun, Comparison
from diptych.report.comparison.differing_queries import DifferingQueries, differing_queries
from diptych.report.elements import DirectionName, Fact, Measure
from diptych.report.html import render_template, write_template
from diptych.report.sections.cross_retrieval import cross_retrieval_chart
from diptych.report.sections.recall import RecallRow, metric, recall_rows
from diptych.report.svg_charts import Mark, line_chart
from diptych.report.training_curves import stage_marks, trained_epochs, val_curve

_TEMPLATE = "comparison.html.j2"
_DIRECTIONS: tuple[tuple[DirectionName, str], ...] = (
    ("image to text", IMAGE_TO_TEXT),
    ("text to image", TEXT_TO_IMAGE),
)


@dataclass(frozen=True)
class RunRecallRow:
    """A run in one direction of the recall table, and its differences from the baseline by cutoff K."""

    name: str
    recall: RecallRow
    differences: Mapping[int, Difference]


@dataclass(frozen=True)
class RsumRow:
    """A run's sum of recalls, and its difference from the baseline; None for the baseline."""

    name: str
    rsum: Measure
    difference: Difference | None


@dataclass(frozen=True)
class ComparisonPage:
    """The contents of the page; with folds, `cross_retrieval` is None and `differing` empty."""

    title: str
    subtitle: str
    facts: Sequence[Fact]
    notices: Sequence[str]
    training_charts: Sequence[Markup]
    cutoffs: Sequence[int]
    baseline: str
    recall: Mapping[DirectionName, Sequence[RunRecallRow]]
    rsums: Sequence[RsumRow]
    cross_retrieval: Markup | None
    differing: Sequence[DifferingQueries]


def write_comparison_page(path: Path, comparison: Comparison, seed: int = 0) -> None:
    """Write the page atomically; the seed selects the queries that are sampled at random."""
    write_template(path, _TEMPLATE, page=comparison_page(comparison, seed))


def render_comparison_page(page: ComparisonPage) -> str:
    """The page as HTML; all texts are escaped."""
    return render_template(_TEMPLATE, page=page)


def comparison_page(comparison: Comparison, seed: int = 0) -> ComparisonPage:
    """Collect the contents of the page; the seed selects the queries that are sampled at random."""
    runs, result = comparison.runs, comparison.baseline.result
    facts = {
        "data": f"{comparison.corpus.name}, split {comparison.split}",
        "protocol": result.protocol,
        "images": f"{result.images:,}",
        "texts": f"{result.texts:,}",
        "baseline": comparison.baseline.name,
        **{f"epochs of {run.name}": str(trained_epochs(run.epochs)) for run in runs},
        "diptych": __version__,
    }
    names = [run.name for run in runs]
    cross_ranks = {run.name: run.cross_retrieval for run in runs if run.cross_retrieval}
    return ComparisonPage(
        title=f"{', '.join(names[:-1])} and {names[-1]}",
        subtitle=_subtitle(runs),
        facts=[Fact(name, value) for name, value in facts.items()],
        notices=[*comparison.notes, *(f"skipped {reason}" for reason in comparison.skipped.values())],
        training_charts=recall_charts(comparison),
        cutoffs=CUTOFFS,
        baseline=comparison.baseline.name,
        recall=_recall_table(runs),
        rsums=[RsumRow(run.name, metric(run.result, "rsum"), _differences(run).get("rsum")) for run in runs],
        cross_retrieval=cross_retrieval_chart(cross_ranks) if cross_ranks else None,
        differing=differing_queries(comparison, seed) if len(result.folds) == 1 else [],
    )


def recall_charts(comparison: Comparison) -> list[Markup]:
    """R@1 on val against the epoch: one chart per direction, one line per run."""
    return [
        line_chart(
            {run.name: val_curve(run.epochs, f"{prefix}_r1") for run in comparison.runs},
            title=f"{name.capitalize()} on val",
            x_label="epoch",
            y_label="R@1, percent",
            marks=_stage_marks(comparison.runs),
        )
        for name, prefix in _DIRECTIONS
    ]


def _subtitle(runs: Sequence[ComparedRun]) -> str:
    """The titles of the recipes, each with the names of its runs unless all runs share one title."""
    titles: dict[str, list[str]] = {}
    for run in runs:
        titles.setdefault(run.title, []).append(run.name)
    if len(titles) == 1:
        return runs[0].title
    return "; ".join(f"{', '.join(names)}: {title}" for title, names in titles.items() if title)


def _stage_marks(runs: Sequence[ComparedRun]) -> list[Mark]:
    """Where stages start; a mark that several runs share is drawn once, in the colour of the first of them."""
    marks: dict[tuple[float, str], Mark] = {}
    for line, run in enumerate(runs):
        for mark in stage_marks(run.epochs, line):
            marks.setdefault((mark.x, mark.text), mark)
    return list(marks.values())


def _recall_table(runs: Sequence[ComparedRun]) -> dict[DirectionName, list[RunRecallRow]]:
    """The rows of the recall table by direction."""
    table = {}
    rows_by_run = [recall_rows(run.result) for run in runs]
    for position, (name, prefix) in enumerate(_DIRECTIONS):
        chance = _mean_chance(runs[0].result, name)
        table[name] = [
            RunRecallRow(
                run.name,
                replace(rows[position], chance=chance),
                {k: differences[f"{prefix}_r{k}"] for k in CUTOFFS} if (differences := _differences(run)) else {},
            )
            for run, rows in zip(runs, rows_by_run, strict=True)
        ]
    return table


def _mean_chance(result: RetrievalResult, direction: DirectionName) -> dict[int, float]:
    """The recall of random guessing, averaged over folds."""
    sides = [(fold.image_groups, fold.text_groups) for fold in result.folds]
    if direction == "text to image":
        sides = [(texts, images) for images, texts in sides]
    return {k: float(np.mean([chance_recall(queries, answers, k) for queries, answers in sides])) for k in CUTOFFS}


def _differences(run: ComparedRun) -> Mapping[str, Difference]:
    return {} if run.difference is None else run.difference.differences
