"""The tokeniser that belongs to pretrained weights: the library's own ids, special tokens, cleaning and length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import Self

from diptych.errors import RecipeError, RunError
from diptych.settings import Count
from diptych.text.tokenisers.cleaning import Cleaning, cleaner
from diptych.text.tokenisers.library import LibraryTokeniser, read_document
from diptych.text.tokenisers.prompt import Prompt, prompted
from diptych.text.tokenisers.token_table import TokenTable

Id = Annotated[int, Field(ge=0, strict=True)]


class Pretrained(LibraryTokeniser):
    """A `tokenizer.json` as its model reads it: cleaned, with special tokens, truncated to `context` ids.

    `fill` is the id that fills a text up to `context`, for models that read the padding, such as SigLIP; the length of
    every text is then `context`. `blank` are ids that become 0, as open_clip's `strip_sep_token` does. `prompt` is a
    sentence around every text.
    """

    name: Literal["pretrained"] = "pretrained"
    context: Count | None = None
    fill: Id | None = None
    blank: tuple[Id, ...] = ()
    clean: Cleaning = "none"
    prompt: Prompt | None = None

    @classmethod
    def from_folder(cls, folder: Path, **settings: Any) -> Self:
        """The tokeniser in the folder of a model in the layout of transformers; `settings` are those of the class."""
        document = read_document(folder)
        try:
            return cls(document=document, **settings)
        except RecipeError as reason:
            raise RunError(f"{folder}: {reason}") from None

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        specials = self.library.num_special_tokens_to_add(False)
        if self.context is not None and self.context <= specials:
            raise PydanticCustomError("context", "context: {specials} ids are special tokens", {"specials": specials})
        if self.fill is not None and self.context is None:
            raise PydanticCustomError("fill", "fill: needs a context to fill")
        return self

    @cached_property
    def library(self) -> Any:
        """The tokeniser as an object of the library, which truncates."""
        library = super().library
        if self.context is not None:
            library.enable_truncation(self.context)
        return library

    def __len__(self) -> int:
        vocabulary: dict[str, int] = self.library.get_vocab()
        return max(vocabulary.values()) + 1

    def encode_all(self, texts: Iterable[str]) -> TokenTable:
        """The ids of many texts, each in the prompt, if any, and cleaned."""
        return TokenTable.from_rows(self._rows(texts))

    def _rows(self, texts: Iterable[str]) -> Iterator[list[int]]:
        cleaned = map(cleaner(self.clean), prompted(self.prompt, texts))
        for row in self.encode_texts(cleaned, special=True):
            ids = [0 if number in self.blank else number for number in row] if self.blank else row
            if self.fill is not None and self.context is not None:
                ids = ids + [self.fill] * (self.context - len(ids))
            yield ids or [0]

    def tokens(self, text: str) -> list[str]:
        """What each id of a text stands for, as the library writes it."""
        return [self.library.id_to_token(number) or "" for number in self.encode_all([text]).flat.tolist()]

    def pieces(self, words: Sequence[str]) -> list[list[str | None]]:
        """The pieces of each word by itself, cleaned."""
        return super().pieces([cleaner(self.clean)(word) for word in words])

    def check_rows(self, rows: int, where: Path | str) -> None:
        """Refuse a tokeniser with more ids than the weights at `where` have rows for: it belongs to other weights."""
        if len(self) > rows:
            raise RunError(
                f"{where}: its tokeniser has {len(self):,} ids and its weights have rows for {rows:,}; use the "
                "tokenizer.json that came with the weights"
            )
