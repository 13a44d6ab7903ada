"""The result of a data check for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from diptych.data.check import CorpusReport

_MAX_LINES = 50  # of each list


def data_check_summary(report: CorpusReport) -> RenderableType:
    """Sizes, distributions, what splits have in common, and one line per problem, up to a limit."""
    return Group(
        _sizes(report),
        "",
        _spreads(report),
        *_grounding(report),
        "",
        *_shared(report),
        *_list("image without a text", report.images_without_texts),
        *_list("text without an image", report.texts_without_images),
        *_list("problem", [str(problem) for problem in report.problems]),
    )


def _sizes(report: CorpusReport) -> Table:
    table = Table(title=Text(_printable(report.name), "bold"), title_justify="left")
    table.add_column("split")
    for column in ("images", "texts", "groups"):
        table.add_column(column, justify="right")
    for name, size in report.splits.items():
        table.add_row(name, f"{size.images:,}", f"{size.texts:,}", f"{size.groups:,}")
    table.add_section()
    table.add_row("all", f"{report.total.images:,}", f"{report.total.texts:,}", f"{report.total.groups:,}")
    return table


def _spreads(report: CorpusReport) -> Table:
    table = Table.grid(padding=(0, 2))
    for name, spread in (("texts per image", report.texts_per_image), ("words per text", report.words_per_text)):
        median = f"median {spread.median:g}"
        table.add_row(name, f"{spread.minimum} to {spread.maximum}", median, f"mean {spread.mean:.1f}")
    return table


def _grounding(report: CorpusReport) -> Iterator[Text]:
    if (found := report.grounding) is not None:
        yield Text(f"phrases: {found.phrases:,}, {found.phrases_without_a_box:,} without a box")
        yield Text(
            f"boxes: {found.boxes:,}, {found.boxes_without_a_phrase:,} without a phrase; "
            f"images without a box: {found.images_without_a_box:,}"
        )


def _shared(report: CorpusReport) -> Iterator[Text]:
    for name, shared in (
        ("identical texts", report.shared_texts),
        ("identical images", report.shared_images),
        ("groups", report.shared_groups),
    ):
        style = "yellow" if shared.count else "green"
        yield Text(f"{name} in more than one split: {shared.count:,}", style)
        yield from (Text(f"  {_printable(example)}") for example in shared.examples)
    if not report.decoded:
        yield Text("images were not decoded", "yellow")


def _list(what: str, lines: Sequence[str]) -> Iterator[Text]:
    """A list under its heading; lines beyond the limit are counted."""
    yield Text(f"{what}: {len(lines):,}" if lines else f"{what}: none", "red" if lines else "green")
    yield from (Text(f"  {_printable(line)}") for line in lines[:_MAX_LINES])
    if len(lines) > _MAX_LINES:
        yield Text(f"  ... and {len(lines) - _MAX_LINES:,} more; --json lists all", "yellow")


def _printable(line: str) -> str:
    """A line without control characters, which could steer a terminal."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in line)
