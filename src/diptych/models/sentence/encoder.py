"""The interface of sentence encoders: pretrained networks that turn a text, given as ids, into one vector."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor, nn


class SentenceEncoder(nn.Module, ABC):
    """Encodes a text as one vector of `size`.

    It stays frozen unless a recipe's `trainable` names it or one of its parts: neither `"all"` nor the name of a tower
    includes it.
    """

    trained_only_by_name: ClassVar[bool] = True

    size: int

    @abstractmethod
    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Encode padded ids (texts, length), of which the first `lengths` of each row count: (texts, size)."""

    @abstractmethod
    def load_pretrained(self) -> None:
        """Load the pretrained weights."""
