"""Tables of several runs, for a terminal and as Markdown: a row a seed (ConVSE, Table I), or a row a setting (II)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from diptych.evaluation.protocols.seeds import SUMS, SeedStatistics
from diptych.training.sweep_plan import Setting, Sweep

NARROWEST_NAMES = 7  # what an 80-column terminal has room for beside seven deviations
MARKED = "What the recipe itself has is marked with *."

# The metrics of runs by their names, and of each by the split that it was measured on.
Measured = Mapping[str, Mapping[str, Mapping[str, float]]]


@dataclass(frozen=True)
class Sheet:
    """A table as text: a header, blocks of rows; the first columns are names, the others figures."""

    title: str
    header: Sequence[str]
    blocks: Sequence[Sequence[Sequence[str]]]
    names: int
    remark: str = ""

    def render(self) -> Table:
        """The table for a terminal: narrow columns, a deviation below its mean."""
        table = Table(title=escape(self.title), box=SIMPLE_HEAD, padding=(0, 0, 0, 1), caption=self.remark or None)
        for name in self.header[: self.names]:
            table.add_column(name, overflow="fold", min_width=NARROWEST_NAMES)
        for name in self.header[self.names :]:
            table.add_column(name.replace(" ", "\n"), justify="right", no_wrap=True)
        for block in self.blocks:
            for row in block:
                figures = (cell.replace(" (", "\n(") for cell in row[self.names :])
                table.add_row(*map(escape, row[: self.names]), *figures)
            table.add_section()
        return table

    def to_markdown(self) -> str:
        """The table as Markdown."""
        aligned = ["---"] * self.names + ["---:"] * (len(self.header) - self.names)
        rows = [self.header, aligned, *(row for block in self.blocks for row in block)]
        lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
        return "\n".join([self.title, "", *lines, *(["", self.remark] if self.remark else []), ""])


def column_heads(several: SeedStatistics) -> list[str]:
    """What the columns of the metrics are called, such as "I2T R@1" for i2t_r1."""
    return [name.replace("_", " ") if name in SUMS else name.upper().replace("_R", " R@") for name in several.mean]


def seeds_sheet(several: SeedStatistics, title: str) -> Sheet:
    """Table I: a row a run, then the mean of each metric with its standard deviation."""
    runs = [[name, *(f"{metrics[metric]:.1f}" for metric in several.mean)] for name, metrics in several.runs.items()]
    label = "mean" if several.std is None else "mean (std)"
    return Sheet(title, ["Run", *column_heads(several)], [runs, [[label, *_figures(several)]]], 1)


@dataclass(frozen=True)
class Row:
    """A setting of a sweep, measured on the split of the table and on val, which chooses."""

    setting: Setting
    several: SeedStatistics
    val: SeedStatistics

    @property
    def chosen_by(self) -> float:
        """The mean sum of recalls on val."""
        return self.val.mean[self.val.total]


@dataclass(frozen=True)
class SweepResult:
    """A sweep whose runs were measured."""

    sweep: Sweep
    split: str
    blocks: Sequence[Sequence[Row]]

    @classmethod
    def of(cls, sweep: Sweep, measured: Measured, split: str) -> SweepResult:
        """Put the metrics of each run, on `split` and on val, where its settings stand."""

        def on(setting: Setting, part: str) -> SeedStatistics:
            return SeedStatistics({run: measured[run][part] for run in setting.runs})

        blocks = [[Row(setting, on(setting, split), on(setting, "val")) for setting in each] for each in sweep.blocks]
        return cls(sweep, split, blocks)

    @property
    def best(self) -> Row:
        """The row with the highest sum of recalls on val; of equal ones the first."""
        return max((row for block in self.blocks for row in block), key=lambda row: row.chosen_by)

    @property
    def best_line(self) -> str:
        """The best setting, and what it reached, in words."""
        values = self.best.setting.values
        named = ", ".join(f"{self.sweep.labels[key]} = {value}" for key, value in values.items())
        own = ", the recipe's own" if self.best.setting.own else ""
        return f"best by {self.best.val.total} on val: {named} ({self.best.chosen_by:.1f}{own})"

    def sheet(self, title: str) -> Sheet:
        """Table II: a block a key (one block of all in a grid), a row a value, the recipe's own one marked."""
        blocks = [[self._cells(row, first=row is block[0]) for row in block] for block in self.blocks]
        return Sheet(title, ["Hyp.", "Val.", *column_heads(self.best.several)], blocks, 2, MARKED)

    def to_markdown(self, title: str) -> str:
        """The table and the line that names the best."""
        return f"{self.sheet(title).to_markdown()}\n{self.best_line}\n"

    def to_json(self) -> dict[str, Any]:
        """Everything under lasting names."""
        return {
            "split": self.split,
            "settings": [_row_json(row) for block in self.blocks for row in block],
            "best": _row_json(self.best),
        }

    def _cells(self, row: Row, first: bool) -> list[str]:
        setting = row.setting
        names = ", ".join(self.sweep.labels[key] for key in setting.values) if first else ""
        values = ", ".join(setting.values.values()) + (" *" if setting.own else "")
        return [names, values, *_figures(row.several)]


def _row_json(row: Row) -> dict[str, Any]:
    setting = {"values": dict(row.setting.values), "own": row.setting.own}
    return {**setting, f"val_{row.val.total}": row.chosen_by, **row.several.to_json()}


def _figures(several: SeedStatistics) -> list[str]:
    """The mean of each metric, and where there are several runs its standard deviation."""
    mean, std = several.mean, several.std
    return [f"{mean[name]:.1f}" + ("" if std is None else f" ({std[name]:.2f})") for name in mean]
