"""A tokeniser of the user's own for towers that are trained from scratch: any `tokenizer.json` of `tokenizers`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from typing_extensions import Self

from diptych.errors import DataError, RecipeError
from diptych.text.tokenisers.library import read_document
from diptych.text.tokenisers.pieces import Pieces


class CustomPieces(Pieces):
    """The pieces of a file, whose special tokens are not used."""

    name: Literal["custom"] = "custom"

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Read a `tokenizer.json`; DataError if it is none."""
        document = read_document(path)
        try:
            return cls(document=document)
        except RecipeError as reason:
            raise DataError(f"{path}: {str(reason).removeprefix(f'{cls.__name__}: ')}") from None
