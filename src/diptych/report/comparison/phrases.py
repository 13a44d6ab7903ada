"""Compare runs on phrase localisation: the metrics of each run on the same phrases, and differences from the first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from diptych.data.corpus import Corpus
from diptych.data.origin import open_origin
from diptych.errors import DataError
from diptych.evaluation.localisation.evaluate_phrases import evaluate_phrases
from diptych.evaluation.localisation.phrase_metrics import (
    DRAWS,
    LEVEL,
    PHRASE,
    GroundingResult,
    paired_phrase_difference,
)
from diptych.evaluation.metrics.paired_difference import PairedDifferences
from diptych.evaluation.metrics.recall import CUTOFFS
from diptych.model import Model
from diptych.report.comparison.compare import check_comparable, run_names
from diptych.report.comparison.tables import (
    escape_markdown,
    markdown_difference,
    markdown_legend,
    markdown_table,
    markdown_value,
    table_caption,
    value_cell,
)
from diptych.training.recipe_loader import load_recipe

COLUMNS = {f"{PHRASE}_r{cutoff}": f"R@{cutoff}" for cutoff in CUTOFFS} | {f"{PHRASE}_sum": "sum", "ceiling": "ceiling"}

# Localises the phrases of a corpus with a run; the run's name is passed for progress displays.
Localise = Callable[[str, Model, Corpus], GroundingResult]


@dataclass(frozen=True, eq=False)
class ComparedPhraseRun:
    """One of the compared runs; `difference` is this run minus the baseline, None for the baseline itself."""

    path: Path
    name: str
    title: str
    found: GroundingResult
    difference: PairedDifferences | None = None

    def cell(self, name: str) -> str:
        """A metric with its interval and, below it, the difference from the baseline."""
        difference = None if self.difference is None else self.difference.differences[name]
        return value_cell(self.found.metrics[name], self.found.intervals.bounds[name], difference)


@dataclass(frozen=True, eq=False)
class PhraseComparison:
    """Runs measured on the phrases of the photos that all of them can read, in the given order."""

    corpus: Corpus
    split: str
    runs: tuple[ComparedPhraseRun, ...]
    notes: Sequence[str] = ()

    @property
    def title(self) -> str:
        """The data and the number of phrases and images."""
        found = self.runs[0].found
        photos = len(np.unique(found.images))
        return f"{self.corpus.name}, split {self.split}: {len(found):,} phrases in {photos:,} images"

    def render(self) -> Table:
        """A terminal table with one row per run, and the difference from the baseline below a value."""
        table = Table(title=escape(self.title), box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
        table.add_column("", overflow="fold")
        *recalls, total, ceiling = COLUMNS
        for name in recalls:
            table.add_column(COLUMNS[name], justify="right", no_wrap=True)
        for head, names in (("phrases", recalls), (COLUMNS[total], [total]), (COLUMNS[ceiling], [ceiling])):
            table.add_row(f"[bold]{head}[/]")
            for run in self.runs:
                table.add_row(escape(run.name), *(run.cell(name) for name in names))
            table.add_section()
        table.caption = table_caption(_BOOTSTRAP, self.runs[0].name)
        return table

    def to_markdown(self) -> str:
        """A Markdown table: one row per run, and one for its difference from the baseline."""
        rows = [["run", *COLUMNS.values()], ["---", *["---:"] * len(COLUMNS)]]
        for run in self.runs:
            metrics, bounds = run.found.metrics, run.found.intervals.bounds
            rows.append([escape_markdown(run.name), *(markdown_value(metrics[name], bounds[name]) for name in COLUMNS)])
            if run.difference is not None:
                differences = (markdown_difference(run.difference.differences[name]) for name in COLUMNS)
                rows.append([escape_markdown(f"{run.name} − {self.runs[0].name}"), *differences])
        return f"{escape_markdown(self.title)}\n\n{markdown_table(rows)}\n\n{markdown_legend(_BOOTSTRAP)}\n"

    def to_json(self) -> dict[str, Any]:
        """Every run's metrics, intervals and difference from the baseline; the keys are stable."""
        return {
            "data": {"name": self.corpus.name, "address": self.corpus.address, "split": self.split},
            "baseline": self.runs[0].name,
            "runs": [
                {
                    "name": run.name,
                    "path": str(run.path),
                    "title": run.title,
                    **run.found.to_json(),
                    "difference": run.difference and run.difference.to_json(),
                }
                for run in self.runs
            ],
            "notes": list(self.notes),
        }


_BOOTSTRAP = f"{100 * LEVEL:g}% intervals from {DRAWS:,} draws of images, the same for every run"


def compare_phrases(
    runs: Sequence[Path],
    corpus: Corpus | None = None,
    split: str = "test",
    *,
    device: str = "auto",
    stores: Path | None = None,
    localise: Localise | None = None,
) -> PhraseComparison:
    """Measure phrase localisation on the photos that all runs can read; the first run is the baseline.

    `corpus` defaults to the one that the runs were trained on. `stores` is the folder with stored features, if any.
    """
    check_comparable(runs)
    corpus, notes = open_origin(runs) if corpus is None else (corpus, [])
    localise = localise or (lambda _, model, part: evaluate_phrases(model, part, split))
    part, names = corpus.split(split), run_names(runs)
    found = [
        localise(name, Model.load(run, device, stores=stores), part) for run, name in zip(runs, names, strict=True)
    ]
    shared = reduce(np.intersect1d, [each.rows for each in found])
    if not len(shared):
        raise DataError(f"{part.name}: no image can be read by all runs; `diptych data check` lists the reasons")
    found = [each.subset(shared) for each in found]
    differences = [None, *(paired_phrase_difference(found[0], each) for each in found[1:])]
    titles = [load_recipe(str(run / "recipe.toml")).title for run in runs]
    return PhraseComparison(part, split, tuple(map(ComparedPhraseRun, runs, names, titles, found, differences)), notes)
