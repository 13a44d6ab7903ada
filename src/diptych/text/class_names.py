"""The names of the classes that an image classifier tells apart: ImageNet's, or a list of the user's.

A list is a text file with one class per line, in the order of the classifier's outputs. Further names of the same class
follow after tabs. The first names must differ, because a class is known by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from diptych.errors import DataError, location

IMAGENET = "imagenet"  # the name of the list that comes with the package

ClassNames: TypeAlias = tuple[tuple[str, ...], ...]  # the names of each class, the first of which identifies it


def read_class_names(source: str | Path) -> ClassNames:
    """Read the list of a file, or for "imagenet" the 1,000 classes of ImageNet's classification challenge."""
    path = Path(__file__).parent / "names" / "imagenet.txt" if source == IMAGENET else Path(source)
    if not path.is_file():
        raise DataError(
            f"{source}: no such list of class names; use {IMAGENET!r}, or a text file with one class per line"
        )
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as reason:
        raise DataError(f"{path}: not UTF-8 text (byte {reason.start}); save it as UTF-8") from None
    return parse_class_names(text.rstrip("\n").split("\n"), path)


def parse_class_names(lines: Sequence[str], where: Path | str) -> ClassNames:
    """The names in these lines; an empty line or a repeated first name raises DataError, which names `where`."""
    classes = tuple(tuple(name for field in line.split("\t") if (name := " ".join(field.split()))) for line in lines)
    first_row: dict[str, int] = {}
    for row, names in enumerate(classes, 1):
        if not names:
            raise DataError(f"{location(where, row)}: empty; every line names the class of that number")
        before = first_row.setdefault(names[0].casefold(), row)
        if before != row:
            raise DataError(
                f"{location(where, row)}: the name {names[0]!r} is that of line {before}, too; make them distinct, "
                "such as 'crane, wading bird' and 'crane, lifting tackle'"
            )
    return classes
