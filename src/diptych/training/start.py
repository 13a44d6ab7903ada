"""What training begins with, checked before anything is written: words, their vectors, the model of each stage."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from diptych import registry
from diptych.data.corpus import Corpus
from diptych.data.phrases import find_mentions
from diptych.errors import DataError, RecipeError, RunError, did_you_mean
from diptych.evaluation.localisation.phrase_metrics import PHRASE_SELECTION_METRICS
from diptych.evaluation.metrics.recall import SELECTION_METRICS
from diptych.features.readers import image_reader
from diptych.models.matcher import Matcher, ModelSettings
from diptych.models.matchers.projected import Projected
from diptych.models.storage import load_about, load_matcher
from diptych.models.tower import FittedTextTower
from diptych.text.vocabulary import Vocabulary
from diptych.text.word_vectors import WordVectors, keep_words_with_vectors, read_word_vectors
from diptych.training.engine.callbacks import Watcher
from diptych.training.engine.checkpoint import Snapshot
from diptych.training.engine.stage import check_chunks, check_classes, check_pairs, make_optimiser, set_trainable
from diptych.training.inputs.classes import check_groups
from diptych.training.inputs.images import check_regions
from diptych.training.inputs.offline import check_offline, training_corpus
from diptych.training.inputs.phrases import check_phrases
from diptych.training.inputs.texts import fit_texts
from diptych.training.recipe import Recipe, Stage
from diptych.training.recipe_loader import load_recipe


def with_model(recipe: Recipe, resumed: Path | None = None) -> Recipe:
    """The recipe with a model: its own, that of the run it resumes, or that of the run that stage 1 starts from."""
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
class Start:
    """What training begins with, checked before anything is written: words, their vectors, and the model's settings."""

    recipe: Recipe
    settings: ModelSettings
    vocabulary: Vocabulary
    vectors: WordVectors | None
    corpus: Corpus
    stores: Path  # where the fits of text towers are kept
    watcher: Watcher
    interrupted: threading.Event = field(default_factory=threading.Event)

    @classmethod
    def of(cls, recipe: Recipe, corpus: Corpus, run: Path | None, stores: Path, watcher: Watcher) -> Start:
        """Find out now, not after the first epoch, what cannot work; a resumed `run` has its words already."""
        for number, stage in enumerate(recipe.stage, 1):
            _check_splits(corpus, stage.splits, number)
            selectable = SELECTION_METRICS if stage.phrases is None else PHRASE_SELECTION_METRICS
            if stage.select not in selectable:
                offer = did_you_mean(stage.select, selectable)
                raise RecipeError(f"stage.{number}.select = {stage.select!r}: cannot select by it; {offer}")
            if number == 1 and stage.start == "previous":
                raise RecipeError("stage.1.start = 'previous': there is no stage before; use 'scratch' or a run's path")
        check_offline(recipe, corpus)
        check_groups(recipe, corpus)
        val = _val(corpus, recipe)
        _check_mentions(corpus, recipe)
        vocabulary, vectors = _words(recipe, corpus, run, watcher)
        features = None if corpus.features is None else corpus.features.shape
        assert recipe.model is not None, "given by with_model"
        settings = recipe.model.for_data(len(vocabulary), features)
        matcher = _check_stages(recipe, settings)
        image_reader(val, matcher.image_input, matcher.pretrained)
        if matcher.image_input.kind == "features":
            shape = " x ".join(map(str, matcher.image_input.shape))
            watcher.say(f"images: the features of size {shape} that came with {corpus.name}")
        start = cls(recipe, settings, vocabulary, vectors, corpus, stores, watcher)
        if run is None:
            for base in (stage.start for stage in recipe.stage if stage.start not in ("scratch", "previous")):
                start.from_run(Path(base))
        return start

    def matcher(self, run: Path, stage: int, snapshot: Snapshot | None) -> Matcher:
        """The matcher that a stage begins with; a snapshot brings its own weights."""
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
        """A fresh matcher, started from pretrained weights and word vectors, or fitted, where there is such a thing."""
        matcher = self.settings.build()
        matcher.load_pretrained()
        tower = matcher.fitted_text_tower
        if tower is not None:
            self._fit(tower, stage)
        elif self.vectors is not None:
            matcher.load_word_vectors(torch.from_numpy(self.vectors.vectors), torch.from_numpy(self.vectors.found))
        return matcher

    def _fit(self, tower: FittedTextTower, stage: Stage) -> None:
        """Fit a text tower to what a stage trains on, and to nothing else."""
        train = training_corpus(stage, self.corpus)
        table = self.vocabulary.encode_all(train.texts if stage.phrases is None else find_mentions(train).phrases)
        if fit_texts(tower, tower.settings, table, self.vectors, self.vocabulary.digest, self.stores, self._fitting):
            self.watcher.say(f"fitted the text tower {tower.settings.name!r} to {len(table):,} training texts")

    def from_run(self, base: Path) -> Matcher:
        """The best snapshot of another run, which must have the words and the settings that this one asks for."""
        if Vocabulary.load(base / "vocabulary.json").digest != self.vocabulary.digest:
            raise RunError(f"{base}: has another vocabulary than stage 1 begins with; start stage 1 from this run, too")
        matcher = load_matcher(best_file(base), self.vocabulary)
        for key, has, wanted in _differences(matcher.settings.model_dump(), self.settings.model_dump()):
            raise RunError(f"{base}: its model has {key} = {has}, recipe and data ask for {wanted}; make them equal")
        return matcher

    def _fitting(self, done: int, total: int) -> None:
        self.watcher.preparing("text tower", done, total)
        if self.interrupted.is_set():
            raise KeyboardInterrupt


def _differences(has: Any, wanted: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two settings differ: the key, and both values."""
    if isinstance(has, dict) and isinstance(wanted, dict) and has.get("name") == wanted.get("name"):
        for name in sorted(has.keys() | wanted.keys()):
            yield from _differences(has.get(name), wanted.get(name), f"{key}.{name}" if key else name)
    elif has != wanted:
        yield key or "name", has, wanted


def _check_stages(recipe: Recipe, settings: ModelSettings) -> Matcher:
    """Try each stage on a model without memory; the last stage's."""
    with torch.device("meta"):
        matcher = settings.build()
        for number, stage in enumerate(recipe.stage, 1):
            try:
                matcher = matcher if stage.start == "previous" else settings.build()
                matcher = matcher if stage.head is None else Projected(matcher, stage.head)
                _check_stage(stage, matcher, recipe.stage[number - 2] if number > 1 else None)
            except RecipeError as error:
                raise RecipeError(f"stage.{number}.{error}") from None
    return matcher


def _check_stage(stage: Stage, matcher: Matcher, before: Stage | None) -> None:
    set_trainable(matcher, stage.trainable)
    make_optimiser(matcher, stage.optimiser)
    check_regions(stage, matcher)
    check_phrases(stage, matcher)
    check_pairs(stage, matcher)
    check_classes(stage, matcher, before)
    wanted = matcher.image_input
    if stage.crops is not None and wanted.crops is None:
        raise RecipeError(f'crops = "{stage.crops}": random crops need pictures and an image tower with a backbone')
    if wanted.regions is not None and not wanted.regions.from_map and not matcher.reads_views:
        raise RecipeError("model.image: 'views' are several vectors an image, which 'dual_path' reads; use 'backbone'")
    if stage.batches.chunk is not None:
        check_chunks(matcher, stage.objective)
    if stage.objective.needs_within and not matcher.compares_within_modality:
        raise RecipeError(
            f"objective: {stage.objective.name!r} compares images with images, which needs an embedding model"
        )


def _check_splits(corpus: Corpus, splits: Sequence[str], number: int) -> None:
    for split in splits:
        if not corpus.split_sizes().get(split):
            raise DataError(
                f"{corpus.name}: stage {number} of the recipe trains on the split {split}, which has no images "
                f"(images: {corpus.split_sizes()}); use another recipe, or --set stage.{number}.splits=\"['train']\""
            )
    corpus.split(*splits)


def _val(corpus: Corpus, recipe: Recipe) -> Corpus:
    """The images and texts that choose the best snapshot."""
    if not corpus.split_sizes().get("val"):
        raise DataError(
            f"{corpus.name}: the val split is empty, and stage.1.select = {recipe.stage[0].select!r} chooses the best "
            "snapshot on it; mark some images as val (a split column, or a folder val/)"
        )
    return corpus.split("val")


def _check_mentions(corpus: Corpus, recipe: Recipe) -> None:
    """A stage on phrases needs some with a box, to train on and to be measured on."""
    for number, stage in enumerate(recipe.stage, 1):
        for splits in (stage.splits, ("val",)) if stage.phrases is not None else ():
            try:
                find_mentions(corpus.split(*splits))
            except DataError as error:
                raise DataError(f"{error} (stage {number} needs some in the split {'+'.join(splits)})") from None


def _words(recipe: Recipe, corpus: Corpus, run: Path | None, watcher: Watcher) -> tuple[Vocabulary, WordVectors | None]:
    """The words, and the vectors that they start from where a stage begins from scratch and there are such.

    The words are those of a resumed run, of the run that stage 1 starts from, or of the training texts, and no others.
    """
    base, text = recipe.stage[0].start, recipe.text
    begun = run if run is not None else None if base == "scratch" else Path(base)
    vocabulary = _counted(recipe, corpus) if begun is None else Vocabulary.load(begun / "vocabulary.json")
    fresh = recipe.stage if run is None else recipe.stage[1:]  # a run that goes on has begun with the first
    started = text.use != "filter" and any(stage.start == "scratch" for stage in fresh)
    filtered = text.use != "start" and begun is None
    if filtered and text.vectors is None:
        raise RecipeError(
            f"text.use = {text.use!r}: a file of vectors says which words there are; set text.vectors, or "
            "text.use=start for all words of the training texts"
        )
    if text.vectors is None or not (filtered or started):
        return vocabulary, None
    vectors = read_word_vectors(Path(text.vectors), vocabulary)
    watcher.say(f"word vectors: {int(vectors.found.sum()):,} of {len(vocabulary.words):,} words found")
    if filtered:
        try:
            vocabulary, vectors = keep_words_with_vectors(vocabulary, vectors)
        except DataError as error:
            raise DataError(f"{text.vectors}: {error}") from None
    return vocabulary, vectors if started else None


def _counted(recipe: Recipe, corpus: Corpus) -> Vocabulary:
    """The words of the training texts."""
    splits = sorted({split for stage in recipe.stage for split in stage.splits})
    try:
        train = corpus.split(*splits)
        phrases = [phrase.text for some in train.phrases or () for phrase in some]
        named = any(stage.phrases is not None for stage in recipe.stage)
        return Vocabulary.from_texts([*train.texts, *phrases] if named else train.texts, recipe.text.threshold)
    except DataError as error:
        raise DataError(f"{corpus.name}: {error} (text.threshold = 1 keeps every word)") from None


def stage_file(run: Path, stage: int) -> Path:
    """Where a run keeps the best snapshot of a finished stage, from which the next may start."""
    return run / f"stage-{stage}" / "weights.safetensors"


def best_file(run: Path) -> Path:
    """Where a run keeps the weights of its best snapshot."""
    return run / "best" / "weights.safetensors"


def _seed_everything(seed: int, stage: int) -> None:
    """Seed what a stage draws from besides its batches: fresh weights and dropout."""
    torch.manual_seed(1_000_003 * seed + stage)
