"""The filters of a search as an expression of Milvus; texts have the values of their image."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from diptych.errors import DataError, did_you_mean
from diptych.index.entries import Filters
from diptych.index.milvus.schema import literal

Known = Callable[[], Sequence[str]]


def expression(filters: Filters, splits: Known, columns: Known) -> str:
    """The condition that entries meet; empty if every entry does. The index must have the splits and columns named."""
    conditions = []
    if filters.folder is not None and (folder := filters.folder.strip("/")) not in ("", "."):
        below = f"folder > {literal(f'{folder}/')} and folder < {literal(f'{folder}0')}"  # 0 follows /
        conditions.append(f"(folder == {literal(folder)} or ({below}))")
    if filters.since is not None:
        conditions.append(f"day >= {literal(filters.since)}")
    if filters.until is not None:
        conditions.append(f'(day != "" and day <= {literal(filters.until)})')
    if filters.split is not None:
        _check(filters.split, splits(), "split")
        conditions.append(f"split == {literal(filters.split)}")
    for column, value in filters.columns:
        _check(column, columns(), "column")
        conditions.append(f"columns[{literal(column)}] == {literal(value)}")
    return " and ".join(conditions)


def _check(name: str, known: Sequence[str], kind: str) -> None:
    if name not in known:
        hint = did_you_mean(name, known) if known else f"its source has no {kind}s"
        raise DataError(f"no {kind} {name!r} in the index; {hint}")
