"""The contents of an export folder, readable without torch.

The folder has both towers, `image.onnx` and `text.onnx`, the tokeniser, and the card `export.json`.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from diptych.errors import RunError
from diptych.features.crops import Crops
from diptych.files import file_hash, read_json
from diptych.settings import Count, Flag, Settings, first_error
from diptych.text.tokenisers.stored import tokeniser_file
from diptych.text.vocabulary import Vocabulary

FORMAT = 1
CARD = "export.json"
GRAPHS = ("image.onnx", "text.onnx")


class ExportedInput(Settings):
    """The input of the exported image tower: squares of pixels, or the crops of a photo, as bytes."""

    kind: Literal["pixels", "crops"]
    shape: tuple[Count, Count, Count]
    crops: Crops | None = None


class Exported(Settings):
    """Format, version of Diptych, the run's name and identity, and the towers' input and output.

    `unknown` are words of the vocabulary that a fitted text tower does not know. `files` are the hashes of the other
    files, so that a damaged or replaced file is noticed.
    """

    format: int = FORMAT
    version: str
    run: str
    identity: str
    image_input: ExportedInput
    size: Count
    rescores: Flag = False
    unknown: tuple[str, ...] = ()
    files: dict[str, str]

    @classmethod
    def read(cls, folder: Path) -> Exported:
        """The card of an export, after checking that all files are there and as they were written."""
        exported = cls.read_card(folder)
        for name in dict.fromkeys((*exported.files, *exported_files(folder))):
            try:
                same = file_hash(folder / name) == exported.files.get(name)
            except OSError as reason:
                why = reason.strerror or "not an ordinary file"
                raise RunError(f"{folder / name}: cannot be read ({why}); export the run again") from None
            if not same:
                raise RunError(f"{folder / name}: damaged, or of another export; export the run again")
        return exported

    @classmethod
    def read_card(cls, folder: Path) -> Exported:
        """The card of an export; its other files are not looked at."""
        card = read_json(folder / CARD, RunError)
        given = card.get("format") if isinstance(card, dict) else None
        if given != FORMAT:
            raise RunError(f"{folder / CARD}: format {given!r}; this version of Diptych reads format {FORMAT}")
        try:
            return cls.model_validate(card)
        except ValidationError as error:
            raise RunError(f"{folder / CARD}: {first_error(error, cls)}; export the run again") from None


def exported_files(folder: Path) -> tuple[str, ...]:
    """The names of the files that an export consists of, besides its card."""
    tokeniser = tokeniser_file(folder)
    return (*GRAPHS, Vocabulary.file if tokeniser is None else tokeniser.name)


@contextmanager
def new_folder(into: Path) -> Iterator[Path]:
    """A temporary folder beside `into`; on success it is renamed to `into`, else removed."""
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise RunError(f"{into}: exists already; choose another folder, or remove it first")
    into.parent.mkdir(parents=True, exist_ok=True)
    temporary = into.with_name(f".{into.name}.{uuid.uuid4().hex}.tmp")
    temporary.mkdir()
    try:
        yield temporary
        if into.is_dir():
            into.rmdir()
        temporary.replace(into)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
