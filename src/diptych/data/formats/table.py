"""Tables of images and texts: CSV, TSV, JSONL, parquet.

A table has the columns `image` and `text`, and optionally `group` and `split`. Rows with the same image are one image
with several texts; rows with the same group are one group of images and texts, in which a repeated text counts once.
Without a group, an image is a group of its own. Without a `split` column, a hash of the group's name (or the image's,
if it has no group) puts 90 % of the groups in train, 5 % in val and 5 % in test: a name is always in the same split,
whatever else the table holds. The images are beside the table, or in `images/` there.
"""

from __future__ import annotations

import csv
import json
import posixpath
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from diptych.data.address import Address
from diptych.data.corpus import Corpus
from diptych.data.corpus_builder import CorpusBuilder
from diptych.data.image_finder import ImageFinder
from diptych.data.parsing import clean_text, hashed_split, identifier, json_object, non_empty, read_lines, split_name
from diptych.errors import DataError, location

ORDER = 60
DESCRIPTION = "a table (.csv, .tsv, .jsonl, .parquet)"
TABLE_SUFFIXES = frozenset({".csv", ".tsv", ".jsonl", ".parquet"})

COLUMN_NAMES = {
    "image": ("image", "file", "filename", "file_name", "image_path", "filepath"),
    "text": ("text", "caption", "sentence", "description"),
    "group": ("group",),
    "split": ("split",),
}
_ALL_COLUMN_NAMES = frozenset(name for names in COLUMN_NAMES.values() for name in names)
_QUOTED = re.compile(r'"(?:[^"]|"")*"')

AddProblem = Callable[[int, str], None]  # takes the row and the message
Records = Iterable[tuple[int, Mapping[str, object]]]  # row and values by column


def has_header(line: str) -> bool:
    """Whether the first line of a text file names the columns of a table."""
    names = {name.strip(' "\r\n').lower() for name in re.split("[,;\t]", line)}
    return bool(names.intersection(COLUMN_NAMES["image"]) and names.intersection(COLUMN_NAMES["text"]))


def recognises(address: Address) -> bool:
    """A file whose name ends like that of a table."""
    return address.path.suffix.lower() in TABLE_SUFFIXES and address.path.is_file()


def read(address: Address) -> Corpus:
    """Read a table."""
    file, images = address.path, address.images()
    builder = CorpusBuilder(file)
    add_table(builder, file, ImageFinder([file.parent, file.parent / "images"] if images is None else [images]))
    return builder.build()


def extra_columns(file: Path) -> dict[str, dict[str, str]]:
    """The other columns of a table, by image: the strings and numbers in the first row of each image."""

    def ignore(_row: int, _message: str) -> None:
        """Reading the corpus has reported the problems."""

    names, records = read_records(file, ignore)
    columns = find_columns(file, names, COLUMN_NAMES, ("image", "text"))
    corpus_columns = set(columns.values())
    found: dict[str, dict[str, str]] = {}
    for _, values in records:
        image = values.get(columns["image"])
        if isinstance(image, str) and (name := posixpath.normpath(image.strip())) not in found:
            found[name] = {
                column.strip(): str(value).strip()
                for column, value in values.items()
                if column not in corpus_columns and isinstance(value, str | int | float) and str(value).strip()
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
    """Add the rows of a table, with a prefix to the images' names.

    If the table has no split column, `split_of` may tell the split of an image; otherwise the hash does.
    """

    def add_problem(row: int, message: str) -> None:
        builder.add_problem(file, row, message)

    names, records = _reader(file)(file, add_problem)
    columns = find_columns(file, names, COLUMN_NAMES, ("image", "text"))
    images: dict[str, _Image] = {}
    texts: dict[Hashable, set[tuple[str, str]]] = {}  # of groups that the table names, with their splits
    for row, values in records:
        with builder.reading_row(file, row):
            text = clean_text(values.get(columns["text"]))
            name = posixpath.normpath(non_empty(values.get(columns["image"]), "image"))
            group = _group_name(values.get(columns.get("group", "")))
            key: Hashable = ("image", prefix + name) if group is None else group
            own_split = split_name(values.get(columns["split"])) if "split" in columns else split_of(name)
            image = images.get(name)
            if own_split is None and image is not None and image.group == key:
                split = image.split
            else:
                split = own_split or hashed_split(prefix + name if group is None else group)

            if image is None:
                builder.add_image(prefix + name, finder.find(name), key, split, is_default=own_split is None)
                image = images[name] = _Image(key, split, row, {})
            elif (image.group, image.split) != (key, split):
                what = "group" if image.group != key else "split"
                raise DataError(f"image {name!r} is in another {what} at row {image.row}")
            elif text in image.texts:
                raise DataError(f"the same image and text as at row {image.texts[text]}")
            image.texts[text] = row
            if group is None:  # then the image is the group, and the text is new to it
                builder.add_text(text, image.group, split)
            elif (split, text) not in (of_group := texts.setdefault(group, set())):
                of_group.add((split, text))
                builder.add_text(text, key, split)


@dataclass(slots=True)
class _Image:
    """An image of a table: its group and split, its first row, and the row of each of its texts."""

    group: Hashable
    split: str
    row: int
    texts: dict[str, int]


def read_records(file: Path, add_problem: AddProblem) -> tuple[Iterable[str], Records]:
    """The column names and the rows of a table of any kind, with all columns of strings and numbers."""
    return _read_parquet(file, add_problem, plain=True) if _is_parquet(file) else _reader(file)(file, add_problem)


def find_columns(
    file: Path, names: Iterable[str], roles: Mapping[str, Sequence[str]], required: Iterable[str]
) -> dict[str, str]:
    """The table's own name of each role that it has, such as "Caption" for a text; the first of a role's names wins."""
    plain = {name.strip().lower(): name for name in names}
    columns = {role: plain[alias] for role, aliases in roles.items() for alias in reversed(aliases) if alias in plain}
    for role in required:
        if role not in columns:
            found = ", ".join(map(repr, sorted(plain)[:10]))
            raise DataError(f"{file}: no column {' or '.join(roles[role])}; it has {found or 'none'}")
    return columns


def _group_name(value: object) -> str | None:
    """The name of a group; None if the cell is empty."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    return str(identifier(value, "group"))


def _reader(file: Path) -> Callable[[Path, AddProblem], tuple[Iterable[str], Records]]:
    if _is_parquet(file):
        return _read_parquet
    return _read_json_lines if file.suffix.lower() == ".jsonl" else _read_cells


def _is_parquet(file: Path) -> bool:
    return file.suffix.lower() == ".parquet"


def _read_cells(file: Path, add_problem: AddProblem) -> tuple[Iterable[str], Records]:
    """The column names and the rows of a CSV or TSV file."""
    lines = read_lines(file)
    if not lines or "\0" in lines[0]:
        raise DataError(f"{file}: {'not UTF-8 text; save it as UTF-8' if lines else 'an empty file'}")
    separator = max(",;\t", key=lines[0].count)
    cells = _tab_cells(lines) if separator == "\t" else _comma_cells(lines, separator, add_problem)
    _, names = next(cells, (1, []))
    if len(set(names)) < len(names):
        raise DataError(f"{file}:1: two columns have the same name; rename one")

    def records() -> Iterator[tuple[int, Mapping[str, object]]]:
        for row, values in cells:
            if len(values) == len(names):
                yield row, dict(zip(names, values, strict=True))
            elif any(values):
                remedy = f"; quote texts that hold {separator!r}" if len(values) > len(names) else ""
                add_problem(row, f"{len(values)} columns, not {len(names)}{remedy}")

    return names, records()


def _tab_cells(lines: list[str]) -> Iterator[tuple[int, list[str]]]:
    # Most TSV files of captions quote nothing, some quote as CSV does: only a cell quoted as a whole is unquoted.
    for row, line in enumerate(lines, 1):
        cells = line.rstrip("\r\n").split("\t")
        yield row, [cell[1:-1].replace('""', '"') if _QUOTED.fullmatch(cell) else cell for cell in cells]


def _comma_cells(lines: list[str], separator: str, add_problem: AddProblem) -> Iterator[tuple[int, list[str]]]:
    """Rows with the line they begin at; a row that cannot be parsed costs only its first line."""
    start = 0  # parsing restarts after a bad line, so that an unclosed quote swallows no other rows
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
            add_problem(start + taken + 1, f"not readable as CSV ({reason})")
            start += taken + 1


def _read_json_lines(file: Path, add_problem: AddProblem) -> tuple[Iterable[str], Records]:
    """The column names and the rows of a JSONL file: the names are all that its objects use."""
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
        add_problem(row, message)
    if not records:
        first = f"; first problem: {location(file, problems[0][0])}: {problems[0][1]}" if problems else ""
        raise DataError(f"{file}: no JSON object in it{first}")
    return dict.fromkeys(name for _, values in records for name in values), records


def _read_parquet(file: Path, add_problem: AddProblem, *, plain: bool = False) -> tuple[Iterable[str], Records]:  # noqa: ARG001
    """The column names and the rows of a parquet file.

    The rows have only the columns of a corpus; with `plain`, also all others of strings and numbers.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise DataError(f"{file}: parquet needs pyarrow; pip install 'diptych[parquet]'") from None
    try:
        table = parquet.ParquetFile(file)
        names = table.schema_arrow.names
        types = pyarrow.types
        is_plain = (types.is_string, types.is_large_string, types.is_integer, types.is_floating, types.is_boolean)
        wanted = [  # other columns may hold whole images
            field.name
            for field in table.schema_arrow
            if field.name.strip().lower() in _ALL_COLUMN_NAMES or (plain and any(test(field.type) for test in is_plain))
        ]
        rows = [row for batch in table.iter_batches(columns=wanted) for row in batch.to_pylist()]
    except (pyarrow.ArrowException, OSError) as reason:
        raise DataError(f"{file}: not a readable parquet file ({str(reason).splitlines()[0]})") from None
    return names, enumerate(rows, 1)
