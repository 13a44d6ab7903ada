"""A comparison of runs as a terminal table, as Markdown and as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from diptych.evaluation.metrics.paired_difference import Difference
from diptych.evaluation.metrics.recall import CUTOFFS, IMAGE_TO_TEXT, TEXT_TO_IMAGE
from diptych.report.comparison.compare import ComparedRun, Comparison
from diptych.report.training_curves import trained_epochs

NOT_SIGNIFICANT = "n.s."

_DIRECTIONS = (("image to text", IMAGE_TO_TEXT), ("text to image", TEXT_TO_IMAGE))
_MARKDOWN = re.compile(r"([\\`*_\[\]<>|&~#$])")


def comparison_table(comparison: Comparison) -> Table:
    """A terminal table: one row per run, one column per metric, and below a value its difference from the baseline."""
    table = Table(title=escape(comparison.title), box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    table.add_column("", overflow="fold")
    for name in (*(f"R@{cutoff}" for cutoff in CUTOFFS), "median", "mean"):
        table.add_column(name, justify="right", no_wrap=True)
    for label, prefix in _DIRECTIONS:
        table.add_row(f"[bold]{label}[/]")
        names = [f"{prefix}_r{cutoff}" for cutoff in CUTOFFS]
        for run in comparison.runs:
            metrics = run.result.metrics.to_json()
            median = f"{metrics[f'{prefix}_median']:.1f}".removesuffix(".0")  # whole, unless averaged over folds
            cells = [*(_metric_cell(run, name) for name in names), median, f"{metrics[f'{prefix}_mean']:.1f}"]
            table.add_row(escape(run.name), *cells)
        table.add_section()
    table.add_row("[bold]rsum[/]")
    for run in comparison.runs:
        table.add_row(escape(run.name), _metric_cell(run, "rsum"))
    table.caption = table_caption(_bootstrap(comparison), comparison.baseline.name)
    return table


def comparison_markdown(comparison: Comparison) -> str:
    """The recalls and rsum as a Markdown table: one row per run, and one for its difference from the baseline."""
    heads = [f"{label} R@{cutoff}" for label, _ in _DIRECTIONS for cutoff in CUTOFFS]
    rows = [["run", *heads, "rsum"], ["---", *["---:"] * (len(heads) + 1)]]
    rows += [[escape_markdown(name), *cells] for name, cells in _markdown_rows(comparison)]
    legend = markdown_legend(_bootstrap(comparison))
    return f"{escape_markdown(comparison.title)}\n\n{markdown_table(rows)}\n\n{legend}\n"


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """Every run's metrics, intervals and difference from the baseline; the keys are stable."""
    result = comparison.baseline.result
    corpus = comparison.corpus
    return {
        "data": {"name": corpus.name, "address": corpus.address, "split": comparison.split},
        "protocol": result.protocol,
        "images": result.images,
        "texts": result.texts,
        "folds": len(result.folds),
        "baseline": comparison.baseline.name,
        "runs": [_run_json(run) for run in comparison.runs],
        "skipped": comparison.skipped,
        "notes": list(comparison.notes),
    }


def _run_json(run: ComparedRun) -> dict[str, Any]:
    return {
        "name": run.name,
        "path": str(run.path),
        "title": run.title,
        "epochs": trained_epochs(run.epochs),
        "metrics": run.result.metrics.to_json(),
        "intervals": run.result.intervals.to_json(),
        "difference": run.difference and run.difference.to_json(),
        "cross_retrieval": run.cross_retrieval and run.cross_retrieval.to_json(),
    }


def _bootstrap(comparison: Comparison) -> str:
    intervals = comparison.baseline.result.intervals
    return f"{100 * intervals.level:g}% intervals from {intervals.draws:,} draws of groups, the same for every run"


def table_caption(bootstrap: str, baseline: str) -> str:
    """How to read the differences in a terminal table; `bootstrap` says how the intervals were computed."""
    return (
        f"{bootstrap}; below a value, the difference from {escape(baseline)}: * if its interval excludes 0, "
        f"otherwise {NOT_SIGNIFICANT} (not significant)"
    )


def markdown_legend(bootstrap: str) -> str:
    """How to read the differences in a Markdown table."""
    return (
        f"In brackets: {bootstrap}. "
        rf"\* the interval of the difference excludes 0; {NOT_SIGNIFICANT} (not significant): it includes 0."
    )


def _metric_cell(run: ComparedRun, name: str) -> str:
    difference = None if run.difference is None else run.difference.differences[name]
    return value_cell(run.result.metrics.to_json()[name], run.result.intervals.bounds[name], difference)


def value_cell(value: float, bounds: tuple[float, float], difference: Difference | None) -> str:
    """A cell of a terminal table: a value with its interval and, below it, the difference from the baseline."""
    shown = f"{value:.1f} [dim]{bounds[0]:.1f}–{bounds[1]:.1f}[/]"
    if difference is None:
        return shown
    significant = f"[bold]{difference.value:+.1f}*[/]"
    change = significant if difference.is_significant else f"{_signed(difference.value)} {NOT_SIGNIFICANT}"
    return f"{shown}\n{change}\n[dim]{difference.low:+.1f} to {difference.high:+.1f}[/]"


def _markdown_rows(comparison: Comparison) -> Iterator[tuple[str, Sequence[str]]]:
    names = list(comparison.baseline.result.intervals.bounds)
    for run in comparison.runs:
        metrics, bounds = run.result.metrics.to_json(), run.result.intervals.bounds
        yield run.name, [markdown_value(metrics[name], bounds[name]) for name in names]
        if run.difference is not None:
            differences = run.difference.differences
            yield f"{run.name} − {comparison.baseline.name}", [markdown_difference(differences[name]) for name in names]


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as a Markdown table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def markdown_value(value: float, bounds: tuple[float, float]) -> str:
    """A value with its interval."""
    return f"{value:.1f} [{bounds[0]:.1f}, {bounds[1]:.1f}]"


def markdown_difference(difference: Difference) -> str:
    """A difference with its interval, in bold if it is significant."""
    value = (
        rf"**{difference.value:+.1f}**\*"
        if difference.is_significant
        else f"{_signed(difference.value)} {NOT_SIGNIFICANT}"
    )
    return f"{value} [{difference.low:+.1f}, {difference.high:+.1f}]"


def _signed(value: float) -> str:
    return f"{round(value, 1) + 0.0:+.1f}"  # no negative zero


def escape_markdown(text: str) -> str:
    """A name on one line, with all Markdown markup escaped."""
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split()))
