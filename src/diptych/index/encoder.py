"""What an index needs of a model, whichever engine runs it: torch, or an export without it.

Nothing here imports torch: who serves from an export never loads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from diptych.data.corpus import Floats


@dataclass(frozen=True)
class Encodings:
    """Images or texts as a model sees them, a row each.

    `vectors`, (items, size), are what is searched by their inner products. `sets`, (places, size) each, are there for
    models whose own score needs more than one vector an item.
    """

    vectors: Floats
    sets: tuple[Floats, ...] | None = None

    def __len__(self) -> int:
        return len(self.vectors)

    def take(self, rows: Sequence[int]) -> Encodings:
        """These rows, in this order."""
        sets = None if self.sets is None else tuple(self.sets[row] for row in rows)
        return Encodings(self.vectors[np.asarray(rows, np.int64)], sets)


class Encoder(Protocol):
    """A model that an index asks; it may be called from several threads.

    `identity` is equal for a run and its export, and for no other model. Where `rescores`, the inner products only
    draw up the list and `score` puts it in order; else they are the score.
    """

    address: str
    identity: str
    size: int
    rescores: bool

    def prepare(self, photo: Image.Image) -> NDArray[Any]:
        """What the image tower reads of an upright RGB photo; work for many threads."""
        ...

    def images(self, prepared: Sequence[NDArray[Any]]) -> Encodings:
        """Encode prepared photos in one pass."""
        ...

    def texts(self, texts: Sequence[str]) -> Encodings:
        """Encode texts in one pass."""
        ...

    def words(self, texts: Sequence[Sequence[str]]) -> Encodings:
        """Encode texts that are split into words already, as `text.tokens` does it."""
        ...

    def score(self, images: Encodings, texts: Encodings) -> Floats:
        """The model's own score, (images, texts), higher is better."""
        ...

    def known(self, words: Sequence[str]) -> NDArray[np.bool_]:
        """Which of these words, each a token, the model can tell from others."""
        ...


def open_encoder(address: str | Path, device: str = "auto") -> Encoder:
    """The model at an address: the folder of a run or of an export, or `starter`."""
    if (Path(address) / "export.json").is_file():
        from diptych.index.onnx_encoder import OnnxEncoder

        return OnnxEncoder.open(Path(address))
    from diptych.index.torch_encoder import TorchEncoder

    return TorchEncoder.open(address, device)
