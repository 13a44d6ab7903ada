"""A run that a claim needs: its recipe with one seed, and a key that is the same for equal runs, whoever asks for them.

The key is a digest of all that the result depends on: the recipe without its title, the keys of the runs that it starts
from or draws lists of, the word vectors and the data. Claims of all papers share runs by it, and so do later calls.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diptych.errors import RecipeError
from diptych.files import file_hash
from diptych.reproduction.claims import ClaimFile, Profile
from diptych.training.recipe import Recipe, parse_recipe
from diptych.training.recipe_layers import lay_over
from diptych.training.recipe_loader import recipe_content

RUN = "run:"  # before the name of another run, in a recipe of a file of claims; before its key, in a planned one
VECTORS = "option:vectors"  # the file of word vectors that the user gives


@dataclass(frozen=True)
class Lists:
    """Lists of hard negatives that a run draws from: the key of the run that mines, and their lengths."""

    run: str
    top_texts: int
    top_images: int


@dataclass(frozen=True)
class Effort:
    """How long the final weights were trained: epochs, updates per pair of the data, and the splits."""

    epochs: int
    updates: float
    splits: frozenset[str]

    def __add__(self, other: Effort) -> Effort:
        return Effort(self.epochs + other.epochs, self.updates + other.updates, self.splits | other.splits)


@dataclass(frozen=True)
class PlannedRun:
    """A run by its key, with its recipe, in which other runs are named by their keys (`run:KEY`)."""

    key: str
    title: str
    recipe: Recipe
    pace: float | None = None
    vectors: Path | None = None

    @property
    def start(self) -> str | None:
        """The key of the run that stage 1 starts from."""
        start = self.recipe.stage[0].start
        return start.removeprefix(RUN) if isinstance(start, str) and start.startswith(RUN) else None

    @property
    def lists(self) -> tuple[Lists, ...]:
        """The lists of other runs that the stages draw from."""
        named = [stage.offline for stage in self.recipe.stage if stage.offline is not None]
        return tuple(
            Lists(each.lists.removeprefix(RUN), each.top_texts, each.top_images)
            for each in named
            if each.lists.startswith(RUN)
        )

    def in_folder(self, folder: Path) -> Recipe:
        """The recipe to train, with the paths of the other runs below a folder, and of the word vectors."""
        return _replaced(self.recipe, lambda key: str(folder / key), self.vectors)

    def effort(self, runs: Mapping[str, PlannedRun]) -> Effort:
        """How long the weights are trained, with those of the run that they start from."""
        total = Effort(0, 0.0, frozenset()) if self.start is None else runs[self.start].effort(runs)
        for stage in self.recipe.stage:
            if stage.start == "scratch":
                total = Effort(0, 0.0, frozenset())
            total += Effort(stage.epochs, stage.epochs / stage.batches.size, frozenset(stage.splits))
        return total

    def prefix(self, stages: int) -> PlannedRun:
        """The run of the first stages only."""
        recipe = self.recipe.first(stages)
        return PlannedRun(
            _with_digest(recipe, self.key.rpartition("-")[2]), self.title, recipe, self.pace, self.vectors
        )


@dataclass(frozen=True)
class RunMaker:
    """Makes the planned runs of one profile on one corpus; `vectors` is the user's file of word vectors, if any."""

    profile: Profile
    corpus: str  # its digest
    vectors: Path | None = None

    def run(self, file: ClaimFile, name: str, seed: int, planned: dict[str, PlannedRun]) -> PlannedRun:
        """A run of a file, with a seed; it and the runs that it needs are added to those that are planned, by key."""
        needed: dict[str, str] = {}

        def key_of(other: str) -> str:
            needed[other] = needed.get(other) or self.run(file, other, seed, planned).key
            return f"{RUN}{needed[other]}"

        content = {**run_content(file, name, self.profile), "seed": seed, "title": file.run[name].title}
        recipe = _replaced(parse_recipe(content), key_of, None)
        data = hashlib.sha256(f"{self.corpus} {self._vectors_digest(recipe)}".encode()).hexdigest()[:4]
        made = PlannedRun(_with_digest(recipe, data), recipe.title, recipe, self._pace(file, name), self.vectors)
        return planned.setdefault(made.key, made)

    def _vectors_digest(self, recipe: Recipe) -> str:
        if recipe.text.vectors != VECTORS:
            return ""
        if self.vectors is None:
            raise RecipeError("the run needs word vectors; name their file with --vectors")
        return file_hash(self.vectors)

    def _pace(self, file: ClaimFile, name: str) -> float | None:
        spec = file.run[name]
        variant = spec.variant(self.profile)
        if variant is not None and (variant.pace is not None or variant.recipe is not None):
            return variant.pace
        return None if spec.like is None else self._pace(file, spec.like)


def run_content(file: ClaimFile, name: str, profile: Profile) -> dict[str, Any]:
    """The content of a run's recipe in a profile: the recipe, or that of the run it is like, and the changes to it."""
    spec = file.run[name]
    variant = spec.variant(profile)
    if variant is not None and variant.recipe is not None:
        content = recipe_content(variant.recipe)
        content.pop("paper", None)
    elif spec.like is not None:
        content = run_content(file, spec.like, profile)
    else:
        raise RecipeError(f"the run {name!r} is not defined in the profile {profile}")
    for changes in (spec.set, {} if variant is None else variant.set):
        content = lay_over(changes, content)
    return content


def _replaced(recipe: Recipe, path_of: Callable[[str], str], vectors: Path | None) -> Recipe:
    """The recipe with other names for other runs, and with the path of word vectors, if given."""
    stages = []
    for stage in recipe.stage:
        changes: dict[str, Any] = {}
        if isinstance(stage.start, str) and stage.start.startswith(RUN):
            changes["start"] = path_of(stage.start.removeprefix(RUN))
        if stage.offline is not None and stage.offline.lists.startswith(RUN):
            lists = path_of(stage.offline.lists.removeprefix(RUN))
            changes["offline"] = stage.offline.model_copy(update={"lists": lists})
        stages.append(stage.model_copy(update=changes))
    text = recipe.text
    if text.vectors == VECTORS and vectors is not None:
        text = text.model_copy(update={"vectors": str(vectors)})
    return recipe.model_copy(update={"stage": tuple(stages), "text": text})


def _with_digest(recipe: Recipe, data: str) -> str:
    """The key of a recipe: the model, the seed and a digest; the last part stands for the data."""
    content = {key: value for key, value in recipe.to_dict().items() if key not in ("title", "paper")}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]
    model = "head" if recipe.model is None else recipe.model.name
    return f"{model}-{recipe.seed}-{digest}-{data}"
