"""Compare recipes that were trained with several seeds each: the difference pooled over seeds, with both intervals.

A folder that `diptych train --seeds` has made stands for its runs. The runs of the same name, such as `seed-0`, are
compared with each other, on the same queries and the same draws of groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from diptych.data.corpus import Corpus
from diptych.data.origin import open_origin
from diptych.errors import RunError
from diptych.evaluation.metrics.pooled_difference import Interval, PooledDifference, pool_differences
from diptych.evaluation.protocols.seeds import SeedStatistics
from diptych.report.comparison.compare import run_names
from diptych.report.comparison.tables import NOT_SIGNIFICANT, escape_markdown, markdown_table
from diptych.report.sweep_tables import column_headings

LEGEND = (
    "Mean over seeds (standard deviation), and the difference from {baseline}: * if its interval over queries (q), "
    "pooled over seeds, and its interval over seeds (s) both exclude 0, otherwise n.s. (not significant); both are 95%."
)

# The metrics of a run, and their values in each draw of groups, (draws,), under the same names.
MeasuredRun = tuple[Mapping[str, float], Mapping[str, NDArray[np.float64]]]
MeasureRun = Callable[[Path, Corpus], MeasuredRun]


@dataclass(frozen=True, eq=False)
class ComparedSeeds:
    """One recipe with its runs; `differences` from the baseline are by metric, and None for the baseline."""

    path: Path
    name: str
    statistics: SeedStatistics
    differences: Mapping[str, PooledDifference] | None = None

    def to_json(self) -> dict[str, Any]:
        """Everything under stable names."""
        differences = None
        if self.differences is not None:
            differences = {name: each.to_json() for name, each in self.differences.items()}
        return {"name": self.name, "path": str(self.path), **self.statistics.to_json(), "difference": differences}

    def figures(self) -> list[str]:
        """The mean of each metric with its standard deviation."""
        mean, std = self.statistics.mean, self.statistics.std
        return [f"{mean[name]:.1f}" + ("" if std is None else f" ({std[name]:.2f})") for name in mean]


@dataclass(frozen=True, eq=False)
class SeedComparison:
    """Recipes measured on the same images and texts, in the given order; the first is the baseline."""

    corpus: Corpus
    split: str
    recipes: tuple[ComparedSeeds, ...]
    notes: Sequence[str] = ()

    @property
    def title(self) -> str:
        """The data and the seeds."""
        runs = self.recipes[0].statistics.runs
        return f"{self.corpus.name}, split {self.split}: {', '.join(runs)}"

    def render(self) -> Table:
        """A terminal table: a block per recipe, with one row per metric beside that of the baseline."""
        baseline = self.recipes[0]
        table = Table(title=escape(self.title), box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
        for heading in ("", baseline.name, "", "difference", "over queries", "over seeds"):
            table.add_column(escape(heading), justify="right" if heading else "left", overflow="fold")
        for recipe in self.recipes[1:]:
            table.add_row("", "", f"[bold]{escape(recipe.name)}[/]")
            assert recipe.differences is not None, "of all but the baseline"
            names = zip(column_headings(recipe.statistics), baseline.figures(), recipe.figures(), strict=True)
            for (heading, before, after), difference in zip(names, recipe.differences.values(), strict=True):
                intervals = (difference.over_queries, difference.over_seeds)
                ranges = ["none" if each is None else _range(each) for each in intervals]
                table.add_row(heading, before, after, _marked(difference), *ranges)
            table.add_section()
        table.caption = escape(LEGEND.format(baseline=baseline.name))
        return table

    def to_markdown(self) -> str:
        """The same as Markdown."""
        statistics = self.recipes[0].statistics
        headings = column_headings(statistics)
        rows = [["recipe", *headings], ["---", *["---:"] * len(headings)]]
        for recipe in self.recipes:
            rows.append([escape_markdown(recipe.name), *recipe.figures()])
            if recipe.differences is not None:
                cells = [_cell(recipe.differences[name]).replace("*", r"\*") for name in statistics.mean]
                rows.append([f"{escape_markdown(recipe.name)} − {escape_markdown(self.recipes[0].name)}", *cells])
        legend = LEGEND.format(baseline=escape_markdown(self.recipes[0].name)).replace("* if", r"\* if")
        return f"{escape_markdown(self.title)}\n\n{markdown_table(rows)}\n\n{legend}\n"

    def to_json(self) -> dict[str, Any]:
        """Everything under stable names."""
        return {
            "data": {"name": self.corpus.name, "address": self.corpus.address, "split": self.split},
            "baseline": self.recipes[0].name,
            "recipes": [recipe.to_json() for recipe in self.recipes],
            "notes": list(self.notes),
        }


def _marked(difference: PooledDifference) -> str:
    mark = "*" if difference.is_significant else f" {NOT_SIGNIFICANT}"
    return f"{difference.value + 0.0:+.1f}{mark}"


def _cell(difference: PooledDifference) -> str:
    named = {"q": difference.over_queries, "s": difference.over_seeds}
    return ", ".join([_marked(difference), *(f"{name} {_range(each)}" for name, each in named.items() if each)])


def _range(interval: Interval) -> str:
    return f"{interval[0]:+.1f} to {interval[1]:+.1f}"


def has_seeds(folder: Path) -> bool:
    """Whether a folder holds several runs instead of being one."""
    return not (folder / "recipe.toml").exists() and any(folder.glob("*/recipe.toml"))


def seed_runs(folder: Path) -> dict[str, Path]:
    """The runs of a folder by their names; first stages that a sweep shares are deeper below."""
    return {recipe.parent.name: recipe.parent for recipe in sorted(folder.glob("*/recipe.toml"))}


def compare_seeds(folders: Sequence[Path], corpus: Corpus | None, split: str, measure: MeasureRun) -> SeedComparison:
    """Measure the runs of each folder, and compare those of the same name with those of the first folder.

    `corpus` defaults to the one that the runs were trained on.
    """
    runs = _checked(folders)
    notes: list[str] = []
    if corpus is None:
        corpus, notes = open_origin([run for found in runs for run in found.values()])
    measured = [{name: measure(run, corpus) for name, run in found.items()} for found in runs]
    compared = []
    for folder, name, found in zip(folders, run_names(folders), measured, strict=True):
        statistics = SeedStatistics({seed: metrics for seed, (metrics, _) in found.items()})
        differences = None if found is measured[0] else _differences(measured[0], found, list(statistics.mean))
        compared.append(ComparedSeeds(folder, name, statistics, differences))
    return SeedComparison(corpus, split, tuple(compared), notes)


def _checked(folders: Sequence[Path]) -> list[dict[str, Path]]:
    """The runs of each folder, which must be of the same names; raises RunError otherwise."""
    if len(folders) < 2:
        raise RunError(f"{folders[0]}: only one folder of runs; name at least two to compare, the baseline first")
    for folder in folders:
        if not has_seeds(folder):
            raise RunError(
                f"{folder}: is not a folder of runs with several seeds, as the others are; train it with --seeds"
            )
    runs = [seed_runs(folder) for folder in folders]
    for folder, found in zip(folders, runs, strict=True):
        if differing := sorted(runs[0].keys() ^ found.keys()):
            raise RunError(
                f"{folder}: {differing[0]} is only in one of {folders[0]} and {folder}; seeds are compared one by one, "
                "so train the same ones"
            )
    return runs


def _differences(
    first: Mapping[str, MeasuredRun], second: Mapping[str, MeasuredRun], metrics: Sequence[str]
) -> dict[str, PooledDifference]:
    pooled = {}
    for metric in metrics:
        by_seed = [second[seed][0][metric] - first[seed][0][metric] for seed in first]
        drawn = [second[seed][1][metric] - first[seed][1][metric] for seed in first]
        pooled[metric] = pool_differences(by_seed, drawn)
    return pooled
