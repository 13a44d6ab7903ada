"""Terminal tables of evaluation results, one function per kind of result."""

from __future__ import annotations

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from diptych.evaluation.analyses.cross_retrieval import INTERVALS, CrossRetrieval
from diptych.evaluation.analyses.score_overlap import ScoreOverlap
from diptych.evaluation.localisation.phrase_metrics import DRAWS, LEVEL, PHRASE, GroundingResult
from diptych.evaluation.metrics.recall import CUTOFFS
from diptych.evaluation.metrics.significance import Intervals
from diptych.evaluation.protocols.rerank import RerankingResult
from diptych.evaluation.protocols.retrieval import RetrievalResult
from diptych.evaluation.protocols.within_modality import PREFIXES, WithinModalityResult
from diptych.evaluation.tabular import TabularResult, bootstrap_caption, with_interval


def retrieval_table(result: RetrievalResult) -> Table:
    """The table that `print(result)` shows, with the intervals dimmed."""
    text = result.table()
    table = Table(title=text.title, caption=text.caption, box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("", no_wrap=True)
    for name in text.header[1:]:
        table.add_column(name, justify="right", no_wrap=name != "mean rank")  # fits 80 columns
    *directions, rsum = ([_dimmed(cell) for cell in row] for row in text.rows)
    for row in directions:
        table.add_row(*row)
    table.add_section()
    table.add_row(*rsum)
    return table


def result_table(result: TabularResult) -> Table:
    """The table that `print(result)` shows, with the second lines dimmed."""
    text = result.table()
    table = Table(title=text.title, caption=text.caption, box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for number, name in enumerate(text.header):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    for row in text.rows:
        table.add_row(*map(_dimmed, row))
    return table


def within_modality_table(result: WithinModalityResult) -> Table:
    """One row: recalls with their intervals, and ranks."""
    prefix, recalls = PREFIXES[result.modality], result.metrics.recalls
    table = Table(title=f"{result.modality} among {result.size:,} {result.modality}", box=SIMPLE_HEAD)
    for name in [*(f"R@{cutoff}" for cutoff in recalls), "median", "mean rank"]:
        table.add_column(name, justify="right")
    cells = [_with_interval(value, f"{prefix}_r{cutoff}", result.intervals) for cutoff, value in recalls.items()]
    table.add_row(*cells, f"{result.metrics.median:g}", f"{result.metrics.mean:.1f}")
    table.caption = bootstrap_caption(result.intervals.level, result.intervals.draws)
    if result.ranks.singletons:
        table.caption += f"; {result.ranks.singletons:,} alone in their group, not used as queries"
    return table


def reranking_table(result: RerankingResult) -> Table:
    """One row per list length: recalls in both directions, the percentage of pairs scored, and the time."""
    first = result.rows[0]
    images, texts = len(first.ranks.images), len(first.ranks.texts)
    table = Table(title=f"reranked: {images:,} images, {texts:,} texts", box=SIMPLE_HEAD, pad_edge=False)
    directions = (("i2t", first.metrics.image_to_text), ("t2i", first.metrics.text_to_image))
    recalls = [f"{name}\nR@{cutoff}" for name, direction in directions for cutoff in direction.recalls]
    for name in ["top", *recalls, "rsum", "% of\npairs", "seconds"]:
        table.add_column(name, justify="right", no_wrap=True)
    for row in result.rows:
        top = {0: "list alone", None: "all"}.get(row.top, f"{row.top:,}" if row.top else "")
        both = (row.metrics.image_to_text, row.metrics.text_to_image)
        values = [*(recall for direction in both for recall in direction.recalls.values()), row.metrics.rsum]
        table.add_row(top, *(f"{value:.1f}" for value in values), f"{row.percent_scored:.2f}", f"{row.seconds:.1f}")
    table.caption = "seconds of listing and scoring, without encoding"
    return table


def cross_retrieval_table(result: CrossRetrieval) -> Table:
    """One column per interval of cross-retrieval ranks: the percentage of pairs in it."""
    table = Table(title=f"cross-retrieval rank of {len(result.cross_ranks):,} pairs", box=SIMPLE_HEAD)
    table.add_column("", no_wrap=True)
    for name in INTERVALS:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_row("percent", *(f"{share:.1f}" for share in result.percentages.values()))
    return table


def overlap_table(result: ScoreOverlap) -> Table:
    """The mean scores of positive and negative pairs, and the area that their distributions share."""
    low, high = result.interval
    table = Table(title="scores of positive and negative pairs", box=SIMPLE_HEAD)
    for name in ("", "pairs", "mean score"):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    table.add_row("positive", f"{result.positives:,}", f"{result.positive_mean:.4f}")
    table.add_row("negative", f"{result.negatives:,}", f"{result.negative_mean:.4f}")
    table.add_section()
    table.add_row("shared area S", "", f"{result.shared:.4f}\n[dim]{low:.4f}–{high:.4f}[/]")
    table.caption = f"{len(result.edges) - 1} bins from {result.edges[0]:.4g} to {result.edges[-1]:.4g}"
    return table


def phrase_table(result: GroundingResult) -> Table:
    """Phrase localisation: one row for all mentions, with intervals, then one row per kind of phrase."""
    title = f"{len(result):,} phrases in {len(np.unique(result.images)):,} images"
    table = Table(title=f"{title}: a region is right from overlap {result.overlap:g}", box=SIMPLE_HEAD)
    table.add_column("", no_wrap=True)
    for name in ["phrases", *(f"R@{cutoff}" for cutoff in CUTOFFS), "ceiling"]:
        table.add_column(name, justify="right")
    names = [*(f"{PHRASE}_r{cutoff}" for cutoff in CUTOFFS), "ceiling"]
    cells = (_with_interval(result.metrics[name], name, result.intervals) for name in names)
    table.add_row("all", f"{len(result):,}", *cells)
    if result.by_kind:
        table.add_section()
    for kind, metrics in result.by_kind.items():
        table.add_row(kind, f"{metrics['count']:,}", *(f"{metrics[name]:.1f}" for name in names))
    table.caption = bootstrap_caption(LEVEL, DRAWS, "images")
    if result.skipped or result.empty:
        table.caption += f"; images left out: {len(result.skipped):,}, without a region: {len(result.empty):,}"
    return table


def _with_interval(value: float, name: str, intervals: Intervals) -> str:
    return _dimmed(with_interval(value, intervals.bounds[name]))


def _dimmed(cell: str) -> str:
    """A cell whose second line, the interval, is dimmed."""
    value, _, interval = cell.partition("\n")
    return f"{value}\n[dim]{interval}[/]" if interval else value
