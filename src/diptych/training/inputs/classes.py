"""The classes of a stage whose objective classifies: every training group is one, or K-means puts them together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from diptych.data.corpus import Corpus, Floats, Integers
from diptych.data.image_reader import ImageReader
from diptych.errors import DataError, RecipeError
from diptych.features.kmeans import kmeans
from diptych.objectives.instance import Instance
from diptych.objectives.objective import Objective
from diptych.progress import ProgressCallback
from diptych.training.inputs.offline import training_corpus
from diptych.training.recipe import Recipe

IMAGES_AT_ONCE = 1024


@dataclass(frozen=True, eq=False)
class Classes:
    """The class of each training group: `labels[k]` is that of `groups[k]`, and groups are in order.

    `data` is the digest of the corpus that they are groups of: elsewhere the same numbers are other groups.
    """

    groups: Integers
    labels: Integers
    data: str = ""

    @property
    def count(self) -> int:
        """How many classes there are."""
        return int(self.labels.max()) + 1

    def of(self, groups: Integers) -> Integers:
        """The classes of training groups; others have none, and are not to be asked for."""
        return self.labels[np.searchsorted(self.groups, groups)]

    def tensors(self) -> dict[str, Tensor]:
        """The classes as tensors, to be kept."""
        data = torch.tensor(list(bytes.fromhex(self.data)), dtype=torch.uint8)
        return {"groups": torch.from_numpy(self.groups), "labels": torch.from_numpy(self.labels), "data": data}

    @classmethod
    def of_tensors(cls, tensors: dict[str, Tensor]) -> Classes:
        """The classes that were kept."""
        return cls(tensors["groups"].numpy(), tensors["labels"].numpy(), bytes(tensors["data"].tolist()).hex())


def check_groups(recipe: Recipe, corpus: Corpus) -> None:
    """Find out before training begins whether the groups can be told apart as the stages ask."""
    for number, stage in enumerate(recipe.stage, 1):
        if isinstance(stage.objective, Instance) and stage.objective.needs_classes:
            try:
                groups = _told_apart(stage.objective, training_corpus(stage, corpus))
                _check_sampled(stage.objective, stage.batches.size, stage.objective.clusters or len(groups))
            except RecipeError as error:
                raise RecipeError(f"stage.{number}.{error}") from None


def _told_apart(objective: Objective, train: Corpus) -> Integers:
    """The groups of a training corpus, if there are as many as an objective needs."""
    groups, clusters = np.unique(train.text_groups), clusters_of(objective)
    if len(groups) < 2:
        raise DataError(f"{train.name}: all training images and texts are of one group; there is nothing to tell apart")
    if clusters is not None and clusters >= len(groups):
        raise RecipeError(f"objective.clusters = {clusters}: there are {len(groups)} groups; take fewer clusters")
    return groups


def _check_sampled(objective: Instance, size: int, classes: int) -> None:
    """Refuse a part of the classes that a batch might fill, so that no other could be drawn beside its own."""
    if objective.sampled is not None and objective.sampled < classes and objective.sampled <= size:
        raise RecipeError(
            f"objective.sampled = {objective.sampled}: a batch of {size} pairs may be of as many classes, and others "
            "are to be drawn beside them; set more than batches.size"
        )


def stage_classes(
    objective: Objective, train: Corpus, reader: Callable[[], ImageReader], seed: int, progress: ProgressCallback
) -> Classes:
    """Each group of a training corpus as a class of its own, or put together where the objective has `clusters`.

    Clusters are found by K-means among the mean features of the groups' images, as `reader` reads them.
    """
    groups = _told_apart(objective, train)
    classes = Classes(groups, np.arange(len(groups)), train.digest())
    clusters = clusters_of(objective)
    if clusters is None:
        return classes
    return replace(classes, labels=kmeans(_group_means(classes, train, reader()), clusters, seed, progress=progress))


def clusters_of(objective: Objective) -> int | None:
    """How many classes an objective puts the groups into, where it does."""
    return objective.clusters if isinstance(objective, Instance) else None


def _group_means(classes: Classes, train: Corpus, reader: ImageReader) -> Floats:
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
