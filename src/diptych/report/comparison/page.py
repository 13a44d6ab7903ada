"""The page of several runs: recall against the epoch, recalls with their differences, and queries that tell them apart.

The first is Fig. 2 of Faghri et al. 2018 and Fig. 4 of the AOQ paper, whose Fig. 6 are the cross-retrieval ranks; the
last is Fig. 2 and 3 of the ConVSE paper.
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
from diptych.report.comparison.compare import Compared, Comparison
from diptych.report.comparison.differing_queries import Differing, differing_queries
from diptych.report.html import render_template, write_template
from diptych.report.run_page import Direction, DirectionName, Fact, Measure
from diptych.report.sections.cross_retrieval import cross_chart
from diptych.report.sections.recall import directions, measured
from diptych.report.svg_charts import Mark, line_chart
from diptych.report.training_curves import recall_line, stage_marks

_DIRECTIONS: tuple[tuple[DirectionName, str], ...] = (
    ("image to text", IMAGE_TO_TEXT),
    ("text to image", TEXT_TO_IMAGE),
)


@dataclass(frozen=True)
class Row:
    """A run in one direction of the recall table, and its differences from the baseline by their K."""

    name: str
    direction: Direction
    differences: Mapping[int, Difference]


@dataclass(frozen=True)
class Sum:
    """A run's sum of recalls, and its difference from the baseline's, which that does not have."""

    name: str
    rsum: Measure
    difference: Difference | None


@dataclass(frozen=True)
class ComparisonContents:
    """Everything the page of several runs shows; over folds, `cross` is none and `differing` empty."""

    title: str
    subtitle: str
    facts: Sequence[Fact]
    events: Sequence[str]
    curves: Sequence[Markup]
    cutoffs: Sequence[int]
    baseline: str
    blocks: Mapping[DirectionName, Sequence[Row]]
    sums: Sequence[Sum]
    cross: Markup | None
    differing: Sequence[Differing]


def write_comparison(path: Path, comparison: Comparison, seed: int = 0) -> None:
    """Write the whole page or nothing."""
    write_template(path, "comparison.html.j2", contents=comparison_contents(comparison, seed))


def render_comparison(contents: ComparisonContents) -> str:
    """The page as HTML; no text of a run or a corpus can become markup."""
    return render_template("comparison.html.j2", contents=contents)


def comparison_contents(comparison: Comparison, seed: int = 0) -> ComparisonContents:
    """Gather what the page shows; the seed draws the queries that are shown at random."""
    runs, result = comparison.runs, comparison.baseline.result
    facts = {
        "data": f"{comparison.corpus.name}, split {comparison.split}",
        "protocol": result.protocol,
        "images": f"{result.images:,}",
        "texts": f"{result.texts:,}",
        "baseline": comparison.baseline.name,
        **{f"epochs of {run.name}": str(len(run.epochs)) for run in runs},
        "diptych": __version__,
    }
    names = [run.name for run in runs]
    return ComparisonContents(
        title=f"{', '.join(names[:-1])} and {names[-1]}",
        subtitle=_subtitle(runs),
        facts=[Fact(name, value) for name, value in facts.items()],
        events=[*comparison.notes, *(f"skipped {reason}" for reason in comparison.skipped.values())],
        curves=recall_charts(comparison),
        cutoffs=CUTOFFS,
        baseline=comparison.baseline.name,
        blocks=_blocks(runs),
        sums=[Sum(run.name, measured(run.result, "rsum"), _differences(run).get("rsum")) for run in runs],
        cross=cross_chart(crosses) if (crosses := {run.name: run.cross for run in runs if run.cross}) else None,
        differing=differing_queries(comparison, seed) if len(result.folds) == 1 else [],
    )


def recall_charts(comparison: Comparison) -> list[Markup]:
    """R@1 on val against the epoch, a chart a direction, a line a run; of two rounds, the second."""
    return [
        line_chart(
            {run.name: recall_line(run.epochs, f"{prefix}_r1") for run in comparison.runs},
            title=f"{name.capitalize()} on val",
            x_label="epoch",
            y_label="R@1, percent",
            marks=_marks(comparison.runs),
        )
        for name, prefix in _DIRECTIONS
    ]


def _subtitle(runs: Sequence[Compared]) -> str:
    """The titles of the runs' recipes, each once, with the names of its runs where not all have the same."""
    titles: dict[str, list[str]] = {}
    for run in runs:
        titles.setdefault(run.title, []).append(run.name)
    if len(titles) == 1:
        return runs[0].title
    return "; ".join(f"{', '.join(names)}: {title}" for title, names in titles.items() if title)


def _marks(runs: Sequence[Compared]) -> list[Mark]:
    """Where stages begin; what several runs share is marked once, in the colour of the first of them."""
    marks: dict[tuple[float, str], Mark] = {}
    for line, run in enumerate(runs):
        for mark in stage_marks(run.epochs, line):
            marks.setdefault((mark.x, mark.text), mark)
    return list(marks.values())


def _blocks(runs: Sequence[Compared]) -> dict[DirectionName, list[Row]]:
    """The rows of both directions of the recall table."""
    blocks = {}
    measures = [directions(run.result) for run in runs]
    for place, (name, prefix) in enumerate(_DIRECTIONS):
        chance = _chance(runs[0].result, name)
        blocks[name] = [
            Row(
                run.name,
                replace(both[place], chance=chance),
                {k: found[f"{prefix}_r{k}"] for k in CUTOFFS} if (found := _differences(run)) else {},
            )
            for run, both in zip(runs, measures, strict=True)
        ]
    return blocks


def _chance(result: RetrievalResult, direction: DirectionName) -> dict[int, float]:
    """What chance would reach, the mean over folds."""
    sides = [(fold.image_groups, fold.text_groups) for fold in result.folds]
    if direction == "text to image":
        sides = [(texts, images) for images, texts in sides]
    return {k: float(np.mean([chance_recall(queries, answers, k) for queries, answers in sides])) for k in CUTOFFS}


def _differences(run: Compared) -> Mapping[str, Difference]:
    return {} if run.difference is None else run.difference.differences
