"""The classes of the training groups: one class per group, or groups joined by K-means of their images' features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from diptych.data.corpus import Corpus, Floats, Integers
from diptych.data.image_reader import ImageReader
from diptych.errors import RecipeError
from diptych.features.kmeans import kmeans
from diptych.progress import ProgressCallback

IMAGES_AT_ONCE = 1024


@dataclass(frozen=True, eq=False)
class GroupClasses:
    """The class of each training group: `labels[k]` is that of `groups[k]`; groups are in ascending order.

    `data` is the digest of the corpus: in another corpus the same numbers are other groups.
    """

    groups: Integers
    labels: Integers
    data: str = ""

    @property
    def count(self) -> int:
        """The number of classes."""
        return int(self.labels.max()) + 1

    def of(self, groups: Integers) -> Integers:
        """The classes of training groups; other groups have none and must not be asked for."""
        return self.labels[np.searchsorted(self.groups, groups)]

    def tensors(self) -> dict[str, Tensor]:
        """The classes as tensors, to be saved."""
        data = torch.tensor(list(bytes.fromhex(self.data)), dtype=torch.uint8)
        return {"groups": torch.from_numpy(self.groups), "labels": torch.from_numpy(self.labels), "data": data}

    @classmethod
    def of_tensors(cls, tensors: dict[str, Tensor]) -> GroupClasses:
        """The classes that were saved."""
        return cls(tensors["groups"].numpy(), tensors["labels"].numpy(), bytes(tensors["data"].tolist()).hex())


def group_classes(
    train: Corpus,
    clusters: int | None,
    reader: Callable[[], ImageReader],
    seed: int,
    progress: ProgressCallback,
) -> GroupClasses:
    """One class per group of a training corpus or, with `clusters`, that many classes.

    Clusters are found by K-means among the mean features of the groups' images, which `reader` reads.
    """
    groups = np.unique(train.text_groups)
    classes = GroupClasses(groups, np.arange(len(groups)), train.digest())
    if clusters is None:
        return classes
    return replace(classes, labels=kmeans(_group_means(classes, train, reader()), clusters, seed, progress=progress))


def _group_means(classes: GroupClasses, train: Corpus, reader: ImageReader) -> Floats:
    """The mean of the features of each group's images, (groups, size), sets of vectors averaged first."""
    sums: Floats | None = None
    counts = np.zeros(classes.count, np.int64)
    for start in range(0, len(train.image_ids), IMAGES_AT_ONCE):
        images = np.arange(start, min(start + IMAGES_AT_ONCE, len(train.image_ids)))
        values, readable = reader.read(images)
        if not np.issubdtype(values.dtype, np.floating):
            raise RecipeError("objective.clusters: clusters are found among stored features; freeze the backbone first")
        vectors = values if values.ndim == 2 else values.mean(1)  # (images, size)
        rows = np.searchsorted(classes.groups, train.image_groups[images[readable]])
        sums = np.zeros((classes.count, vectors.shape[1]), np.float32) if sums is None else sums
        np.add.at(sums, rows, vectors)
        np.add.at(counts, rows, 1)
    assert sums is not None, "a training corpus has images"
    sums /= np.maximum(counts, 1)[:, None].astype(np.float32)
    return sums
