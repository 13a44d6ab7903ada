"""Corpora from datasets of Hugging Face's `datasets`; no image is decoded until it is read."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from PIL import Image

from diptych.data.corpus import Corpus
from diptych.data.from_python import ColumnNames, Errors, corpus_from_pairs
from diptych.data.parsing import SPLIT_NAMES
from diptych.data.picture_sources import LazyPicture, decode_stored
from diptych.errors import DataError, did_you_mean


def corpus_from_huggingface(dataset: Any, columns: ColumnNames, name: str, errors: Errors) -> Corpus:
    """See `Corpus.from_huggingface`."""
    parts = dict(dataset) if isinstance(dataset, Mapping) else {"": dataset}
    if not parts:
        raise DataError(f"{name}: an empty dict of datasets; give at least one")
    splits_by_part = len(parts) > 1 and columns.split is None
    rows = _Rows()
    for part, content in parts.items():
        _check_dataset(content, name)
        found = columns.checked(f"{name} {part}".strip(), content.column_names)
        split = _part_split(part, name) if splits_by_part else None
        rows.add(content, found, f"{part}/" if len(parts) > 1 else "", split)
    return corpus_from_pairs(
        rows.images, rows.texts, rows.splits, groups=rows.groups, ids=rows.ids, name=name, errors=errors
    )


class _Rows:
    """The columns of one or several datasets, one below the other."""

    def __init__(self) -> None:
        self.images: list[Any] = []
        self.texts: list[Any] = []
        self.ids: list[Any] = []
        self.groups: list[Any] | None = None
        self.splits: list[Any] | None = None

    def add(self, dataset: Any, columns: ColumnNames, prefix: str, split: str | None) -> None:
        """Add the rows of a dataset; `prefix` keeps the ids of several datasets apart."""
        plain = dataset.with_format(None)  # without a transform or a conversion to tensors
        before, count = len(self.texts), len(plain)
        values = plain.select_columns(columns.named())[:]
        is_lazy = type(plain.features[columns.image]).__name__ == "Image"
        names = [f"{row:06d}" for row in range(count)] if columns.id is None else values[columns.id]
        ids = [f"{prefix}{name}" for name in names]
        if is_lazy:
            self.images += _lazy_pictures(plain, columns.image, ids)
        else:
            self.images += plain.select_columns([columns.image])[:][columns.image]
        self.ids += ids if is_lazy or columns.id is not None else [None] * count  # a path is its own id
        self.texts += values[columns.text]
        splits = [split] * count if split is not None else values.get(columns.split)
        self.splits = _extended(self.splits, splits, before, count)
        self.groups = _extended(self.groups, values.get(columns.group), before, count)


def _extended(column: list[Any] | None, values: list[Any] | None, before: int, count: int) -> list[Any] | None:
    """A column of `before` rows with the `count` rows of one more dataset; it exists if any dataset has it."""
    if column is None and values is None:
        return None
    return [*([None] * before if column is None else column), *([None] * count if values is None else values)]


def _lazy_pictures(dataset: Any, column: str, names: list[str]) -> list[LazyPicture]:
    # Without decoding, a row is the bytes or the path of a file, which is decoded as all others are.
    stored = dataset.select_columns([column]).cast_column(column, type(dataset.features[column])(decode=False))
    return [LazyPicture(name, partial(_decode_row, stored, row, column, name)) for row, name in enumerate(names)]


def _decode_row(stored: Any, row: int, column: str, name: str) -> Image.Image:
    return decode_stored(stored[row][column] or {}, name)


def _part_split(part: str, name: str) -> str:
    if str(part).lower() not in SPLIT_NAMES:
        raise DataError(
            f"{name}: a dataset called {part!r}, which is not a split; {did_you_mean(str(part), SPLIT_NAMES)} "
            "Or give one of the datasets, or name a column with split="
        )
    return SPLIT_NAMES[str(part).lower()]


def _check_dataset(dataset: Any, name: str) -> None:
    if not all(hasattr(dataset, attribute) for attribute in ("column_names", "features", "select_columns")):
        raise DataError(
            f"{name}: of type {type(dataset).__name__}; give a Dataset or a DatasetDict of the package datasets"
        )
    if not hasattr(dataset, "__len__"):
        raise DataError(
            f"{name}: a streamed dataset has no length; load it without streaming=True, or give a part of it to "
            "Corpus.from_records"
        )
