"""How embeddings become scores: cosines, inner products, or a function of the caller's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import normalize

from diptych.errors import ScoreError
from diptych.objectives.extras import WithinScores
from diptych.objectives.input_checks import check_device, check_floats

ScoreFunction: TypeAlias = Callable[[Tensor, Tensor], Tensor]
Similarity: TypeAlias = Literal["cosine", "dot"] | ScoreFunction


@dataclass(frozen=True)
class ComparedPairs:
    """The images and texts of pairs, one row per pair, and how they are compared."""

    images: Tensor
    texts: Tensor
    similarity: Similarity

    def check(self) -> None:
        """Raise a ScoreError unless they can be compared."""
        images, texts, similarity = self.images, self.texts, self.similarity
        check_floats("images", images)
        check_floats("texts", texts)
        check_device("texts", texts, images.device)
        shapes = f"images of shape {tuple(images.shape)} and texts of shape {tuple(texts.shape)}"
        if len(images) != len(texts):
            raise ScoreError(f"{shapes}; pass one row per pair, so that images[k] and texts[k] belong together")
        if callable(similarity):
            return
        if similarity not in ("cosine", "dot"):
            raise ScoreError(f"similarity = {similarity!r}; use 'cosine', 'dot', or a function of images and texts")
        if images.dim() != 2 or images.shape != texts.shape:
            raise ScoreError(f"{shapes}; {similarity!r} needs (pairs, size) of both, or pass a function as similarity=")

    def scores(self) -> Tensor:
        """The score of each image with each text: (pairs, pairs)."""
        return self._scored(*self._sides)

    def within(self) -> WithinScores:
        """The scores of the images with each other, and of the texts with each other."""
        images, texts = self._sides
        return WithinScores(self._scored(images, images), self._scored(texts, texts))

    @cached_property
    def _sides(self) -> tuple[Tensor, Tensor]:
        """The images and texts in the more precise of their types, normalised for cosines."""
        images, texts = self.images, self.texts
        if images.dtype != texts.dtype:
            dtype = torch.promote_types(images.dtype, texts.dtype)
            images, texts = images.to(dtype), texts.to(dtype)
        if self.similarity == "cosine":
            return normalize(images, dim=1), normalize(texts, dim=1)
        return images, texts

    def _scored(self, rows: Tensor, columns: Tensor) -> Tensor:
        if not callable(self.similarity):
            return rows @ columns.t()
        scores, pairs = self.similarity(rows, columns), len(self.images)
        check_floats("the result of similarity=", scores)
        if scores.shape != (pairs, pairs):
            raise ScoreError(f"similarity= returned {tuple(scores.shape)} for {pairs} pairs; return (pairs, pairs)")
        return scores
