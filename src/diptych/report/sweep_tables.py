"""Tables of several runs, for the terminal and as Markdown.

One row per seed is Table I of the ConVSE paper, one row per setting of a sweep its Table II.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from diptych.evaluation.protocols.seeds import SUMS, SeedStatistics
from diptych.training.sweep_plan import Sweep, SweepSetting

MIN_NAME_WIDTH = 7  # an 80-column terminal has no more room beside seven standard deviations
REMARK = "* is the value of the recipe."

# Metrics by run, split and name.
MetricsByRun = Mapping[str, Mapping[str, Mapping[str, float]]]


@dataclass(frozen=True)
class TextTable:
    """A table of strings: a header and blocks of rows; the columns after the first `name_columns` are numbers."""

    title: str
    header: Sequence[str]
    blocks: Sequence[Sequence[Sequence[str]]]
    name_columns: int
    remark: str = ""

    def render(self) -> Table:
        """The table for the terminal; a standard deviation is below its mean, to keep columns narrow."""
        table = Table(title=escape(self.title), box=SIMPLE_HEAD, padding=(0, 0, 0, 1), caption=self.remark or None)
        for name in self.header[: self.name_columns]:
            table.add_column(name, overflow="fold", min_width=MIN_NAME_WIDTH)
        for name in self.header[self.name_columns :]:
            table.add_column(name.replace(" ", "\n"), justify="right", no_wrap=True)
        for block in self.blocks:
            for row in block:
                figures = (cell.replace(" (", "\n(") for cell in row[self.name_columns :])
                table.add_row(*map(escape, row[: self.name_columns]), *figures)
            table.add_section()
        return table

    def to_markdown(self) -> str:
        """The table as Markdown."""
        aligned = ["---"] * self.name_columns + ["---:"] * (len(self.header) - self.name_columns)
        rows = [self.header, aligned, *(row for block in self.blocks for row in block)]
        lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
        return "\n".join([self.title, "", *lines, *(["", self.remark] if self.remark else []), ""])


def column_headings(statistics: SeedStatistics) -> list[str]:
    """The headings of the metrics, such as "I2T R@1" for i2t_r1."""
    return [name.replace("_", " ") if name in SUMS else name.upper().replace("_R", " R@") for name in statistics.mean]


def seeds_table(statistics: SeedStatistics, title: str) -> TextTable:
    """Table I: one row per run, then the mean and the standard deviation of each metric."""
    runs = [
        [name, *(f"{metrics[metric]:.1f}" for metric in statistics.mean)] for name, metrics in statistics.runs.items()
    ]
    label = "mean" if statistics.std is None else "mean (std)"
    return TextTable(title, ["Run", *column_headings(statistics)], [runs, [[label, *_figures(statistics)]]], 1)


@dataclass(frozen=True)
class SettingRow:
    """A setting of a sweep, measured on the split of the table and on val, by which the best setting is chosen."""

    setting: SweepSetting
    statistics: SeedStatistics
    val: SeedStatistics

    @property
    def val_total(self) -> float:
        """The sum of recalls on val, averaged over seeds."""
        return self.val.mean[self.val.sum_metric]


@dataclass(frozen=True)
class SweepResult:
    """A sweep with the metrics of its runs."""

    sweep: Sweep
    split: str
    blocks: Sequence[Sequence[SettingRow]]

    @classmethod
    def of(cls, sweep: Sweep, measured: MetricsByRun, split: str) -> SweepResult:
        """Arrange the metrics of each run, on `split` and on val, by setting."""

        def metrics_on(setting: SweepSetting, part: str) -> SeedStatistics:
            return SeedStatistics({run: measured[run][part] for run in setting.runs})

        blocks = [
            [SettingRow(setting, metrics_on(setting, split), metrics_on(setting, "val")) for setting in each]
            for each in sweep.blocks
        ]
        return cls(sweep, split, blocks)

    @property
    def best(self) -> SettingRow:
        """The row with the highest sum of recalls on val; the first one if several are equal."""
        return max((row for block in self.blocks for row in block), key=lambda row: row.val_total)

    @property
    def best_line(self) -> str:
        """The best setting and its sum of recalls, as a sentence."""
        values = self.best.setting.values
        named = ", ".join(f"{self.sweep.labels[key]} = {value}" for key, value in values.items())
        default = ", as in the recipe" if self.best.setting.is_default else ""
        return f"best by {self.best.val.sum_metric} on val: {named} ({self.best.val_total:.1f}{default})"

    def table(self, title: str) -> TextTable:
        """Table II: one block per key (a single block for a grid), one row per value; the recipe's value is marked."""
        blocks = [[self._cells(row, first=row is block[0]) for row in block] for block in self.blocks]
        return TextTable(title, ["Hyp.", "Val.", *column_headings(self.best.statistics)], blocks, 2, REMARK)

    def to_markdown(self, title: str) -> str:
        """The table, followed by the best setting."""
        return f"{self.table(title).to_markdown()}\n{self.best_line}\n"

    def to_json(self) -> dict[str, Any]:
        """All settings and the best one; the keys are stable."""
        return {
            "split": self.split,
            "settings": [_row_json(row) for block in self.blocks for row in block],
            "best": _row_json(self.best),
        }

    def _cells(self, row: SettingRow, first: bool) -> list[str]:
        setting = row.setting
        names = ", ".join(self.sweep.labels[key] for key in setting.values) if first else ""
        values = ", ".join(setting.values.values()) + (" *" if setting.is_default else "")
        return [names, values, *_figures(row.statistics)]


def _row_json(row: SettingRow) -> dict[str, Any]:
    setting = {"values": dict(row.setting.values), "own": row.setting.is_default}
    return {**setting, f"val_{row.val.sum_metric}": row.val_total, **row.statistics.to_json()}


def _figures(statistics: SeedStatistics) -> list[str]:
    """The mean of each metric and, with several runs, its standard deviation."""
    mean, std = statistics.mean, statistics.std
    return [f"{mean[name]:.1f}" + ("" if std is None else f" ({std[name]:.2f})") for name in mean]
