"""The tokenizer.json of a pretrained pair, and the facts beside it in tokenizer_config.json: padding and lower case."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from diptych.errors import RecipeError
from diptych.files import read_json
from diptych.text.tokenisers.cleaning import Cleaning
from diptych.text.tokenisers.library import read_document
from diptych.text.tokenisers.pretrained import Pretrained

DOCUMENT, CONFIG = "tokenizer.json", "tokenizer_config.json"


@dataclass(frozen=True)
class TokenizerFiles:
    """A tokenizer.json, and its tokenizer_config.json, if any.

    `class_name` is the class of transformers that reads them, if that is not the one that the configuration names.
    """

    document_file: Path
    config_file: Path | None = None
    class_name: str | None = None

    @classmethod
    def of_folder(cls, folder: Path, class_name: str | None = None) -> TokenizerFiles:
        """Those of a folder; DataError with the command that writes a tokenizer.json if there is none."""
        read_document(folder)
        config = folder / CONFIG
        return cls(folder / DOCUMENT, config if config.is_file() else None, class_name)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that there are."""
        return (self.document_file,) if self.config_file is None else (self.document_file, self.config_file)

    @cached_property
    def document(self) -> dict[str, Any]:
        """The tokenizer.json, which lowers texts first if the tokenizer's class does so."""
        document = read_document(self.document_file)
        if not self._lowers:
            return document
        steps = [{"type": "Lowercase"}, *filter(None, [document.get("normalizer")])]
        return {**document, "normalizer": {"type": "Sequence", "normalizers": steps}}

    @cached_property
    def config(self) -> dict[str, Any]:
        """The tokenizer_config.json; empty if there is none."""
        content = {} if self.config_file is None else read_json(self.config_file, RecipeError)
        return content if isinstance(content, dict) else {}

    @property
    def _lowers(self) -> bool:
        return self._class == "Siglip2Tokenizer" or self.config.get("do_lower_case") is True

    @property
    def _class(self) -> str:
        return self.class_name or str(self.config.get("tokenizer_class"))

    @property
    def cleaning(self) -> Cleaning:
        """What the tokenizer's class in transformers does to a text before its tokenizer.json reads it."""
        return "unpunctuated" if self._class == "SiglipTokenizer" else "none"

    @property
    def fill_side(self) -> str:
        """The side on which texts are padded."""
        return str(self.config.get("padding_side", "left" if self._class == "Siglip2Tokenizer" else "right"))

    def context(self, positions: int) -> int:
        """The largest number of ids: the tokenizer's, and no more than the network has positions for."""
        longest = self.config.get("model_max_length")
        return min(int(longest), positions) if isinstance(longest, int | float) and longest > 0 else positions

    def id_of(self, special: str) -> int | None:
        """The id of a special token, such as `pad_token`, if the configuration names one that the tokenizer has."""
        token = self.config.get(special)
        text = token.get("content") if isinstance(token, dict) else token
        number: int | None = self._library.token_to_id(text) if isinstance(text, str) else None
        return number

    @cached_property
    def _library(self) -> Any:
        return self.tokeniser().library

    def tokeniser(self, **settings: Any) -> Pretrained:
        """The tokeniser with these settings of its class."""
        try:
            return Pretrained(document=self.document, **settings)
        except RecipeError as reason:
            raise RecipeError(f"{self.document_file}: {reason}") from None
