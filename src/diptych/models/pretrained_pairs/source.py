"""A pretrained pair that was found on disk: what it computes, the files of its weights, and its tokeniser."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from diptych.errors import RecipeError
from diptych.files import file_hash
from diptych.models.pretrained_pairs.architecture import PairArchitecture
from diptych.text.tokenisers.pretrained import Pretrained


@dataclass(frozen=True)
class PairSource:
    """A pair by its address. `files` are those of the tokeniser and of the configuration.

    `end` is the id that must end every text, if the text network takes its vector from there.
    """

    address: str
    architecture: PairArchitecture
    weights: tuple[Path, ...]
    files: tuple[Path, ...]
    make_tokeniser: Callable[[str | None], Pretrained]
    end: int | None = None

    def tokeniser(self, prompt: str | None = None) -> Pretrained:
        """The tokeniser, with a sentence around every text if given; RecipeError if it does not fit the weights."""
        made = self.make_tokeniser(prompt)
        reason = None
        if len(made) > self.architecture.ids:
            reason = f"it has {len(made):,} ids, and the weights have rows for {self.architecture.ids:,}"
        elif self.end is not None and made.encode_all(["a"]).flat[-1] != self.end:
            reason = f"texts end with another id than {self.end}, where the weights take a text's vector from"
        if reason is not None:
            raise RecipeError(
                f"{self.address}: its tokeniser does not belong to its weights: {reason}; use the tokenizer.json that "
                "came with the weights"
            )
        return made

    def identity(self) -> str:
        """A digest of the weights, what they compute, and the tokeniser."""
        about = json.dumps(self.architecture.model_dump(mode="json"), sort_keys=True)
        parts = [about, self.tokeniser().digest, *map(file_hash, self.weights)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()
