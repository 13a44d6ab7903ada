"""The run or pretrained pair that a training starts from: whether it fits the recipe, and its weights in its model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from diptych.data.corpus import Corpus
from diptych.errors import RecipeError, RunError, did_you_mean
from diptych.models.address import STARTER, ModelFiles, names_pair, run_folder
from diptych.models.matcher import Matcher, ModelSettings
from diptych.models.opening import open_matcher
from diptych.models.storage import (
    check_tokeniser,
    load_tensors,
    load_weights,
    matcher_header,
    model_settings,
    warn_of_changed_plugins,
)
from diptych.models.word_rows import add_word_rows
from diptych.text.tokenisers.stored import load_tokeniser
from diptych.text.tokenisers.tokeniser import Tokeniser
from diptych.text.vocabulary import Vocabulary
from diptych.training.context import best_file
from diptych.training.recipe import Recipe
from diptych.training.recipe_loader import load_recipe

# Settings that no weight depends on: how much of a photo is read, and what is dropped in training. They may differ.
_WITHOUT_WEIGHTS = frozenset({"crops", "side", "resize", "dropout"})


@dataclass(frozen=True)
class StartRun:
    """A run or a pretrained pair to start from: its name in the recipe, and its files."""

    name: str
    files: ModelFiles

    @classmethod
    def find(cls, name: str, stage: int) -> StartRun:
        """The run that a stage names; RecipeError if there is none, RunError if it is incomplete or an export."""
        if not run_folder(name).exists() and not names_pair(name):
            offer = did_you_mean(name, (STARTER, "scratch", "previous"))
            raise RecipeError(f"stage.{stage}.start = {name!r}: no such run; {offer} (or name the folder of a run)")
        files = ModelFiles.find(name)
        files.check_is_run()
        return cls(name, files)

    @property
    def folder(self) -> Path:
        """The folder of the run, or of the pair's weights."""
        return self.files.folder

    @cached_property
    def tokeniser(self) -> Tokeniser:
        """The run's tokeniser."""
        return start_tokeniser(self.name)

    @cached_property
    def settings(self) -> ModelSettings:
        """The settings of the run's model."""
        return model_settings(self._weights, self._file[1])

    @property
    def _weights(self) -> Path:
        return best_file(self.folder) if self.files.pair is None else self.files.paths[0]

    def misfit(self, settings: ModelSettings) -> str | None:
        """Why a model with these settings, for the run's tokeniser, cannot take the run's weights; None if it can."""
        for key, has, wanted in _differences(self.settings.model_dump(), settings.model_dump()):
            if key.rpartition(".")[2] not in _WITHOUT_WEIGHTS:
                return f"its model has {key} = {has}, recipe and data ask for {wanted}"
        with torch.device("meta"):
            matcher = settings.build()
        shapes = {name: tuple(tensor.shape) for name, tensor in matcher.state_dict().items()}
        for name, tensor in self._file[0].items():
            if shapes.get(name) != tuple(tensor.shape):  # a backbone of the same name in another version
                return f"its weights {name} have shape {tuple(tensor.shape)}, those of the recipe {shapes.get(name)}"
        return None

    def matcher(self, model: ModelSettings, tokeniser: Tokeniser, feature_shape: tuple[int, ...] | None) -> Matcher:
        """The run's weights in a matcher with the settings of a recipe, for the run's words and any that follow them.

        RunError if the run does not fit.
        """
        if not _extends(tokeniser, self.tokeniser):
            raise RunError(
                f"{self.name}: has another tokeniser than stage 1 begins with; start stage 1 from this run, too"
            )
        if reason := self.misfit(model.for_data(len(self.tokeniser), feature_shape)):
            raise RunError(f"{self.name}: {reason}; make them equal")
        tensors, about = self._file
        file = self._weights
        check_tokeniser(file, about, self.tokeniser)
        matcher = model.for_data(len(tokeniser), feature_shape).build()
        if len(tokeniser) > len(self.tokeniser):
            tensors = add_word_rows(tensors, matcher, len(self.tokeniser), len(tokeniser))
        load_weights(matcher, tensors, about, file)
        warn_of_changed_plugins(file, about, matcher, tokeniser)
        return matcher

    @cached_property
    def _file(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The best weights and their header, which of a pair is the one that a run of it would have."""
        if self.files.pair is None:
            return load_tensors(self._weights)
        matcher, tokeniser = open_matcher(self.files)
        return matcher.state_dict(), matcher_header(matcher, tokeniser)


def start_tokeniser(address: str) -> Tokeniser:
    """The tokeniser of the run or of the pretrained pair at an address."""
    pair = ModelFiles.find(address).pair if names_pair(address) else None
    return load_tokeniser(run_folder(address)) if pair is None else pair.tokeniser()


def choose_start(recipe: Recipe, corpus: Corpus, resumed: Path | None, report: Callable[[str], None]) -> Recipe:
    """The recipe with one start for each stage.

    If stage 1 has alternatives, it is the one that a resumed run took, or else the first whose model fits; `report`
    receives the reason if that is not the first one.
    """
    for number, stage in enumerate(recipe.stage[1:], 2):
        if not isinstance(stage.start, str):
            raise RecipeError(
                f"stage.{number}.start: only the first stage, whose start decides the words, can have alternatives; "
                "name one"
            )
    first = recipe.stage[0]
    if isinstance(first.start, str):
        return recipe
    begun = None if resumed is None else resumed / "recipe.toml"
    taken = load_recipe(str(begun)).stage[0].start if begun is not None and begun.is_file() else None
    start = taken if taken in first.start else _first_fitting(first.start, recipe, corpus, report)
    return recipe.model_copy(update={"stage": (first.model_copy(update={"start": start}), *recipe.stage[1:])})


def _first_fitting(names: tuple[str, ...], recipe: Recipe, corpus: Corpus, report: Callable[[str], None]) -> str:
    reasons: list[str] = []
    for name in names:
        reason = _why_not(name, recipe, corpus)
        if reason is None:
            if reasons:
                report(f"starts from {name}: {'; '.join(reasons)}")
            return name
        reasons.append(f"{name} does not fit, {reason}")
    raise RecipeError(f"stage.1.start: {'; '.join(reasons)}; add 'scratch' to the list, or name a run that fits")


def _why_not(name: str, recipe: Recipe, corpus: Corpus) -> str | None:
    if name in ("scratch", "previous"):
        return None
    run = StartRun.find(name, 1)
    if recipe.model is None:  # then the model is that of the run
        return None
    return run.misfit(recipe.model.for_data(len(run.tokeniser), feature_shape(corpus)))


def _extends(tokeniser: Tokeniser, other: Tokeniser) -> bool:
    """Whether the ids of the other tokeniser mean the same here."""
    if isinstance(tokeniser, Vocabulary) and isinstance(other, Vocabulary):
        return tokeniser.extends(other)
    return tokeniser.digest == other.digest


def feature_shape(corpus: Corpus) -> tuple[int, ...] | None:
    """The shape of the features that came with a corpus; None if it has pictures only."""
    return None if corpus.features is None else corpus.features.shape


def _differences(has: Any, wanted: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The keys in which two settings differ, with both values; of two towers with different names, only the names."""
    prefix = f"{key}." if key else ""
    if isinstance(has, dict) and isinstance(wanted, dict):
        if has.get("name") != wanted.get("name"):
            yield f"{prefix}name", has.get("name"), wanted.get("name")
            return
        for name in sorted(has.keys() | wanted.keys()):
            yield from _differences(has.get(name), wanted.get(name), f"{prefix}{name}")
    elif has != wanted:
        yield key, has, wanted
