"""Several runs that find phrases, on the same phrases: what each reaches, and how far it differs from the first."""

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
from diptych.errors import DataError
from diptych.evaluation.localisation.localise import evaluate_phrases
from diptych.evaluation.localisation.phrase_metrics import DRAWS, LEVEL, PHRASE, GroundingResult
from diptych.evaluation.metrics.paired_difference import PairedDifferences, paired_phrase_difference
from diptych.evaluation.metrics.recall import CUTOFFS
from diptych.models.trained import Trained
from diptych.report.comparison.compare import check_several, run_names
from diptych.report.comparison.tables import NOTHING, cell, escaped, markdown_change, markdown_table, markdown_value
from diptych.training.origin import open_origin
from diptych.training.recipe_loader import load_recipe

COLUMNS = {f"{PHRASE}_r{cutoff}": f"R@{cutoff}" for cutoff in CUTOFFS} | {f"{PHRASE}_sum": "sum", "ceiling": "ceiling"}

# Finds the phrases of a corpus with a run, whose name is given to tell people what is being done.
Find = Callable[[str, Trained, Corpus], GroundingResult]


@dataclass(frozen=True, eq=False)
class ComparedOnPhrases:
    """One of the runs; `difference` is this run minus the baseline, on the same draws, which itself has none."""

    path: Path
    name: str
    title: str
    found: GroundingResult
    difference: PairedDifferences | None = None

    def cell(self, name: str) -> str:
        """A metric with its interval, and beneath it how far it lies above the baseline's."""
        difference = None if self.difference is None else self.difference.differences[name]
        return cell(self.found.metrics[name], self.found.intervals.bounds[name], difference)


@dataclass(frozen=True, eq=False)
class PhraseComparison:
    """Runs measured on the phrases of the photos that all of them can read, in the order in which they were named."""

    corpus: Corpus
    split: str
    runs: tuple[ComparedOnPhrases, ...]
    notes: Sequence[str] = ()

    @property
    def title(self) -> str:
        """What was measured, in words."""
        found = self.runs[0].found
        photos = len(np.unique(found.images))
        return f"{self.corpus.name}, split {self.split}: {len(found):,} phrases in {photos:,} images"

    def render(self) -> Table:
        """A table for people: a row a run, and beneath a value how far it is from the baseline's."""
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
        table.caption = (
            f"{_DRAWN}; beneath the values the difference from {escape(self.runs[0].name)}: "
            f"a star where its interval leaves out 0, else {NOTHING}"
        )
        return table

    def to_markdown(self) -> str:
        """The same table in Markdown: a row a run, and one for its difference from the baseline."""
        rows = [["run", *COLUMNS.values()], ["---", *["---:"] * len(COLUMNS)]]
        for run in self.runs:
            metrics, bounds = run.found.metrics, run.found.intervals.bounds
            rows.append([escaped(run.name), *(markdown_value(metrics[name], bounds[name]) for name in COLUMNS)])
            if run.difference is not None:
                changes = (markdown_change(run.difference.differences[name]) for name in COLUMNS)
                rows.append([escaped(f"{run.name} − {self.runs[0].name}"), *changes])
        legend = (
            f"In brackets {_DRAWN}. "
            rf"\* the interval of the difference leaves out 0; where it holds 0, there is {NOTHING}."
        )
        return f"{escaped(self.title)}\n\n{markdown_table(rows)}\n\n{legend}\n"

    def to_json(self) -> dict[str, Any]:
        """Every run's metrics, intervals and difference from the baseline under lasting names."""
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


_DRAWN = f"{100 * LEVEL:g}% intervals from {DRAWS:,} draws of images, the same for every run"


def compare_phrases(
    runs: Sequence[Path],
    corpus: Corpus | None = None,
    split: str = "test",
    *,
    device: str = "auto",
    stores: Path | None = None,
    find: Find | None = None,
) -> PhraseComparison:
    """Measure runs that find phrases on the same phrases; the first is the baseline.

    Without a corpus, they are measured on the one that they were trained on. `stores` is a folder that may hold
    features of their backbones.
    """
    check_several(runs)
    corpus, notes = open_origin(runs) if corpus is None else (corpus, [])
    find = find or (lambda _, trained, part: evaluate_phrases(trained, part, split))
    part, names = corpus.split(split), run_names(runs)
    found = [find(name, Trained.open(run, device, stores=stores), part) for run, name in zip(runs, names, strict=True)]
    shared = reduce(np.intersect1d, [each.rows for each in found])
    if not len(shared):
        raise DataError(f"{part.name}: no image can be read by all the runs; `diptych data check` says why")
    found = [each.only(shared) for each in found]
    differences = [None, *(paired_phrase_difference(found[0], each) for each in found[1:])]
    titles = [load_recipe(str(run / "recipe.toml")).title for run in runs]
    return PhraseComparison(part, split, tuple(map(ComparedOnPhrases, runs, names, titles, found, differences)), notes)
