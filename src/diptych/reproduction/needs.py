"""What a claim needs from the corpus or from the user, and why it cannot be tested without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np

from diptych.data.corpus import Corpus
from diptych.data.phrases import find_mentions
from diptych.data.splitting import size_list
from diptych.errors import DataError
from diptych.reproduction.claims import Need


class CorpusNeeds:
    """Which needs a corpus meets; each is looked at once."""

    def __init__(self, corpus: Corpus, vectors: Path | None) -> None:
        self._checks: dict[Need, Callable[[], str | None]] = {
            "val": lambda: _missing_split(corpus, "val"),
            "test": lambda: _missing_split(corpus, "test"),
            "texts": lambda: _missing_groups(
                corpus.text_groups[corpus.text_splits == "train"], "no image of train has several texts"
            ),
            "identities": lambda: _missing_groups(
                corpus.image_groups[corpus.image_splits == "train"], "no identity of train has several images"
            ),
            "boxes": lambda: _missing_boxes(corpus),
            "vectors": lambda: None if vectors is not None else "it needs word vectors; name their file with --vectors",
        }
        self._check = cache(lambda need: self._checks[need]())

    def unmet(self, needs: tuple[Need, ...]) -> Iterator[str]:
        """The reasons why needs are not met, one each."""
        yield from (reason for need in needs if (reason := self._check(need)) is not None)


def _missing_split(corpus: Corpus, split: str) -> str | None:
    if (corpus.image_splits == split).any():
        return None
    return f"the corpus has no split {split} (images: {size_list(corpus)})"


def _missing_groups(groups: np.ndarray, reason: str) -> str | None:
    return None if len(np.unique(groups)) < len(groups) else reason


def _missing_boxes(corpus: Corpus) -> str | None:
    for split in ("train", "val", "test"):
        try:
            find_mentions(corpus.split(split))
        except DataError:
            return f"the corpus has no phrases with boxes in its split {split}"
    return None
