"""A run as the model of an index, on torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from diptych.data.corpus import Floats
from diptych.data.images import DecodedPicture
from diptych.errors import DataError, ImageError
from diptych.features.readers import image_reader
from diptych.index.encoder import Encodings
from diptych.models.address import run_folder, run_identity
from diptych.models.encodings import joined
from diptych.models.layers.sets import present
from diptych.models.trained import Trained
from diptych.text.vocabulary import pad_ids


class TorchEncoder:
    """A trained matcher; where an encoding is a set, its vector is the mean of the set, of length one."""

    def __init__(self, trained: Trained, address: str, identity: str) -> None:
        if trained.matcher.image_input.kind == "features":
            raise DataError(
                f"{address}: the run reads features that came with its data, and cannot see photos; "
                "take one that was trained on photos"
            )
        self.trained = trained
        self.address = address
        self.identity = identity
        self.size = self.texts(["a"]).vectors.shape[1]
        self.rescores = not trained.matcher.is_inner_product

    @classmethod
    def open(cls, address: str | Path, device: str = "auto") -> TorchEncoder:
        """The best snapshot of a run."""
        return cls.of(Trained.open(address, device), address)

    @classmethod
    def of(cls, trained: Trained, address: str | Path) -> TorchEncoder:
        """A run that is open already, and its folder."""
        return cls(trained, str(address), run_identity(run_folder(address)))

    def prepare(self, photo: Image.Image) -> NDArray[Any]:
        """The photo's crops, pixels or regions, as the image tower reads them."""
        matcher = self.trained.matcher
        reader = image_reader([DecodedPicture(photo)], matcher.image_input, matcher.pretrained)
        values, readable = reader.read(np.array([0]))
        if not readable.all():
            raise ImageError(reader.skipped[0])
        row: NDArray[Any] = values[0]
        return row

    @torch.inference_mode()
    def images(self, prepared: Sequence[NDArray[Any]]) -> Encodings:
        """Encode prepared photos."""
        values = torch.from_numpy(np.stack(prepared)).to(self.trained.device)
        return _encodings(self.trained.matcher.encode_images(values))

    def texts(self, texts: Sequence[str]) -> Encodings:
        """Encode texts."""
        return _encodings(self.trained.encode_texts(texts))

    @torch.inference_mode()
    def words(self, texts: Sequence[Sequence[str]]) -> Encodings:
        """Encode texts that are split into words already."""
        ids = [self.trained.vocabulary.encode_tokens(words) for words in texts]
        return _encodings(self.trained.matcher.encode_texts(self.trained.tokens(*pad_ids(ids))))

    @torch.inference_mode()
    def score(self, images: Encodings, texts: Encodings) -> Floats:
        """The matcher's own score: (images, texts)."""
        scores = self.trained.matcher.score(self._tensor(images), self._tensor(texts))
        found: Floats = scores.float().cpu().numpy()
        return found

    def known(self, words: Sequence[str]) -> NDArray[np.bool_]:
        """Those of the vocabulary and, if the text tower is fitted, of its fit."""
        return self.trained.known_words(words)

    def _tensor(self, encodings: Encodings) -> Tensor:
        if encodings.sets is None:
            return torch.from_numpy(encodings.vectors).to(self.trained.device)
        return joined([torch.from_numpy(own)[None] for own in encodings.sets]).to(self.trained.device)


def _encodings(encoded: Tensor) -> Encodings:
    if encoded.dim() == 2:
        return Encodings(encoded.float().cpu().numpy())
    means = torch.nn.functional.normalize(encoded.sum(1), dim=1)
    sets = tuple(own[there].float().cpu().numpy() for own, there in zip(encoded, present(encoded), strict=True))
    return Encodings(means.float().cpu().numpy(), sets)
