"""Lists of hard negatives: for each image the texts, and for each text the images, that a model scores highest.

They are stored in one safetensors file, whose header identifies the weights and the data.
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
from diptych.mining.hardness import Hardness
from diptych.models.storage import load_tensors, save_tensors
from diptych.settings import Count, Settings

LISTS_FILE = "lists.safetensors"  # in the folder of the run that mined

KIND = "lists of hard negatives"

ListRows = NDArray[np.int32]


class ListsHeader(Settings):
    """What identifies lists: digests of the weights' file and of the data, its splits, and the requested lengths."""

    kind: str = KIND
    weights: str
    corpus: str
    splits: tuple[str, ...]
    model: str
    top_texts: Count
    top_images: Count
    skipped: dict[str, str] = Field(default={})  # unreadable images and the reasons
    hardness: Hardness | None = None

    def same_source(self, other: ListsHeader) -> bool:
        """Whether the same weights mined the same data."""
        return (self.weights, self.corpus) == (other.weights, other.corpus)


@dataclass(frozen=True, eq=False)
class HardNegativeLists:
    """The hardest texts of each image and the hardest images of each text, hardest first, padded with -1.

    Rows are those of the mined corpus: some splits of the data, `matched()`. An unreadable image has an empty list and
    occurs in no other; the same holds for a text that is left without an image.
    """

    texts: ListRows  # (images, top_texts), or fewer columns if there are fewer texts
    images: ListRows  # (texts, top_images), or fewer columns if there are fewer images
    header: ListsHeader

    @property
    def shortage(self) -> str | None:
        """A message if there were fewer negatives than requested, else None."""
        return list_shortage(self.texts, self.images, self.header.top_texts, self.header.top_images)

    def truncate(self, top_texts: int, top_images: int) -> HardNegativeLists:
        """The same lists, with at most this many entries."""
        lengths = {
            "top_texts": min(top_texts, self.header.top_texts),
            "top_images": min(top_images, self.header.top_images),
        }
        header = self.header.model_copy(update=lengths)
        return HardNegativeLists(self.texts[:, :top_texts], self.images[:, :top_images], header)

    def check(self, corpus: str, weights: str | None, path: Path) -> None:
        """Raise a RunError if the digest of the data differs, or that of the weights if given; `path` is named."""
        if self.header.corpus != corpus:
            splits = "+".join(self.header.splits)
            raise RunError(f"{path}: mined on other data (its {splits}); mine this data: `diptych mine RUN DATA`")
        if weights is not None and self.header.weights != weights:
            raise RunError(
                f"{path}: mined by another run, or by weights that the run no longer has; "
                "mine again with `diptych mine RUN DATA`"
            )

    def save(self, path: Path) -> None:
        """Write the lists atomically."""
        tensors = {"texts": torch.from_numpy(self.texts), "images": torch.from_numpy(self.images)}
        save_tensors(path, tensors, self.header.model_dump(mode="json"))

    @classmethod
    def load(cls, path: Path) -> HardNegativeLists:
        """Read a file of lists; raises RunError if it is anything else."""
        if not path.is_file():
            raise RunError(f"{path}: no such file; mine the lists with `diptych mine RUN DATA`")
        tensors, content = load_tensors(path)
        try:
            header = ListsHeader.model_validate(content)
        except ValidationError:
            header = None
        if header is None or header.kind != KIND or tensors.keys() != {"texts", "images"}:
            raise RunError(f"{path}: not a file of lists; make one with `diptych mine RUN DATA`")
        texts, images = tensors["texts"], tensors["images"]
        for lists, others, requested in ((texts, images, header.top_texts), (images, texts, header.top_images)):
            if not _is_consistent(lists, others, requested):
                raise RunError(f"{path}: lists that do not fit each other; mine again with `diptych mine RUN DATA`")
        return cls(texts.numpy(), images.numpy(), header)


def list_shortage(texts: ListRows, images: ListRows, top_texts: int, top_images: int) -> str | None:
    """A message if a list that is not empty has fewer negatives than requested, else None."""
    short = []
    for lists, requested, word in ((texts, top_texts, "texts"), (images, top_images, "images")):
        lengths = (lists >= 0).sum(1)
        fewest = int(lengths[lengths > 0].min(initial=requested))
        if fewest < requested:
            short.append(f"{fewest:,} {word} instead of {requested:,}")
    return f"fewer negatives than requested: the shortest list has {', '.join(short)}" if short else None


def lists_file(run: Path) -> Path:
    """The file of a run's lists; a path that is not a folder is the file itself."""
    return run / LISTS_FILE if run.is_dir() else run


def weights_digest(run: Path, snapshot: str = "best") -> str:
    """The hash of the file with a run's weights, which identifies them."""
    path = run / snapshot / "weights.safetensors"
    try:
        return file_hash(path)
    except OSError:
        raise RunError(f"{path}: no such file; is this the folder of a run?") from None


def _is_consistent(lists: Tensor, others: Tensor, requested: int) -> bool:
    """Whether the lists have the right type and length, and refer only to rows that the other lists have."""
    if lists.dim() != 2 or others.dim() != 2 or lists.dtype != torch.int32:
        return False
    right_length = lists.shape[1] == min(requested, len(others))
    return right_length and (not lists.numel() or (int(lists.min()) >= -1 and int(lists.max()) < len(others)))
