"""How embeddings become scores: cosines, inner products, or a function of the caller's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from torch import Tensor
from torch.nn.functional import normalize

from diptych.errors import ScoreError
from diptych.objectives.extras import WithinScores
from diptych.objectives.input_checks import check_device, check_floats

ScoreFunction: TypeAlias = Callable[[Tensor, Tensor], Tensor]
Similarity: TypeAlias = Literal["cosine", "dot"] | ScoreFunction


@dataclass(frozen=True)
class ComparedPairs:
    """The images and texts of pairs, ready to be scored with each other."""

    images: Tensor
    texts: Tensor
    score: ScoreFunction

    @classmethod
    def of(cls, images: Tensor, texts: Tensor, similarity: Similarity) -> ComparedPairs:
        """Check embeddings, one row per pair, and prepare them; cosines normalise each side once."""
        check_floats("images", images)
        check_floats("texts", texts)
        check_device("texts", texts, images.device)
        shapes = f"images of shape {tuple(images.shape)} and texts of shape {tuple(texts.shape)}"
        if len(images) != len(texts):
            raise ScoreError(f"{shapes}; pass one row per pair, so that images[k] and texts[k] belong together")
        if callable(similarity):
            return cls(images, texts, similarity)
        if similarity not in ("cosine", "dot"):
            raise ScoreError(f"similarity = {similarity!r}; use 'cosine', 'dot', or a function of images and texts")
        if images.dim() != 2 or images.shape != texts.shape:
            raise ScoreError(f"{shapes}; {similarity!r} needs (pairs, size) of both, or pass a function as similarity=")
        if similarity == "cosine":
            images, texts = normalize(images, dim=1), normalize(texts, dim=1)
        return cls(images, texts, _inner_products)

    def scores(self) -> Tensor:
        """The score of each image with each text: (pairs, pairs)."""
        return self._scored(self.images, self.texts)

    def within(self) -> WithinScores:
        """The scores of the images with each other, and of the texts with each other."""
        return WithinScores(self._scored(self.images, self.images), self._scored(self.texts, self.texts))

    def _scored(self, rows: Tensor, columns: Tensor) -> Tensor:
        scores, pairs = self.score(rows, columns), len(self.images)
        check_floats("the result of similarity=", scores)
        if scores.shape != (pairs, pairs):
            raise ScoreError(f"similarity= returned {tuple(scores.shape)} for {pairs} pairs; return (pairs, pairs)")
        return scores


def _inner_products(images: Tensor, texts: Tensor) -> Tensor:
    return images @ texts.t()
