"""Corpora from Python objects: pairs, tables in memory and records, by the rules that files of tables follow.

Rows with the same image are one image with several texts. An image is the same if its path, its id or (without these)
the object itself is. Rows with the same group are one group; without a group, an image is a group of its own. Without
splits, a hash of names decides, as for tables.
"""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Corpus, Features, Picture
from diptych.data.corpus_builder import CorpusBuilder
from diptych.data.image_finder import ImageFinder
from diptych.data.parsing import clean_text, hashed_split, identifier, non_empty, split_name
from diptych.data.picture_sources import as_picture, image_path
from diptych.errors import DataError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

Errors = Literal["raise", "skip"]

_MISSING_TYPES = ("NAType", "NaTType")  # of pandas, which need not be installed


@dataclasses.dataclass(frozen=True)
class ColumnNames:
    """The names of the columns of a table in memory; None is the usual name, if there is such a column."""

    image: str
    text: str
    split: str | None = None
    group: str | None = None
    id: str | None = None

    def checked(self, name: str, known: Iterable[str]) -> ColumnNames:
        """The columns that there are, None for those that are neither named nor there; DataError if one is missing."""
        known = list(known)
        for column in (self.image, self.text, self.split, self.group, self.id):
            if column is not None and column not in known:
                raise DataError(f"{name}: no column {column!r}; {did_you_mean(column, map(str, known))}")
        usual = {role: role for role in ("split", "group") if getattr(self, role) is None and role in known}
        return dataclasses.replace(self, **usual)

    def named(self) -> list[str]:
        """The names of all columns but the image's."""
        return [name for name in (self.text, self.split, self.group, self.id) if name is not None]


def corpus_from_pairs(  # noqa: PLR0913 (columns, by keyword)
    images: Iterable[Any] | None,
    texts: Iterable[Any],
    splits: Iterable[Any] | str | None = None,
    *,
    groups: Iterable[Any] | None = None,
    ids: Iterable[Any] | None = None,
    features: Any = None,
    folder: Path | str | None = None,
    name: str = "pairs",
    errors: Errors = "raise",
) -> Corpus:
    """See `Corpus.from_pairs`."""
    if errors not in ("raise", "skip"):
        raise DataError(f"errors = {errors!r}; {did_you_mean(str(errors), ('raise', 'skip'))}")
    text_column, stored = _column(texts, "texts"), _checked_features(features, name)
    if images is None and stored is None:
        raise DataError(f"{name}: neither images nor features; give one of them")
    columns: dict[str, list[Any] | None] = {
        "images": None if images is None else _column(images, "images"),
        "splits": [splits] * len(text_column) if isinstance(splits, str) else _optional(splits, "splits"),
        "groups": _optional(groups, "groups"),
        "ids": _optional(ids, "ids"),
    }
    present = {what: column for what, column in columns.items() if column is not None}
    lengths = {what: len(column) for what, column in present.items()}
    lengths |= {} if stored is None else {"rows of features": len(stored)}
    for what, length in lengths.items():
        if length != len(text_column):
            raise DataError(f"{name}: {length:,} {what}, but {len(text_column):,} texts; give one per pair")
    if not text_column:
        raise DataError(f"{name}: no pairs in it; give at least one image and its text")
    pairs = _Pairs(name, present, _existing(folder), stored, errors)
    nothing = [None] * len(text_column)
    rows = zip(*(columns[what] or nothing for what in ("images", "splits", "groups", "ids")), text_column, strict=True)
    for row, (image, split, group, given_id, text) in enumerate(rows):
        with pairs.reading(row):
            pairs.add(row, image, _captions(text), split=split, group=_plain(group), given_id=_plain(given_id))
    return pairs.build()


def corpus_from_columns(
    frame: Any, columns: ColumnNames, folder: Path | str | None, name: str, errors: Errors
) -> Corpus:
    """See `Corpus.from_dataframe`."""
    names = getattr(frame, "columns", None)
    if names is None and not isinstance(frame, Mapping):
        raise DataError(f"{name}: of type {type(frame).__name__}; give a data frame or a dict of columns")
    columns = columns.checked(name, frame if names is None else names)
    values = {column: _values(frame[column]) for column in (columns.image, *columns.named())}
    return corpus_from_pairs(
        values[columns.image],
        values[columns.text],
        None if columns.split is None else values[columns.split],
        groups=None if columns.group is None else values[columns.group],
        ids=None if columns.id is None else values[columns.id],
        folder=folder,
        name=name,
        errors=errors,
    )


def corpus_from_records(
    records: Iterable[Any], columns: ColumnNames, folder: Path | str | None, name: str, errors: Errors
) -> Corpus:
    """See `Corpus.from_records`."""
    positions = (columns.image, columns.text, columns.split or "split")
    rows = [_fields(record, positions, f"{name}, row {row}") for row, record in enumerate(_column(records, "records"))]
    if not rows:
        raise DataError(f"{name}: no records in it; give at least one image and its text")
    known = dict.fromkeys(column for fields in rows for column in fields)
    table = {column: [fields.get(column) for fields in rows] for column in known}
    return corpus_from_columns(table, columns, folder, name, errors)


class _Pairs:
    """Adds pairs to a corpus, one by one; `present` are the columns that they have."""

    def __init__(
        self, name: str, present: Collection[str], folder: Path, features: NDArray[Any] | None, errors: Errors
    ) -> None:
        self._name, self._present, self._errors = name, present, errors
        self._builder = CorpusBuilder(Path(name))
        self._features = features
        self._finder = ImageFinder([folder])
        self._images: dict[Hashable, tuple[str, Hashable, str, int]] = {}  # id, group, split and row
        self._texts: set[tuple[Hashable, str, str]] = set()

    def reading(self, row: int) -> AbstractContextManager[None]:
        """Read one row in the block; what is wrong there is raised, or becomes a Problem."""
        return self._builder.reading_row(Path(self._name), row) if self._errors == "skip" else self._raising(row)

    @contextmanager
    def _raising(self, row: int) -> Iterator[None]:
        try:
            yield
        except DataError as reason:
            raise DataError(f"{self._name}, row {row} (counted from 0): {reason}") from None

    def add(self, row: int, image: Any, captions: list[str], *, split: Any, group: Any, given_id: Any) -> None:
        """Add an image with its texts; a DataError leaves everything as it was."""
        has_splits = "splits" in self._present
        key, image_id = _identity(row, image, given_id)
        if key in self._images:
            image_id = self._images[key][0]  # that of an object in memory is its first row
        group_key: Hashable = ("image", image_id) if group is None else str(identifier(group, "group"))
        split = split_name(_plain(split)) if has_splits else hashed_split(image_id if group is None else str(group_key))
        if key in self._images:
            _, *known, first = self._images[key]
            if known != [group_key, split]:
                what = "group" if known[0] != group_key else "split"
                raise DataError(f"image {image_id!r} is in another {what} at row {first}")
            if self._features is not None and not np.array_equal(self._features[row], self._features[first]):
                raise DataError(f"image {image_id!r} has other features at row {first}")
        else:
            picture = self._picture(image, image_id) if "images" in self._present else None
            self._builder.add_image(image_id, picture, group_key, split, is_default=not has_splits)
            self._images[key] = image_id, group_key, split, row
        for caption in captions:
            if (group_key, split, caption) not in self._texts:
                self._texts.add((group_key, split, caption))
                self._builder.add_text(caption, group_key, split)

    def build(self) -> Corpus:
        """The corpus of all pairs."""
        corpus = dataclasses.replace(self._builder.build(), name=self._name)
        if self._features is None:
            return corpus
        rows = np.array([row for *_, row in self._images.values()], np.int64)
        return dataclasses.replace(corpus, features=Features([self._features], rows))

    def _picture(self, image: Any, image_id: str) -> Picture:
        path = image_path(image)
        return as_picture(image, image_id) if path is None else as_picture(self._finder.find(path.strip()), image_id)


def _identity(row: int, image: Any, given_id: Any) -> tuple[Hashable, str]:
    """What makes an image the same as that of another row, and its id, which is the same in every process."""
    if given_id is not None:
        image_id = non_empty(str(identifier(given_id, "id")), "id")
        return image_id, image_id
    if (path := image_path(image)) is not None:
        image_id = posixpath.normpath(non_empty(path, "image"))
        return image_id, image_id
    return ("object", row if image is None else id(image)), f"{row:06d}"


def _captions(value: Any) -> list[str]:
    """The texts of a row: a string, or several."""
    if isinstance(value, list | tuple | np.ndarray):
        if not len(value):
            raise DataError("no text")
        return [clean_text(_plain(one)) for one in value]
    return [clean_text(_plain(value))]


def _plain(value: Any) -> Any:
    """A value of NumPy as one of Python, and None for what pandas uses for a missing value."""
    if isinstance(value, np.generic):
        value = value.item()
    is_nan = isinstance(value, float) and value != value  # noqa: PLR0124
    return None if is_nan or type(value).__name__ in _MISSING_TYPES else value


def _column(values: Any, what: str) -> list[Any]:
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise DataError(f"{what} is of type {type(values).__name__}; give a list with one entry per pair")
    return list(values)


def _existing(folder: Path | str | None) -> Path:
    """The folder of the images, which paths are relative to."""
    images = Path.cwd() if folder is None else Path(folder).expanduser().absolute()
    if not images.is_dir():
        raise DataError(f"{images}: no such folder of images")
    return images


def _optional(values: Any, what: str) -> list[Any] | None:
    return None if values is None else _column(values, what)


def _values(column: Any) -> list[Any]:
    """The values of a column, without the wrappers of pandas and polars."""
    for method in ("to_list", "tolist"):
        if not isinstance(column, np.ndarray) and callable(getattr(column, method, None)):
            return list(getattr(column, method)())
    return list(column)


def _fields(record: Any, positions: Sequence[str], where: str) -> dict[str, Any]:
    """The values of a record by name; those of a plain tuple are (image, text) or (image, text, split)."""
    if isinstance(record, Mapping):
        return dict(record)
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {each.name: getattr(record, each.name) for each in dataclasses.fields(record)}
    if isinstance(record, tuple | list):
        names = getattr(record, "_fields", positions[: len(record)])
        if len(record) != len(names) or len(names) < 2:
            raise DataError(f"{where}: {len(record)} values; give (image, text) or (image, text, split)")
        return dict(zip(names, record, strict=True))
    if isinstance(fields := getattr(record, "__dict__", None), dict) and fields:
        return dict(fields)
    raise DataError(f"{where}: of type {type(record).__name__}; give a dict, a dataclass or a tuple (image, text)")


def _checked_features(features: Any, name: str) -> NDArray[Any] | None:
    if features is None:
        return None
    values = np.asarray(features)
    if not np.issubdtype(values.dtype, np.floating) or values.ndim not in (2, 3):
        raise DataError(
            f"{name}: features are {values.dtype} of shape {values.shape}; they must be floating-point numbers of "
            "shape (pairs, size) or (pairs, regions, size)"
        )
    for row, value in enumerate(values):
        if not np.isfinite(value).all():
            raise DataError(f"{name}, row {row} (counted from 0): its features have a NaN or an infinite number")
    return values
