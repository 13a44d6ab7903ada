"""The contents of an ONNX export, readable without torch.

The folder of an export has both towers, `image.onnx` and `text.onnx`, the tokeniser, and the card `export.json`. A run
can be exported in place as well: the graphs and the card are then beside the weights, in `best/`, and the graphs read
the weights from there.
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
from diptych.models.sentence.numpy_layers import TextLayers
from diptych.settings import Count, Flag, Settings, first_error
from diptych.text.tokenisers.stored import tokeniser_file
from diptych.text.vocabulary import Vocabulary

FORMAT = 1
CARD = "export.json"
IMAGE, TEXT = GRAPHS = ("image.onnx", "text.onnx")
WEIGHTS = "weights.safetensors"


class ExportedInput(Settings):
    """The input of the exported image tower: squares of pixels, or the crops of a photo, as bytes."""

    kind: Literal["pixels", "crops"]
    shape: tuple[Count, Count, Count]
    crops: Crops | None = None


class Exported(Settings):
    """Format, version of Diptych, the run's name and identity, and the towers' input and output.

    `unknown` are words of the vocabulary that a fitted text tower does not know. `files` are the hashes of the other
    files, so that a damaged or replaced file is noticed; weights beside the graphs are checked by the identity. `text`
    describes a text side that needs no graph.
    """

    format: int = FORMAT
    version: str
    run: str
    identity: str
    image_input: ExportedInput
    size: Count
    rescores: Flag = False
    unknown: tuple[str, ...] = ()
    text: TextLayers | None = None
    files: dict[str, str]

    @classmethod
    def read(cls, folder: Path) -> Exported:
        """The card of an export, after checking that all files are there and as they were written."""
        exported = cls.read_card(folder)
        for name in dict.fromkeys((*exported.files, *exported.required_files(folder))):
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

    def required_files(self, folder: Path) -> tuple[str, ...]:
        """The files without which the export in a folder is incomplete."""
        if not (folder / WEIGHTS).is_file():
            return exported_files(folder)
        return GRAPHS if self.text is None else (IMAGE,)


def exported_files(folder: Path) -> tuple[str, ...]:
    """The names of the files that an export consists of, besides its card."""
    tokeniser = tokeniser_file(folder)
    return (*GRAPHS, Vocabulary.file if tokeniser is None else tokeniser.name)


def remove_graphs(folder: Path) -> None:
    """Remove the graphs of an export in place, the card first; weights beside them are about to change."""
    for name in (CARD, *GRAPHS):
        (folder / name).unlink(missing_ok=True)


def check_is_new(folder: Path) -> None:
    """Refuse a folder that exists already, unless it is empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(f"{folder}: exists already; choose another folder, or remove it first")


@contextmanager
def new_folder(into: Path) -> Iterator[Path]:
    """A temporary folder beside `into`; on success it is renamed to `into`, else removed."""
    check_is_new(into)
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
