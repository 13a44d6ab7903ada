"""What training begins with, checked before anything is written: tokeniser, word vectors and the first matcher."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from diptych import registry
from diptych.data.corpus import Corpus
from diptych.data.origin import check_start
from diptych.data.phrases import find_mentions
from diptych.errors import RecipeError
from diptych.features.readers import image_reader
from diptych.models.matcher import Matcher, ModelSettings
from diptych.models.matchers.projected import Projected
from diptych.models.storage import load_matcher
from diptych.models.tower import FittedTextTower
from diptych.plugin_records import PluginRecord
from diptych.text.tokenisers.tokeniser import Tokeniser
from diptych.text.word_vectors import WordVectors
from diptych.training.compatibility import check_models, check_recipe
from diptych.training.context import stage_file, training_corpus
from diptych.training.engine.callbacks import Callbacks
from diptych.training.engine.checkpoint import Snapshot
from diptych.training.engine.events import Preparation
from diptych.training.inputs.texts import fit_texts
from diptych.training.inputs.tokeniser import initial_tokeniser
from diptych.training.needs.offline import lists_of_run
from diptych.training.recipe import Recipe, Stage
from diptych.training.recipe_loader import load_recipe
from diptych.training.run_plugins import used_plugins
from diptych.training.start_run import StartRun, choose_start, feature_shape


def settle(
    recipe: Recipe, corpus: Corpus, resumed: Path | None, report: Callable[[str], None] = lambda _: None
) -> Recipe:
    """The recipe with all that it leaves open: the start of stage 1 and the model; `report` receives a remark on them.

    Both are those of the resumed run, if any. A recipe without stages is refused.
    """
    if not recipe.stage:
        raise RecipeError(
            "the recipe has no stage to train: add one, or write the run of a model that needs no training with "
            "`diptych make RECIPE --into RUN`"
        )
    return with_model(choose_start(recipe, corpus, resumed, report), resumed)


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
    assert isinstance(start, str), "chosen by choose_start"
    return recipe.model_copy(update={"model": StartRun.find(start, 1).settings})


@dataclass(frozen=True)
class StartingPoint:
    """The tokeniser, word vectors and model settings that training begins with."""

    recipe: Recipe
    settings: ModelSettings
    tokeniser: Tokeniser
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
        """Check everything that could fail later, and return the starting point; a resumed `run` has a tokeniser."""
        check_recipe(recipe, corpus)
        for number, stage in enumerate(recipe.stage, 1):
            offline = stage.offline
            if offline is not None and offline.mining_stage(number) is None and not offline.by_start:
                lists_of_run(offline, training_corpus(stage, corpus))
        bases = [] if run is not None else _start_runs(recipe)
        for base in bases:
            check_start(base.folder, corpus)
        tokeniser, vectors = initial_tokeniser(recipe, corpus, run, callbacks)
        assert recipe.model is not None, "set by with_model"
        settings = recipe.model.for_data(len(tokeniser), feature_shape(corpus))
        matcher = check_models(recipe, settings, corpus, tokeniser)
        image_reader(corpus.split("val"), matcher.image_input, matcher.pretrained)  # raises if it cannot be read
        if matcher.image_input.kind == "features":
            shape = " x ".join(map(str, matcher.image_input.shape))
            callbacks.message(f"images: the features of size {shape} that came with {corpus.name}")
        plugins = used_plugins(recipe, matcher, tokeniser)
        start = cls(recipe, settings, tokeniser, vectors, corpus, stores, callbacks, plugins=plugins)
        for base in bases:
            start.from_run(base)
        return start

    def build_matcher(self, run: Path, stage: int, snapshot: Snapshot | None) -> Matcher:
        """The matcher that a stage begins with; for a snapshot, one whose weights it will restore."""
        start, head = self.recipe.stage[stage - 1].start, self.recipe.stage[stage - 1].head
        _seed_everything(self.recipe.seed, stage)
        if snapshot is not None:
            return registry.resolve("models.matchers", snapshot.about["model"], "model", ModelSettings).build()
        if start == "previous":
            matcher = load_matcher(stage_file(run, stage - 1), self.tokeniser)
        elif start == "scratch":
            matcher = self.from_scratch(self.recipe.stage[stage - 1])
        else:
            assert isinstance(start, str), "chosen by choose_start"
            matcher = self.from_run(StartRun.find(start, stage))
        return matcher if head is None else Projected(matcher, head)

    def from_scratch(self, stage: Stage) -> Matcher:
        """A fresh matcher with pretrained image weights, and word vectors or a fitted text tower if it has one."""
        matcher = self.settings.build()
        matcher.load_pretrained()
        matcher.encode_own_texts(self.tokeniser)
        tower = matcher.fitted_text_tower
        if tower is not None:
            self._fit(tower, stage)
        elif self.vectors is not None:
            matcher.load_word_vectors(torch.from_numpy(self.vectors.vectors), torch.from_numpy(self.vectors.found))
        return matcher

    def _fit(self, tower: FittedTextTower, stage: Stage) -> None:
        """Fit a text tower to the texts that a stage trains on, and to no others."""
        train = training_corpus(stage, self.corpus)
        table = self.tokeniser.encode_all(train.texts if stage.phrases is None else find_mentions(train).phrases)
        if fit_texts(
            tower, tower.settings, table, self.vectors, self.tokeniser.digest, self.stores, progress=self._report_fit
        ):
            self.callbacks.message(f"fitted the text tower {tower.settings.name!r} to {len(table):,} training texts")

    def from_run(self, base: StartRun) -> Matcher:
        """The best weights of another run, whose words and model settings must fit."""
        assert self.recipe.model is not None, "set by with_model"
        return base.matcher(self.recipe.model, self.tokeniser, feature_shape(self.corpus))

    def _report_fit(self, done: int, total: int) -> None:
        self.callbacks.send(Preparation("text tower", done, total))
        if self.interrupted.is_set():
            raise KeyboardInterrupt


def _start_runs(recipe: Recipe) -> list[StartRun]:
    """The runs that stages start from."""
    named = ((number, stage) for number, stage in enumerate(recipe.stage, 1) if stage.start_address is not None)
    return [StartRun.find(str(stage.start), number) for number, stage in named]


def _seed_everything(seed: int, stage: int) -> None:
    """Seed what a stage draws besides its batches: fresh weights and dropout."""
    torch.manual_seed(1_000_003 * seed + stage)
