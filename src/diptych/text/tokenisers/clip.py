"""CLIP's tokeniser, as open_clip has it: byte-pair encoding of lower-case text, from the merges in open_clip's package.

Radford et al. 2021, Learning Transferable Visual Models From Natural Language Supervision. The merges are written as a
document of the `tokenizers` library, which gives the same ids as open_clip's `SimpleTokenizer` without torch.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from diptych.errors import DiptychError
from diptych.text.tokenisers.cleaning import Cleaning
from diptych.text.tokenisers.library import import_tokenizers
from diptych.text.tokenisers.pretrained import Pretrained

START, END = "<start_of_text>", "<end_of_text>"
CONTEXT = 77

_FILE = "bpe_simple_vocab_16e6.txt.gz"
_MERGES = 49152 - 256 - 2  # that are used; the file has more
_WORD_END = "</w>"
# open_clip ignores case, and so leaves out a combining Greek iota: it is neither a letter nor anything else.
_WORDS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|\\p{L}+|\\p{N}|[^\\s\\p{L}\\p{N}\u0345]+"


@lru_cache(maxsize=4)  # made in half a second, and asked for several times while a model is opened
def clip_tokeniser(context: int = CONTEXT, clean: Cleaning = "lower", prompt: str | None = None) -> Pretrained:
    """The tokeniser of open_clip's models that name no other."""
    return Pretrained(document=_document(_merges()), context=context, clean=clean, prompt=prompt)


def _merges() -> list[tuple[str, str]]:
    """Pairs of pieces in the order in which they are joined."""
    package = importlib.util.find_spec("open_clip")  # importing it would import torch
    if package is None or not package.submodule_search_locations:
        raise DiptychError("open_clip is not installed; run: pip install 'diptych[open-clip]'")
    lines = gzip.decompress((Path(package.submodule_search_locations[0]) / _FILE).read_bytes()).decode().split("\n")
    pairs = (line.split() for line in lines[1 : 1 + _MERGES])  # the first line is a comment
    return [(left, right) for left, right in pairs]


def _document(merges: list[tuple[str, str]]) -> dict[str, Any]:
    library = import_tokenizers()
    letters = _letters_of_bytes()
    pieces = [*letters, *(letter + _WORD_END for letter in letters), *(left + right for left, right in merges)]
    ids = {piece: number for number, piece in enumerate([*pieces, START, END])}
    tokenizer = library.Tokenizer(library.models.BPE(ids, merges, end_of_word_suffix=_WORD_END))
    tokenizer.pre_tokenizer = library.pre_tokenizers.Sequence(
        [
            library.pre_tokenizers.Split(library.Regex(_WORDS), "removed", invert=True),
            library.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.add_special_tokens([START, END])
    tokenizer.post_processor = library.processors.TemplateProcessing(
        single=f"{START} $A {END}", special_tokens=[(name, ids[name]) for name in (START, END)]
    )
    document: dict[str, Any] = json.loads(tokenizer.to_str())
    return document


def _letters_of_bytes() -> list[str]:
    """A letter for each byte, in the order of the ids: printable bytes, which stand for themselves, come first."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    return [chr(byte) for byte in printable] + [chr(256 + number) for number in range(256 - len(printable))]
