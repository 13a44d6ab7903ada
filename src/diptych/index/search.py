"""Search both ways over the encoded images and texts of one corpus, exactly, in blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from diptych.data.corpus import Corpus, Picture
from diptych.data.images import PictureFile
from diptych.errors import DataError
from diptych.models.trained import Trained, Watch
from diptych.text.tokens import tokenise

BLOCK = 8192

Scorer = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Hit:
    """One answer: its row in the corpus, its name (an image's id, a text's words) and its score."""

    row: int
    name: str
    score: float


class Gallery:
    """A corpus that a trained matcher can be asked about; each side is encoded when it is first needed."""

    def __init__(self, trained: Trained, corpus: Corpus, workers: int = 2, watch: Watch | None = None) -> None:
        self.trained = trained
        self.corpus = corpus
        self._workers = workers
        self._watch = watch
        self._images: tuple[Tensor, list[int]] | None = None
        self._texts: Tensor | None = None
        self.skipped: dict[str, str] = {}

    def find_images(self, question: str, k: int = 5) -> list[Hit]:
        """The k images that fit a sentence best, best first."""
        if not question.strip():
            raise DataError("the question is empty; ask in words, such as 'two red circles'")
        images, rows = self._encoded_images()
        text = self.trained.encode_texts([question])
        scores = self._blockwise(images, lambda block: self.trained.matcher.score(block, text)[:, 0])
        return [Hit(rows[place], self.corpus.image_ids[rows[place]], score) for place, score in _top(scores, k)]

    def find_texts(self, image: str | Path | Picture, k: int = 5) -> list[Hit]:
        """The k texts that fit an image best: an image file, a picture, or the id of an image of the corpus."""
        encoded = self._encode_image(image)
        if self._texts is None:
            self._texts = self.trained.encode_texts(self.corpus.texts, self._watch)
        scores = self._blockwise(self._texts, lambda block: self.trained.matcher.score(encoded, block)[0])
        return [Hit(row, self.corpus.texts[row], score) for row, score in _top(scores, k)]

    def unknown_words(self, question: str) -> list[str]:
        """The words of a question that the model never saw in training, which it cannot tell apart."""
        return [word for word in dict.fromkeys(tokenise(question)) if word not in self.trained.vocabulary.ids]

    def _encoded_images(self) -> tuple[Tensor, list[int]]:
        if self._images is None:
            images, rows, self.skipped = self.trained.encode_images(self.corpus, self._workers, self._watch)
            self._images = images, rows.tolist()
        return self._images

    @torch.inference_mode()
    def _encode_image(self, image: str | Path | Picture) -> Tensor:
        if isinstance(image, str) and image in self.corpus.image_ids:
            row = np.array([list(self.corpus.image_ids).index(image)])
            return self.trained.encode_images(self.corpus.take(row, np.array([], np.int64)), 0)[0]
        return self.trained.encode_picture(PictureFile(Path(image)) if isinstance(image, str | Path) else image)

    @torch.inference_mode()
    def _blockwise(self, encoded: Tensor, score: Scorer) -> Tensor:
        return torch.cat([score(block) for block in torch.split(encoded, BLOCK)])


def _top(scores: Tensor, k: int) -> list[tuple[int, float]]:
    if k < 1:
        raise DataError(f"k = {k}: ask for at least one answer")
    values, places = scores.topk(min(k, len(scores)))
    return list(zip(places.tolist(), values.tolist(), strict=True))
