"""The classifier that a run keeps beside its weights, and that the next stage goes on with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from diptych.data.corpus import Corpus
from diptych.errors import RunError
from diptych.models.matcher import Matcher
from diptych.models.storage import load_tensors, save_tensors
from diptych.objectives.objective import Objective, ObjectiveContext
from diptych.training.inputs.classes import Classes, clusters_of

FILE = "objective.safetensors"


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
        try:
            tensors, _ = load_tensors(path)
            classes = Classes.of_tensors({name: tensors.pop(name) for name in ("groups", "labels", "data")})
        except (RunError, KeyError) as reason:
            told = f"{path}: has no {reason}" if isinstance(reason, KeyError) else str(reason)
            raise RunError(f"{told}; or delete this file: the stage then begins with a fresh classifier") from None
        return cls(path, tensors, classes)

    def fits(self, objective: Objective, train: Corpus, matcher: Matcher) -> bool:
        """Whether a stage with this objective can go on with it: with the same groups, classes and vectors."""
        classes = clusters_of(objective) or len(np.unique(train.text_groups))
        given = ObjectiveContext(matcher.embedding_dim or 0, classes)
        with torch.device("meta"):
            shapes = {name: tensor.shape for name, tensor in objective.start_learned(given).items()}
        here = {name: tensor.shape for name, tensor in self.learned.items()}
        return self.classes.data == train.digest() and here == shapes

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
