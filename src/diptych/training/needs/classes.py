"""The class of each pair, for objectives that classify: every training group is a class, or K-means joins them.

The classifier is among the objective's parameters. It is saved beside the best weights, never in them, and a later
stage continues with it if data, classes and sizes are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from typing_extensions import Self

from diptych.data.sampling.batch import PairBatch
from diptych.errors import RunError
from diptych.models.storage import load_tensors
from diptych.objectives.extras import ClassifierInputs, ClassOptions
from diptych.objectives.objective import ObjectiveContext
from diptych.training.context import OBJECTIVE_FILE, StageContext
from diptych.training.inputs.group_classes import GroupClasses, group_classes
from diptych.training.inputs.sampled_classifier import SampledClassifier
from diptych.training.needs.need import EncodedPairs, Need

CLASSES, SAMPLED = "classes.", "sampled."  # prefixes of the names in a snapshot


@dataclass(frozen=True)
class SavedClassifier:
    """A classifier that was saved beside weights."""

    path: Path
    parameters: dict[str, Tensor]
    classes: GroupClasses

    @classmethod
    def beside(cls, weights: Path) -> SavedClassifier | None:
        """The classifier saved beside these weights, if their objective had one."""
        path = weights.with_name(OBJECTIVE_FILE)
        if not path.is_file():
            return None
        try:
            tensors, _ = load_tensors(path)
            classes = GroupClasses.of_tensors({name: tensors.pop(name) for name in ("groups", "labels", "data")})
        except (RunError, KeyError) as error:
            reason = f"{path}: has no {error}" if isinstance(error, KeyError) else str(error)
            raise RunError(f"{reason}; or delete this file to begin the stage with a fresh classifier") from None
        return cls(path, tensors, classes)

    def fits(self, context: StageContext, options: ClassOptions) -> bool:
        """Whether a stage can continue with it: the same data, number of classes and shapes."""
        count = options.clusters or len(np.unique(context.train.text_groups))
        wanted = ObjectiveContext(context.model.matcher.embedding_dim or 0, {Classes.name: count})
        with torch.device("meta"):
            initial = context.stage.objective.initial_parameters(wanted)
        shapes = {name: tensor.shape for name, tensor in initial.items()}
        saved = {name: tensor.shape for name, tensor in self.parameters.items()}
        return self.classes.data == context.train.digest() and saved == shapes


class Classes(Need):
    """Labels each pair with its class; with `sampled`, holds all classes and lets the optimiser train a sample."""

    name: ClassVar[str] = "classes"

    def __init__(self, classes: GroupClasses, options: ClassOptions, saved: SavedClassifier | None = None) -> None:
        self._classes, self._options, self._saved = classes, options, saved
        self._sampled: SampledClassifier | None = None
        self._rows: Tensor | None = None
        self._logit_correction: Tensor | None = None

    @classmethod
    def prepare(cls, context: StageContext) -> Self:
        """Take the classes of the snapshot or of the weights that the stage starts from, or make them."""
        objective, options = context.stage.objective, context.stage.objective.need_options(cls.name)
        if context.resumed is not None:
            return cls(GroupClasses.of_tensors(_under(CLASSES, dict(context.resumed))), options)
        saved = None if context.initial_weights is None else SavedClassifier.beside(context.initial_weights)
        if saved is not None and not saved.fits(context, options):
            saved = None
        classes = saved.classes if saved is not None else _make_classes(context, options)
        source = "fresh" if saved is None else f"that of {saved.path.parent}"
        context.training.callbacks.message(f"{objective.name}: {classes.count:,} classes; the classifier is {source}")
        return cls(classes, options, saved)

    @property
    def size(self) -> int:
        """The number of classes."""
        return self._classes.count

    def make_parameters(self, initial: dict[str, Tensor]) -> nn.ParameterDict | None:
        """Continue with a saved classifier, if any; with `sampled`, keep all classes out of the optimiser."""
        if self._saved is not None:
            for name, tensor in initial.items():
                tensor.copy_(self._saved.parameters[name])
        if self._options.sampled is None or self._options.sampled >= self.size:
            return None
        self._sampled = SampledClassifier(_tables(initial), self._options.sampled)
        numbers = {name: nn.Parameter(one) for name, one in initial.items() if not one.dim()}
        return nn.ParameterDict({**self._sampled.rows, **numbers})

    def before_step(self, batch: PairBatch, optimiser: Optimizer, device: torch.device) -> None:
        """Look up the class of each pair; with `sampled`, draw the classes to compare with."""
        labels = torch.from_numpy(self._classes.of(batch.groups)).to(device)
        if self._sampled is None:
            self._rows, self._logit_correction = labels, None
        else:
            self._rows, self._logit_correction = self._sampled.draw(labels)
            self._sampled.load(optimiser)

    def supply(self, batch: PairBatch, pairs: EncodedPairs) -> ClassifierInputs:
        """The features of the pairs' distinct images and texts, and the class of each pair."""
        assert self._rows is not None, "set by before_step"
        images, texts = pairs.encoded.features or (pairs.encoded.images, pairs.encoded.texts)
        return ClassifierInputs(
            images[: pairs.image_count],
            texts[: pairs.text_count],
            pairs.image_of,
            pairs.text_of,
            self._rows,
            self._logit_correction,
        )

    def after_step(self, optimiser: Optimizer) -> None:
        """Write the trained sample back."""
        if self._sampled is not None:
            self._sampled.store(optimiser)

    def state(self) -> dict[str, Tensor]:
        """The classes, and all rows of a sampled classifier."""
        tensors = {f"{CLASSES}{name}": table for name, table in self._classes.tensors().items()}
        if self._sampled is not None:
            tensors |= {f"{SAMPLED}{name}": table for name, table in self._sampled.tensors().items()}
        return tensors

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Resume a sampled classifier; the classes themselves are read in `prepare`."""
        if self._sampled is not None:
            self._sampled.restore(_under(SAMPLED, tensors))

    def saved_with_weights(self, parameters: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The whole classifier and its classes."""
        tables = {} if self._sampled is None else self._sampled.tables
        return {**parameters, **tables, **self._classes.tensors()}, {"classes": self.size}


def _tables(parameters: dict[str, Tensor]) -> dict[str, Tensor]:
    """The parameters with a row per class; a temperature has none."""
    return {name: table for name, table in parameters.items() if table.dim()}


def _make_classes(context: StageContext, options: ClassOptions) -> GroupClasses:
    training = context.training
    return group_classes(
        context.train,
        options.clusters,
        lambda: context.images.for_encoding(context.train),
        training.recipe.seed,
        training.progress("clusters"),
    )


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
