"""Tokenisers of the `tokenizers` library, each of which is one JSON document (`tokenizer.json`)."""

from __future__ import annotations

import json
from abc import ABC
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import field_validator, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import Self

from diptych.errors import DataError, DiptychError, one_line
from diptych.files import read_json
from diptych.optional import import_optional
from diptych.text.tokenisers.subwords import UNKNOWN_PIECE, SubwordTokeniser, encodable

TEXTS_AT_ONCE = 4096
SAMPLES = 1000
_BLANKS = frozenset({"", "\N{LOWER ONE EIGHTH BLOCK}", "Ġ", "</w>"})


def import_tokenizers() -> Any:
    """The library; an error with the command that installs it if it is missing."""
    return import_optional("tokenizers", "pip install 'diptych[tokenizers]'", instead="text.tokeniser = 'words'")


def read_document(path: Path) -> dict[str, Any]:
    """The content of a `tokenizer.json`, or of the one in a folder; DataError if there is none."""
    if path.is_dir():
        if not (path / "tokenizer.json").is_file():
            raise DataError(
                f"{path}: has no tokenizer.json; write one with transformers: "
                f"AutoTokenizer.from_pretrained({str(path)!r}).save_pretrained({str(path)!r})"
            )
        path = path / "tokenizer.json"
    document = read_json(path, DataError)
    if not isinstance(document, dict) or not isinstance(document.get("model"), dict):
        raise DataError(f"{path}: not a tokenizer.json (it has no model); save one with the tokenizers library")
    return document


class LibraryTokeniser(SubwordTokeniser, ABC):
    """A tokeniser of the library; `document` is its JSON, without truncation and padding, which are settings here."""

    document: dict[str, Any]

    @field_validator("document")
    @classmethod
    def _without_lengths(cls, document: dict[str, Any]) -> dict[str, Any]:
        return {**document, "truncation": None, "padding": None}

    @model_validator(mode="after")
    def _can_be_read(self) -> Self:
        _ = self.library
        return self

    @cached_property
    def library(self) -> Any:
        """The tokeniser as an object of the library."""
        try:
            return import_tokenizers().Tokenizer.from_str(json.dumps(self.document))
        except DiptychError:
            raise
        except Exception as reason:  # the library raises Exception itself
            message = "the tokenizers library cannot read it ({reason})"
            raise PydanticCustomError("document", message, {"reason": one_line(reason)}) from None

    @property
    def unknown_id(self) -> int | None:
        """The library's id of what it does not know; None if it knows every character, or leaves it out."""
        model = self.document["model"]
        number: int | None = model.get("unk_id")  # of Unigram
        if number is None and model.get("unk_token") is not None:
            number = self.library.token_to_id(model["unk_token"])
        return number

    @cached_property
    def sample_words(self) -> Sequence[str]:
        """Pieces that are words by themselves."""
        pieces = (piece.removesuffix("</w>").lstrip("\N{LOWER ONE EIGHTH BLOCK}Ġ") for piece in self._pieces_by_id)
        distinct = dict.fromkeys(piece for piece in pieces if piece.isascii() and piece.isalpha())
        words = list(islice(distinct, SAMPLES))
        return [word for word, known in zip(words, self.known(words).tolist(), strict=True) if known]

    @property
    def _pieces_by_id(self) -> list[str]:
        vocabulary: dict[str, int] = self.library.get_vocab()
        return sorted(vocabulary, key=vocabulary.__getitem__)

    def pieces(self, words: Sequence[str]) -> list[list[str | None]]:
        """The pieces of each word by itself."""
        unknown = self.unknown_id
        encoded = self.library.encode_batch([encodable(word) for word in words], add_special_tokens=False)
        return [
            [
                UNKNOWN_PIECE if number == unknown else piece
                for number, piece in zip(some.ids, some.tokens, strict=True)
                if piece not in _BLANKS
            ]
            for some in encoded
        ]

    def encode_texts(self, texts: Iterable[str], *, special: bool) -> Iterator[list[int]]:
        """The library's ids of each text, with or without its special tokens; a block of texts is encoded at a time."""
        remaining = map(encodable, texts)
        while block := list(islice(remaining, TEXTS_AT_ONCE)):
            for encoded in self.library.encode_batch_fast(block, add_special_tokens=special):
                yield encoded.ids
