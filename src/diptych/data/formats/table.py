"""Tables of images and texts: CSV, TSV, JSONL, parquet.

A table has the columns `image` and `text`, and may have `group` and `split`. Rows with the same image are one
image with several texts; rows with the same group are one group of images and texts, in which a repeated text
counts once. Without a group an image is a group of its own. Without a `split` column a hash of the group's
name (of the image's name where it has no group) puts 90 % of the groups in train, 5 % in val and 5 % in test:
the same name is always in the same split, whatever else the table holds.
"""

from __future__ import annotations

import csv
import json
import posixpath
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from pathlib import Path

from diptych.data.corpus import Corpus
from diptych.data.corpus_builder import CorpusBuilder
from diptych.data.images import ImageFinder, folder_of
from diptych.data.parsing import clean_text, hashed_split, identifier, json_object, non_empty, read_lines, split_name
from diptych.errors import DataError, location

TABLE_SUFFIXES = frozenset({".csv", ".tsv", ".jsonl", ".parquet"})

_NAMES = {
    "image": ("image", "file", "filename", "file_name", "image_path", "filepath"),
    "text": ("text", "caption", "sentence", "description"),
    "group": ("group",),
    "split": ("split",),
}
_KNOWN = frozenset(name for names in _NAMES.values() for name in names)
_QUOTED = re.compile(r'"(?:[^"]|"")*"')

_Note = Callable[[int, str], None]  # row and message of a problem
_Records = Iterable[tuple[int, Mapping[str, object]]]  # row and values by column


def has_header(line: str) -> bool:
    """Whether the first line of a text file names the columns of a table."""
    names = {name.strip(' "\r\n').lower() for name in re.split("[,;\t]", line)}
    return bool(names.intersection(_NAMES["image"]) and names.intersection(_NAMES["text"]))


def read_table(file: Path, images: Path | None = None) -> Corpus:
    """The corpus in a table; its images are in `images`, else beside the table or in `images/` there."""
    builder = CorpusBuilder(file)
    roots = [file.parent, file.parent / "images"] if images is None else [folder_of(images)]
    add_table(builder, file, ImageFinder(roots))
    return builder.build()


def extra_columns(file: Path) -> dict[str, dict[str, str]]:
    """What a table says of each image besides its texts, group and split: strings and numbers of its first row."""

    def ignore(_row: int, _message: str) -> None:
        """Who reads the corpus has told the problems."""

    names, records = _read_parquet(file, ignore, plain=True) if _is_parquet(file) else _reader(file)(file, ignore)
    columns = _columns(file, names)
    own = set(columns.values())
    found: dict[str, dict[str, str]] = {}
    for _, values in records:
        image = values.get(columns["image"])
        if isinstance(image, str) and (name := posixpath.normpath(image.strip())) not in found:
            further = {column: value for column, value in values.items() if column not in own}
            found[name] = {
                column.strip(): str(value).strip()
                for column, value in further.items()
                if isinstance(value, str | int | float) and str(value).strip()
            }
    return found


def add_table(
    builder: CorpusBuilder,
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
        builder.add_problem(file, row, message)

    names, records = _reader(file)(file, note)
    columns = _columns(file, names)
    images: dict[str, tuple[Hashable, str, int]] = {}  # group, split and row
    pairs: dict[tuple[str, str], int] = {}
    texts: set[tuple[Hashable, str, str]] = set()
    for row, values in records:
        with builder.reading_row(file, row):
            text = clean_text(values.get(columns["text"]))
            name = posixpath.normpath(non_empty(values.get(columns["image"]), "image"))
            group = _group_in(values.get(columns.get("group", "")))
            key: Hashable = ("image", prefix + name) if group is None else group
            if "split" in columns:
                split = split_name(values.get(columns["split"]))
            elif name in images and images[name][0] == key:
                split = images[name][1]
            else:
                split = split_of(name) or hashed_split(prefix + name if group is None else group)

            if name not in images:
                builder.add_image(prefix + name, finder.find(name), key, split)
                images[name] = key, split, row
            elif images[name][:2] != (key, split):
                what = "group" if images[name][0] != key else "split"
                raise DataError(f"image {name!r} is in another {what} at row {images[name][2]}")
            elif (name, text) in pairs:
                raise DataError(f"the same image and text as at row {pairs[name, text]}")
            pairs[name, text] = row
            if (key, split, text) not in texts:
                texts.add((key, split, text))
                builder.add_text(text, key, split)


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
    return str(identifier(value, "group"))


def _reader(file: Path) -> Callable[[Path, _Note], tuple[Iterable[str], _Records]]:
    if _is_parquet(file):
        return _read_parquet
    return _read_json_lines if file.suffix.lower() == ".jsonl" else _read_cells


def _is_parquet(file: Path) -> bool:
    return file.suffix.lower() == ".parquet"


def _read_cells(file: Path, note: _Note) -> tuple[Iterable[str], _Records]:
    """A CSV or TSV file: the names in its first line, and its rows."""
    lines = read_lines(file)
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
    for row, line in enumerate(read_lines(file), 1):
        if not line.strip():
            continue
        try:
            records.append((row, json_object(json.loads(line))))
        except (ValueError, RecursionError) as reason:
            problems.append((row, f"not valid JSON ({getattr(reason, 'msg', 'nested too deeply')})"))
        except DataError as reason:
            problems.append((row, str(reason)))
    for row, message in problems:
        note(row, message)
    if not records:
        first = f"; first problem: {location(file, problems[0][0])}: {problems[0][1]}" if problems else ""
        raise DataError(f"{file}: no JSON object in it{first}")
    return dict.fromkeys(name for _, values in records for name in values), records


def _read_parquet(file: Path, note: _Note, *, plain: bool = False) -> tuple[Iterable[str], _Records]:  # noqa: ARG001
    """A parquet file: all names, and the rows of the columns that matter, or of all with plain values."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise DataError(f"{file}: parquet needs pyarrow; pip install 'diptych[parquet]'") from None
    try:
        table = parquet.ParquetFile(file)
        names = table.schema_arrow.names
        of = pyarrow.types
        kinds = (of.is_string, of.is_large_string, of.is_integer, of.is_floating, of.is_boolean) if plain else ()
        wanted = [  # others may hold whole images
            field.name
            for field in table.schema_arrow
            if field.name.strip().lower() in _KNOWN or any(kind(field.type) for kind in kinds)
        ]
        rows = [row for batch in table.iter_batches(columns=wanted) for row in batch.to_pylist()]
    except (pyarrow.ArrowException, OSError) as reason:
        raise DataError(f"{file}: not a readable parquet file ({str(reason).splitlines()[0]})") from None
    return names, enumerate(rows, 1)
