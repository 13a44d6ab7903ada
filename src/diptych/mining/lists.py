"""Lists of hard negatives: for each image the texts, and for each text the images, that a model takes for right.

One file, safetensors, that says which weights mined which data.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, ValidationError
from torch import Tensor

from diptych.errors import RunError
from diptych.files import file_hash
from diptych.models.storage import load_tensors, save_tensors
from diptych.settings import Count, Number, Settings

LISTS_FILE = "lists.safetensors"  # in the folder of the run that mined

KIND = "lists of hard negatives"

Rows = NDArray[np.int32]


class Hardness(Settings):
    """Medians of scores: of images and texts that belong together, and of the first and the last of the lists."""

    positive: Number
    first_text: Number
    last_text: Number
    first_image: Number
    last_image: Number


class ListsHeader(Settings):
    """What made lists: the digests of the weights' file and of the data, its splits; and what was asked for."""

    kind: str = KIND
    weights: str
    corpus: str
    splits: tuple[str, ...]
    model: str
    top_texts: Count
    top_images: Count
    skipped: dict[str, str] = Field(default={})  # images that could not be read, and why
    hardness: Hardness | None = None

    def made_like(self, other: ListsHeader) -> bool:
        """Whether the same weights mined the same data."""
        return (self.weights, self.corpus) == (other.weights, other.corpus)


@dataclass(frozen=True, eq=False)
class HardNegativeLists:
    """The hardest texts of each image and the hardest images of each text, hardest first, -1 after the last.

    Rows are those of the corpus that was mined: some splits of the data, `matched()`. An image that could not be read
    has an empty list and is in no other; so it is with a text that is left without an image.
    """

    texts: Rows  # (images, top_texts), or as many as there are
    images: Rows  # (texts, top_images)
    about: ListsHeader

    @property
    def notice(self) -> str | None:
        """One line where there were fewer negatives than asked for, else nothing."""
        short = []
        for lists, asked, word in (
            (self.texts, self.about.top_texts, "texts"),
            (self.images, self.about.top_images, "images"),
        ):
            lengths = (lists >= 0).sum(1)
            fewest = int(lengths[lengths > 0].min(initial=asked))
            if fewest < asked:
                short.append(f"{fewest:,} {word} instead of {asked:,}")
        return f"there are fewer negatives than asked for: the shortest list has {', '.join(short)}" if short else None

    def head(self, top_texts: int, top_images: int) -> HardNegativeLists:
        """The same lists, no longer than this."""
        asked = {
            "top_texts": min(top_texts, self.about.top_texts),
            "top_images": min(top_images, self.about.top_images),
        }
        return HardNegativeLists(
            self.texts[:, :top_texts], self.images[:, :top_images], self.about.model_copy(update=asked)
        )

    def check(self, corpus: str, weights: str | None, path: Path) -> None:
        """Refuse lists of other data, or of other weights where those are given, by digest; `path` is the lists'."""
        if self.about.corpus != corpus:
            splits = "+".join(self.about.splits)
            raise RunError(f"{path}: mined on other data (its {splits}); mine this data: `diptych mine RUN DATA`")
        if weights is not None and self.about.weights != weights:
            raise RunError(
                f"{path}: mined by another run, or by other weights than the run has now; "
                "mine again with `diptych mine RUN DATA`"
            )

    def save(self, path: Path) -> None:
        """Write the lists, whole or not at all."""
        tensors = {"texts": torch.from_numpy(self.texts), "images": torch.from_numpy(self.images)}
        save_tensors(path, tensors, self.about.model_dump(mode="json"))

    @classmethod
    def load(cls, path: Path) -> HardNegativeLists:
        """Read such a file; anything else is refused."""
        if not path.is_file():
            raise RunError(f"{path}: no such file; mine the lists with `diptych mine RUN DATA`")
        tensors, content = load_tensors(path)
        try:
            about = ListsHeader.model_validate(content)
        except ValidationError:
            about = None
        if about is None or about.kind != KIND or tensors.keys() != {"texts", "images"}:
            raise RunError(f"{path}: not a file of lists; make one with `diptych mine RUN DATA`")
        texts, images = tensors["texts"], tensors["images"]
        for lists, others, asked in ((texts, images, about.top_texts), (images, texts, about.top_images)):
            if not _fit(lists, others, asked):
                raise RunError(f"{path}: lists that do not fit each other; mine again with `diptych mine RUN DATA`")
        return cls(texts.numpy(), images.numpy(), about)


def lists_file(run: Path) -> Path:
    """The file of a run's lists; another file than a folder is taken for the lists themselves."""
    return run / LISTS_FILE if run.is_dir() else run


def weights_digest(run: Path, snapshot: str = "best") -> str:
    """What identifies the weights of a run: the hash of their file."""
    path = run / snapshot / "weights.safetensors"
    try:
        return file_hash(path)
    except OSError:
        raise RunError(f"{path}: no such file; is this the folder of a run?") from None


def _fit(lists: Tensor, others: Tensor, asked: int) -> bool:
    """Whether these are as many and as long lists as there should be, of rows that the others have."""
    if lists.dim() != 2 or others.dim() != 2 or lists.dtype != torch.int32:
        return False
    right_length = lists.shape[1] == min(asked, len(others))
    return right_length and (not lists.numel() or (int(lists.min()) >= -1 and int(lists.max()) < len(others)))
