"""The terminal table of a run beside what it started from, the starter and the paper."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from diptych.evaluation.metrics.paired_difference import Difference
from diptych.evaluation.metrics.recall import CUTOFFS, IMAGE_TO_TEXT, TEXT_TO_IMAGE
from diptych.report.baselines import BaselineComparison, MeasuredBaseline
from diptych.training.recipe import Figure, Figures, Row

_RECALLS = [f"{prefix}_r{cutoff}" for prefix in (IMAGE_TO_TEXT, TEXT_TO_IMAGE) for cutoff in CUTOFFS]


def baseline_table(comparison: BaselineComparison, split: str) -> Table:
    """One row each for the run, its baselines, the differences, and the published figures; measured on a split."""
    result = comparison.result
    others = [_described(baseline) for baseline in comparison.baselines]
    against = " and ".join([*others, *(["the paper"] if comparison.published else [])])
    title = f"{comparison.name} against {against} on {split}: {result.images:,} images, {result.texts:,} texts"
    table = Table(title=escape(title), box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("", overflow="fold")
    for name in [*(name.replace("_r", "\nR@") for name in _RECALLS), "rsum"]:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_row(f"[bold]{escape(comparison.name)}[/]", *_cells(result.metrics.to_json()))
    for baseline in comparison.baselines:
        table.add_row(baseline.roles[-1], *_cells(baseline.result.metrics.to_json()))
        differences = [baseline.difference.differences[name] for name in (*_RECALLS, "rsum")]
        rsum = differences[-1]
        bounds = f"\n[dim]{rsum.low:+.1f} to {rsum.high:+.1f}[/]"
        table.add_row("difference", *map(_difference, differences[:-1]), _difference(rsum) + bounds)
        table.caption = f"* the {100 * baseline.difference.level:g}% interval of the difference excludes 0"
    if comparison.published:
        table.add_section()
    for label, row in comparison.published.items():
        table.add_row(escape(label), *_published(row))
    return table


def _described(baseline: MeasuredBaseline) -> str:
    return "the starter" if "starter" in baseline.roles else f"its start ({baseline.name})"


def _cells(metrics: dict[str, float]) -> list[str]:
    return [f"{metrics[name]:.1f}" for name in (*_RECALLS, "rsum")]


def _difference(difference: Difference) -> str:
    value = f"{round(difference.value, 1) + 0.0:+.1f}"  # no negative zero
    return f"[bold]{value}*[/]" if difference.is_significant else value


def _published(row: Row) -> list[str]:
    figures = [*_recalls(row.i2t), *_recalls(row.t2i)]
    numbers = [figure for figure in figures if not isinstance(figure, str)]
    rsum = f"{sum(numbers):.1f}" if len(numbers) == len(figures) else "-"
    return [*(figure if isinstance(figure, str) else f"{figure:.1f}" for figure in figures), rsum]


def _recalls(figures: Figures | None) -> Sequence[Figure]:
    return ("-", "-", "-") if figures is None else figures[:3]
