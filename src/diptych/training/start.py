"""What training begins with, checked before anything is written: vocabulary, word vectors and the first matcher."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from diptych import registry
from diptych.data.corpus import Corpus
from diptych.data.phrases import find_mentions
from diptych.errors import RecipeError, RunError
from diptych.features.readers import image_reader
from diptych.models.matcher import Matcher, ModelSettings
from diptych.models.matchers.projected import Projected
from diptych.models.storage import load_about, load_matcher
from diptych.models.tower import FittedTextTower
from diptych.plugin_records import PluginRecord
from diptych.text.vocabulary import Vocabulary
from diptych.text.word_vectors import WordVectors
from diptych.training.compatibility import check_models, check_recipe
from diptych.training.context import best_file, stage_file, training_corpus
from diptych.training.engine.callbacks import Callbacks
from diptych.training.engine.checkpoint import Snapshot
from diptych.training.engine.events import Preparation
from diptych.training.inputs.texts import fit_texts
from diptych.training.inputs.words import initial_vocabulary
from diptych.training.needs.offline import lists_of_run
from diptych.training.recipe import Recipe, Stage
from diptych.training.recipe_loader import load_recipe
from diptych.training.run_plugins import used_plugins


def with_model(recipe: Recipe, resumed: Path | None = None) -> Recipe:
    """The recipe with a model: its own, that of the resumed run, or that of the run that stage 1 starts from."""
    start = recipe.stage[0].start
    if recipe.model is not None:
        return recipe
    if resumed is not None and (resumed / "recipe.toml").is_file():
        return recipe.model_copy(update={"model": load_recipe(str(resumed / "recipe.toml")).model})
    if start in ("scratch", "previous"):
        raise RecipeError(
            "the recipe has no model: name the run to start from, such as --set stage.1.start=runs/vsepp, or a model"
        )
    about = load_about(best_file(Path(start)))
    return recipe.model_copy(
        update={"model": registry.resolve("models.matchers", about["model"], "model", ModelSettings)}
    )


@dataclass(frozen=True)
class StartingPoint:
    """The vocabulary, word vectors and model settings that training begins with."""

    recipe: Recipe
    settings: ModelSettings
    vocabulary: Vocabulary
    vectors: WordVectors | None
    corpus: Corpus
    stores: Path  # where fits of text towers are kept
    callbacks: Callbacks
    interrupted: threading.Event = field(default_factory=threading.Event)
    plugins: tuple[PluginRecord, ...] = ()

    @classmethod
    def checked(
        cls, recipe: Recipe, corpus: Corpus, run: Path | None, stores: Path, callbacks: Callbacks
    ) -> StartingPoint:
        """Check everything that could fail later, and return the starting point; a resumed `run` has a vocabulary."""
        check_recipe(recipe, corpus)
        for number, stage in enumerate(recipe.stage, 1):
            if stage.offline is not None and stage.offline.mining_stage(number) is None:
                lists_of_run(stage.offline, training_corpus(stage, corpus))
        vocabulary, vectors = initial_vocabulary(recipe, corpus, run, callbacks)
        assert recipe.model is not None, "set by with_model"
        settings = recipe.model.for_data(len(vocabulary), None if corpus.features is None else corpus.features.shape)
        matcher = check_models(recipe, settings, corpus)
        image_reader(corpus.split("val"), matcher.image_input, matcher.pretrained)  # raises if it cannot be read
        if matcher.image_input.kind == "features":
            shape = " x ".join(map(str, matcher.image_input.shape))
            callbacks.message(f"images: the features of size {shape} that came with {corpus.name}")
        plugins = used_plugins(recipe, matcher)
        start = cls(recipe, settings, vocabulary, vectors, corpus, stores, callbacks, plugins=plugins)
        if run is None:
            for base in (stage.start for stage in recipe.stage if stage.start not in ("scratch", "previous")):
                start.from_run(Path(base))
        return start

    def build_matcher(self, run: Path, stage: int, snapshot: Snapshot | None) -> Matcher:
        """The matcher that a stage begins with; for a snapshot, one whose weights it will restore."""
        start, head = self.recipe.stage[stage - 1].start, self.recipe.stage[stage - 1].head
        _seed_everything(self.recipe.seed, stage)
        if snapshot is not None:
            return registry.resolve("models.matchers", snapshot.about["model"], "model", ModelSettings).build()
        if start == "previous":
            matcher = load_matcher(stage_file(run, stage - 1), self.vocabulary)
        elif start == "scratch":
            matcher = self.from_scratch(self.recipe.stage[stage - 1])
        else:
            matcher = self.from_run(Path(start))
        return matcher if head is None else Projected(matcher, head)

    def from_scratch(self, stage: Stage) -> Matcher:
        """A fresh matcher with pretrained image weights, and word vectors or a fitted text tower if it has one."""
        matcher = self.settings.build()
        matcher.load_pretrained()
        tower = matcher.fitted_text_tower
        if tower is not None:
            self._fit(tower, stage)
        elif self.vectors is not None:
            matcher.load_word_vectors(torch.from_numpy(self.vectors.vectors), torch.from_numpy(self.vectors.found))
        return matcher

    def _fit(self, tower: FittedTextTower, stage: Stage) -> None:
        """Fit a text tower to the texts that a stage trains on, and to no others."""
        train = training_corpus(stage, self.corpus)
        table = self.vocabulary.encode_all(train.texts if stage.phrases is None else find_mentions(train).phrases)
        if fit_texts(
            tower, tower.settings, table, self.vectors, self.vocabulary.digest, self.stores, progress=self._report_fit
        ):
            self.callbacks.message(f"fitted the text tower {tower.settings.name!r} to {len(table):,} training texts")

    def from_run(self, base: Path) -> Matcher:
        """The best weights of another run, which must have the same vocabulary and model settings."""
        if Vocabulary.load(base / "vocabulary.json").digest != self.vocabulary.digest:
            raise RunError(f"{base}: has another vocabulary than stage 1 begins with; start stage 1 from this run, too")
        matcher = load_matcher(best_file(base), self.vocabulary)
        for key, has, wanted in _differences(matcher.settings.model_dump(), self.settings.model_dump()):
            raise RunError(f"{base}: its model has {key} = {has}, recipe and data ask for {wanted}; make them equal")
        return matcher

    def _report_fit(self, done: int, total: int) -> None:
        self.callbacks.send(Preparation("text tower", done, total))
        if self.interrupted.is_set():
            raise KeyboardInterrupt


def _differences(has: Any, wanted: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The keys in which two settings differ, with both values."""
    if isinstance(has, dict) and isinstance(wanted, dict) and has.get("name") == wanted.get("name"):
        for name in sorted(has.keys() | wanted.keys()):
            yield from _differences(has.get(name), wanted.get(name), f"{key}.{name}" if key else name)
    elif has != wanted:
        yield key or "name", has, wanted


def _seed_everything(seed: int, stage: int) -> None:
    """Seed what a stage draws besides its batches: fresh weights and dropout."""
    torch.manual_seed(1_000_003 * seed + stage)
