"""Texts as a model reads them: token ids, and the features of a frozen text encoder if they were computed before."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from diptych.data.corpus import Integers
from diptych.data.sampling.batch import TextFeatures
from diptych.models.tower import Tokens
from diptych.text.tokenisers.token_table import TokenTable


@dataclass(frozen=True, eq=False)
class TextInputs:
    """The ids of many texts, and the features of all of them, if any; `rows` selects some of these texts."""

    table: TokenTable
    features: TextFeatures | None = None
    rows: Integers | None = None

    def __len__(self) -> int:
        return len(self.table) if self.rows is None else len(self.rows)

    @property
    def lengths(self) -> Integers:
        """The number of tokens of each text."""
        return self.table.lengths if self.rows is None else self.table.lengths[self.rows]

    def take(self, texts: Integers) -> TextInputs:
        """The inputs of these texts, in this order."""
        return TextInputs(self.table, self.features, texts if self.rows is None else self.rows[texts])

    def tokens(self, texts: Integers, device: torch.device) -> Tokens:
        """A batch of these texts, on a device."""
        rows = texts if self.rows is None else self.rows[texts]
        ids, lengths = (torch.from_numpy(values).to(device) for values in self.table.batch(rows))
        if self.features is None:
            return Tokens(ids, lengths)
        return Tokens(ids, lengths, torch.from_numpy(np.ascontiguousarray(self.features[rows])).to(device))
