"""Tables of images and texts (CSV, TSV, JSONL, parquet), and the gathering of rows that all formats share.

A table has the columns `image` and `text`, and may have `group` and `split`. Rows with the same image are one
image with several texts; rows with the same group are one group of images and texts, in which a repeated text
counts once. Without a group an image is a group of its own. Without a `split` column a hash of the group's
name (of the image's name where it has no group) puts 90 % of the groups in train, 5 % in val and 5 % in test:
the same name is always in the same split, whatever else the table holds.
"""

from __future__ import annotations

import csv
import hashlib
import json
import posixpath
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from diptych.data.corpus import SPLITS, Corpus, Problem
from diptych.data.images import ImageFinder, PictureFile, folder_of
from diptych.errors import DataError, nearest, place

TABLE_SUFFIXES = frozenset({".csv", ".tsv", ".jsonl", ".parquet"})

_NAMES = {
    "image": ("image", "file", "filename", "file_name", "image_path", "filepath"),
    "text": ("text", "caption", "sentence", "description"),
    "group": ("group",),
    "split": ("split",),
}
_KNOWN = frozenset(name for names in _NAMES.values() for name in names)
SPLIT_NAMES = {**{name: name for name in SPLITS}, "dev": "val", "valid": "val", "validation": "val"}
_QUOTED = re.compile(r'"(?:[^"]|"")*"')

_Note = Callable[[int, str], None]  # row and message of a problem
_Records = Iterable[tuple[int, Mapping[str, object]]]  # row and values by column


class Gathering:
    """Rows on their way to a corpus: what is wrong with one becomes a Problem, and no other row moves."""

    def __init__(self, source: Path) -> None:
        self._source = source
        self._problems: list[Problem] = []
        self._place: tuple[Path, int | None] = (source, None)
        self._seen: dict[tuple[str, Hashable], tuple[Path, int | None]] = {}
        self._groups: dict[Hashable, int] = {}
        self._images: list[tuple[str, PictureFile, int, str]] = []
        self._texts: list[tuple[str, int, str]] = []

    def problem(self, file: Path, row: int | None, message: str) -> None:
        """Note what is wrong at a place."""
        name = str(file).encode(errors="backslashreplace").decode()  # a file name may be any bytes
        self._problems.append(Problem(name, row, message))

    @contextmanager
    def row(self, file: Path, row: int | None) -> Iterator[None]:
        """Read one row: a DataError raised inside leaves it out and is noted as a Problem."""
        self._place = (file, row)
        try:
            yield
        except DataError as reason:
            self.problem(file, row, str(reason))

    def once(self, what: str, key: Hashable) -> None:
        """Refuse this row if an earlier one had the same key."""
        first = self._seen.setdefault((what, key), self._place)
        if first != self._place:
            raise DataError(f"{what} {key!r} is already at {place(*first)}")

    def image(self, name: str, path: Path, group: Hashable, split: str) -> None:
        """Add an image file to a group; a group is whatever compares equal."""
        self._images.append((name, PictureFile(path), self._number(group), split))

    def text(self, text: str, group: Hashable, split: str) -> None:
        """Add a text to a group."""
        self._texts.append((text, self._number(group), split))

    def corpus(self, remedy: str = "") -> Corpus:
        """Everything gathered; without a single image or text a DataError shows the first problem."""
        if not self._images or not self._texts:
            lacking = "text" if self._images else "image"
            more = f"first problem: {self._problems[0]}" if self._problems else remedy
            raise DataError(f"{self._source}: no usable {lacking} in it" + (f"; {more}" if more else ""))
        ids, pictures, image_groups, image_splits = zip(*self._images, strict=True)
        texts, text_groups, text_splits = zip(*self._texts, strict=True)
        return Corpus(
            name=self._source.resolve().name if self._source.is_dir() else self._source.stem,
            image_ids=ids,
            image_groups=np.array(image_groups, np.int64),
            image_splits=np.array(image_splits, np.str_),
            texts=texts,
            text_groups=np.array(text_groups, np.int64),
            text_splits=np.array(text_splits, np.str_),
            pictures=pictures,
            problems=tuple(self._problems),
        )

    def _number(self, group: Hashable) -> int:
        return self._groups.setdefault(group, len(self._groups))


def object_in(value: object) -> dict[str, object]:
    """A JSON object; anything else is a DataError."""
    if not isinstance(value, dict):
        raise DataError(f"a {type(value).__name__}, not a JSON object")
    return value


def id_in(value: object, what: str) -> int | str:
    """A whole number or a string that names something; anything else is a DataError."""
    return value if type(value) is int else filled(value, what)


def filled(value: object, what: str) -> str:
    """A string that says something; anything else is a DataError."""
    if value is None:
        raise DataError(f"no {what}")
    if not isinstance(value, str):
        raise DataError(f"the {what} is of type {type(value).__name__}, not a string")
    try:
        value.encode()
    except UnicodeEncodeError:  # half a character, or bytes that were kept as they are when reading
        raise DataError(f"the {what} is not valid UTF-8; write it in UTF-8") from None
    if not (value := value.strip()):
        raise DataError(f"the {what} is empty")
    return value


def text_in(value: object) -> str:
    """A text with single blanks for its white space; anything but a string with words is a DataError."""
    return " ".join(filled(value, "text").split())


def split_in(value: object) -> str:
    """One of the corpus' splits; anything else is a DataError that offers the nearest."""
    name = filled(value, "split")
    if name.lower() not in SPLIT_NAMES:
        raise DataError(f"unknown split {name!r}; {nearest(name.lower(), SPLITS)}")
    return SPLIT_NAMES[name.lower()]


def hashed_split(group: str) -> str:
    """The split that a group's name falls in: train for 90 % of all names, val and test for 5 % each."""
    at = int.from_bytes(hashlib.blake2b(group.encode(), digest_size=8).digest(), "big") / 2**64
    return "train" if at < 0.9 else "val" if at < 0.95 else "test"


def has_header(line: str) -> bool:
    """Whether the first line of a text file names the columns of a table."""
    names = {name.strip(' "\r\n').lower() for name in re.split("[,;\t]", line)}
    return bool(names.intersection(_NAMES["image"]) and names.intersection(_NAMES["text"]))


def read_table(file: Path, images: Path | None = None) -> Corpus:
    """The corpus in a table; its images are in `images`, else beside the table or in `images/` there."""
    gathering = Gathering(file)
    roots = [file.parent, file.parent / "images"] if images is None else [folder_of(images)]
    add_table(gathering, file, ImageFinder(roots))
    return gathering.corpus()


def add_table(
    gathering: Gathering,
    file: Path,
    finder: ImageFinder,
    *,
    prefix: str = "",
    split_of: Callable[[str], str | None] = lambda _: None,
) -> None:
    """Gather the rows of a table, with a prefix to the images' names.

    Where the table has no split column, `split_of` may give the split of an image; else the hash does.
    """

    def note(row: int, message: str) -> None:
        gathering.problem(file, row, message)

    names, records = _reader(file)(file, note)
    columns = _columns(file, names)
    images: dict[str, tuple[Hashable, str, int]] = {}  # group, split and row
    pairs: dict[tuple[str, str], int] = {}
    texts: set[tuple[Hashable, str, str]] = set()
    for row, values in records:
        with gathering.row(file, row):
            text = text_in(values.get(columns["text"]))
            name = posixpath.normpath(filled(values.get(columns["image"]), "image"))
            group = _group_in(values.get(columns.get("group", "")))
            key: Hashable = ("image", prefix + name) if group is None else group
            if "split" in columns:
                split = split_in(values.get(columns["split"]))
            elif name in images and images[name][0] == key:
                split = images[name][1]
            else:
                split = split_of(name) or hashed_split(prefix + name if group is None else group)

            if name not in images:
                gathering.image(prefix + name, finder.find(name), key, split)
                images[name] = key, split, row
            elif images[name][:2] != (key, split):
                what = "group" if images[name][0] != key else "split"
                raise DataError(f"image {name!r} is in another {what} at row {images[name][2]}")
            elif (name, text) in pairs:
                raise DataError(f"the same image and text as at row {pairs[name, text]}")
            pairs[name, text] = row
            if (key, split, text) not in texts:
                texts.add((key, split, text))
                gathering.text(text, key, split)


def _columns(file: Path, names: Iterable[str]) -> dict[str, str]:
    """Which of the table's columns plays which part."""
    plain = {name.strip().lower(): name for name in names}
    columns = {part: plain[known] for part, aliases in _NAMES.items() for known in reversed(aliases) if known in plain}
    for part in ("image", "text"):
        if part not in columns:
            found = ", ".join(map(repr, sorted(plain)[:10]))
            raise DataError(f"{file}: no column {' or '.join(_NAMES[part])}; it has {found or 'none'}")
    return columns


def _group_in(value: object) -> str | None:
    """The name of a group, or nothing where the cell is empty."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    return str(id_in(value, "group"))


def _reader(file: Path) -> Callable[[Path, _Note], tuple[Iterable[str], _Records]]:
    suffix = file.suffix.lower()
    return _read_parquet if suffix == ".parquet" else _read_json_lines if suffix == ".jsonl" else _read_cells


def lines_of(file: Path) -> list[str]:
    """The lines of a text file; bytes that are not UTF-8 are kept as they are, for `filled` to refuse."""
    try:
        # newline="" ends lines at \n, \r and \r\n only; splitlines would also end them inside texts.
        with file.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
            return list(lines)
    except OSError as reason:
        raise DataError(f"{file}: cannot be read ({reason.strerror})") from None


def _read_cells(file: Path, note: _Note) -> tuple[Iterable[str], _Records]:
    """A CSV or TSV file: the names in its first line, and its rows."""
    lines = lines_of(file)
    if not lines or "\0" in lines[0]:
        raise DataError(f"{file}: {'not UTF-8 text; save it as UTF-8' if lines else 'an empty file'}")
    separator = max(",;\t", key=lines[0].count)
    cells = _tab_cells(lines) if separator == "\t" else _comma_cells(lines, separator, note)
    _, names = next(cells, (1, []))
    if len(set(names)) < len(names):
        raise DataError(f"{file}:1: two columns have the same name; rename one")

    def records() -> Iterator[tuple[int, Mapping[str, object]]]:
        for row, values in cells:
            if len(values) == len(names):
                yield row, dict(zip(names, values, strict=True))
            elif any(values):
                remedy = f"; quote texts that hold {separator!r}" if len(values) > len(names) else ""
                note(row, f"{len(values)} columns, not {len(names)}{remedy}")

    return names, records()


def _tab_cells(lines: list[str]) -> Iterator[tuple[int, list[str]]]:
    # Most TSV files of captions quote nothing, some quote like CSV: only a cell quoted as a whole is opened.
    for row, line in enumerate(lines, 1):
        cells = line.rstrip("\r\n").split("\t")
        yield row, [c[1:-1].replace('""', '"') if _QUOTED.fullmatch(c) else c for c in cells]


def _comma_cells(lines: list[str], separator: str, note: _Note) -> Iterator[tuple[int, list[str]]]:
    """Rows with the line they begin at; one that cannot be parsed costs that line only."""
    start = 0  # parsing begins again after a bad line, so that a quote never closed swallows no neighbours
    while start < len(lines):
        rest = map(lines.__getitem__, range(start, len(lines)))
        reader = csv.reader(rest, delimiter=separator, skipinitialspace=True, strict=True)
        taken = 0
        try:
            for cells in reader:
                yield start + taken + 1, cells
                taken = reader.line_num
            return
        except csv.Error as reason:
            note(start + taken + 1, f"not readable as CSV ({reason})")
            start += taken + 1


def _read_json_lines(file: Path, note: _Note) -> tuple[Iterable[str], _Records]:
    """A JSONL file: all names that its objects use, and its rows."""
    records: list[tuple[int, Mapping[str, object]]] = []
    problems: list[tuple[int, str]] = []
    for row, line in enumerate(lines_of(file), 1):
        if not line.strip():
            continue
        try:
            records.append((row, object_in(json.loads(line))))
        except (ValueError, RecursionError) as reason:
            problems.append((row, f"not valid JSON ({getattr(reason, 'msg', 'nested too deeply')})"))
        except DataError as reason:
            problems.append((row, str(reason)))
    for row, message in problems:
        note(row, message)
    if not records:
        first = f"; first problem: {place(file, problems[0][0])}: {problems[0][1]}" if problems else ""
        raise DataError(f"{file}: no JSON object in it{first}")
    return dict.fromkeys(name for _, values in records for name in values), records


def _read_parquet(file: Path, note: _Note) -> tuple[Iterable[str], _Records]:  # noqa: ARG001
    """A parquet file: the names that matter, and its rows."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise DataError(f"{file}: parquet needs pyarrow; pip install 'diptych[parquet]'") from None
    try:
        table = parquet.ParquetFile(file)
        names = table.schema_arrow.names
        wanted = [name for name in names if name.strip().lower() in _KNOWN]  # others may hold whole images
        rows = [row for batch in table.iter_batches(columns=wanted) for row in batch.to_pylist()]
    except (pyarrow.ArrowException, OSError) as reason:
        raise DataError(f"{file}: not a readable parquet file ({str(reason).splitlines()[0]})") from None
    return names, enumerate(rows, 1)
