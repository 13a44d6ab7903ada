"""The classes of a stage whose objective classifies: every training group is one, or K-means puts them together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from diptych.data.corpus import Corpus, Floats, Integers
from diptych.data.reader import ImageReader
from diptych.errors import DataError, RecipeError
from diptych.features.kmeans import kmeans
from diptych.models.matcher import Matcher
from diptych.models.store import load_tensors, save_tensors
from diptych.objectives.instance import Instance
from diptych.objectives.objective import Given, Objective

IMAGES_AT_ONCE = 1024
FILE = "objective.safetensors"

Watch = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Classes:
    """The class of each training group: `labels[k]` is that of `groups[k]`, and groups are in order."""

    groups: Integers
    labels: Integers

    @property
    def count(self) -> int:
        """How many classes there are."""
        return int(self.labels.max()) + 1

    def of(self, groups: Integers) -> Integers:
        """The classes of some training groups."""
        return self.labels[np.searchsorted(self.groups, groups)]

    def tensors(self) -> dict[str, Tensor]:
        """The classes as tensors, to be kept."""
        return {"groups": torch.from_numpy(self.groups), "labels": torch.from_numpy(self.labels)}

    @classmethod
    def of_tensors(cls, tensors: dict[str, Tensor]) -> Classes:
        """The classes that were kept."""
        return cls(tensors["groups"].numpy(), tensors["labels"].numpy())


def stage_classes(
    objective: Objective, train: Corpus, reader: Callable[[], ImageReader], seed: int, watch: Watch
) -> Classes:
    """Each group of a training corpus as a class of its own, or put together where the objective has `clusters`.

    Clusters are found by K-means among the mean features of the groups' images, as `reader` reads them.
    """
    groups = np.unique(train.text_groups)
    if len(groups) < 2:
        raise DataError(f"{train.name}: all training images and texts are of one group; there is nothing to tell apart")
    classes = Classes(groups, np.arange(len(groups)))
    clusters = _clusters(objective)
    if clusters is None:
        return classes
    if clusters >= classes.count:
        raise RecipeError(f"objective.clusters = {clusters}: there are {classes.count} groups; take fewer clusters")
    return Classes(groups, kmeans(_group_means(classes, train, reader()), clusters, seed, watch=watch))


def _clusters(objective: Objective) -> int | None:
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
    means: Floats = sums / np.maximum(counts, 1).astype(np.float32)[:, None]
    return means


@dataclass(frozen=True)
class KeptClassifier:
    """What an objective had learned of its classes when a snapshot was kept, beside the weights and apart from them."""

    path: Path
    learned: dict[str, Tensor]
    classes: Classes

    @classmethod
    def beside(cls, weights: Path) -> KeptClassifier | None:
        """That of a kept snapshot's weights; none where its objective did not classify."""
        path = weights.parent / FILE
        if not path.is_file():
            return None
        tensors, _ = load_tensors(path)
        classes = Classes.of_tensors({name: tensors.pop(name) for name in ("groups", "labels")})
        return cls(path, tensors, classes)

    def fits(self, objective: Objective, train: Corpus, matcher: Matcher) -> bool:
        """Whether a stage with this objective can go on with it: with the same groups, classes and vectors."""
        groups = np.unique(train.text_groups)
        given = Given(matcher.joint or 0, _clusters(objective) or len(groups))
        with torch.device("meta"):
            shapes = {name: tensor.shape for name, tensor in objective.start_learned(given).items()}
        here = {name: tensor.shape for name, tensor in self.learned.items()}
        return np.array_equal(self.classes.groups, groups) and here == shapes

    @torch.no_grad()
    def put_into(self, learned: Mapping[str, Tensor]) -> None:
        """Go on with what was learned."""
        for name, tensor in learned.items():
            tensor.copy_(self.learned[name])


def keep_classifier(weights: Path, learned: Mapping[str, Tensor], classes: Classes | None) -> None:
    """Write what an objective has learned of its classes beside weights that are kept; without classes, nothing."""
    path = weights.parent / FILE
    if classes is None:
        path.unlink(missing_ok=True)  # of a stage before
    else:
        save_tensors(path, {**learned, **classes.tensors()}, {"classes": classes.count})
