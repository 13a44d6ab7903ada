"""`train`: from a recipe and a corpus to a run folder, fresh or resumed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from diptych import registry
from diptych.data.corpus import Corpus
from diptych.data.open import open_corpus
from diptych.errors import DataError, RecipeError, RunError, nearest
from diptych.evaluation.runs import SELECTABLE
from diptych.features.reader import image_reader
from diptych.files import held, remove_leftovers, replacing, write_text
from diptych.machine import choose_device, cores
from diptych.models.matcher import Matcher, ModelSettings
from diptych.models.store import load_matcher
from diptych.models.trained import Trained
from diptych.text.vocabulary import Vocabulary
from diptych.text.word_vectors import WordVectors, read_word_vectors
from diptych.training.checkpoint import Position, Snapshot, snapshot_path
from diptych.training.journal import Journal
from diptych.training.loop import StageLoop, Surroundings, interruptible, seed_everything
from diptych.training.progress import Silent, Watcher
from diptych.training.recipe import Recipe, load_recipe
from diptych.training.stage import make_optimiser, set_trainable


def train(
    recipe: Recipe | str,
    corpus: Corpus | Path | str,
    into: Path | str,
    *,
    resume: bool = False,
    device: str = "auto",
    workers: int | None = None,
    watcher: Watcher | None = None,
    features: Path | str = "features",
) -> Path:
    """Train a recipe (or its name) on a corpus (or its address) into a run folder, and give that folder back.

    A folder that already holds a run is refused unless `resume` is set; a resumed run ends with the same weights as
    one that was never stopped. `workers` threads read images ahead and never change what is read. What a frozen
    backbone makes of the images is computed once and kept in a store below the folder `features`.
    """
    recipe = load_recipe(recipe) if isinstance(recipe, str) else recipe
    corpus = corpus if isinstance(corpus, Corpus) else open_corpus(corpus)
    run = Path(into)
    watcher = watcher or Silent()
    place = choose_device(device)
    snapshot = _find_snapshot(run, recipe) if resume else None
    if not resume:
        _check_empty(run)
    start = Start.of(recipe, corpus, run if snapshot else None, watcher)
    digest = corpus.digest()
    if snapshot is not None:
        snapshot.check(start.vocabulary, digest)
    with held(run, RunError), interruptible() as interrupted:
        threads = cores() if workers is None else workers
        around = Surroundings(recipe, corpus, digest, run, threads, watcher, Path(features), interrupted)
        remove_leftovers(run)
        position = snapshot.position if snapshot else Position()
        Journal(run).rewind(position.stage, position.epoch, position.step)
        if snapshot is None:
            start.vocabulary.save(run / "vocabulary.json")
        write_text(run / "recipe.toml", recipe.to_toml())
        while not (position.stage_done and position.stage == len(recipe.stage)):
            if position.stage_done:
                _keep_stage(run, position.stage)
                position, snapshot = _next_stage(position, recipe), None
            with _nothing_left_before_the_first_snapshot(run):
                matcher = start.matcher(run, position.stage, snapshot)
                loop = StageLoop(around, Trained(matcher.to(place), start.vocabulary, place), position, snapshot)
            loop.run()
            position = loop.position
    return run


@contextmanager
def _nothing_left_before_the_first_snapshot(run: Path) -> Iterator[None]:
    """A start that fails, or is stopped while features are computed, leaves no run behind that would be in the way."""
    try:
        yield
    except BaseException:
        if not snapshot_path(run).exists():
            for name in ("recipe.toml", "vocabulary.json", "metrics.jsonl"):
                (run / name).unlink(missing_ok=True)
        raise


def _next_stage(done: Position, recipe: Recipe) -> Position:
    """The start of the stage after one that is done; going on from its best, it has that to beat."""
    before, after = recipe.stage[done.stage - 1 : done.stage + 1]
    goes_on = after.start == "previous" and after.select == before.select
    return Position(stage=done.stage + 1, best=done.best if goes_on else None)


@dataclass(frozen=True)
class Start:
    """What training begins with, checked before anything is written: words, their vectors, and the model's settings."""

    recipe: Recipe
    settings: ModelSettings
    vocabulary: Vocabulary
    vectors: WordVectors | None

    @classmethod
    def of(cls, recipe: Recipe, corpus: Corpus, run: Path | None, watcher: Watcher) -> Start:
        """Find out now, not after the first epoch, what cannot work; a resumed `run` has its words already."""
        for number, stage in enumerate(recipe.stage, 1):
            _check_splits(corpus, stage.splits, number)
            if stage.select not in SELECTABLE:
                offer = nearest(stage.select, SELECTABLE)
                raise RecipeError(f"stage.{number}.select = {stage.select!r}: cannot select by it; {offer}")
            if number == 1 and stage.start == "previous":
                raise RecipeError("stage.1.start = 'previous': there is no stage before; use 'scratch' or a run's path")
        val = _val(corpus, recipe)
        vocabulary = _vocabulary(recipe, corpus, run)
        features = None if corpus.features is None else corpus.features.shape
        settings = recipe.model.fitted(len(vocabulary), features)
        with torch.device("meta"):
            matcher = settings.build()
        for number, stage in enumerate(recipe.stage, 1):
            try:
                set_trainable(matcher, stage.trainable)
                make_optimiser(matcher, stage.optimiser)
            except RecipeError as error:
                raise RecipeError(f"stage.{number}.{error}") from None
            if stage.crops == "RC" and matcher.image_input.crops is None:
                raise RecipeError(
                    f'stage.{number}.crops = "RC": random crops need pictures and an image tower with a backbone'
                )
        image_reader(val, matcher.image_input)
        if matcher.image_input.kind == "features":
            shape = " x ".join(map(str, matcher.image_input.shape))
            watcher.say(f"images: the features of size {shape} that came with {corpus.name}")
        start = cls(recipe, settings, vocabulary, None if run else _vectors(recipe, vocabulary, watcher))
        if run is None:
            for base in (stage.start for stage in recipe.stage if stage.start not in ("scratch", "previous")):
                start.from_run(Path(base))
        return start

    def matcher(self, run: Path, stage: int, snapshot: Snapshot | None) -> Matcher:
        """The matcher that a stage begins with; a snapshot brings its own weights."""
        start = self.recipe.stage[stage - 1].start
        seed_everything(self.recipe.seed, stage)
        if snapshot is not None:
            return registry.resolve("models", snapshot.about["model"], "model", ModelSettings).build()
        if start == "previous":
            return load_matcher(_stage_file(run, stage - 1), self.vocabulary)
        if start != "scratch":
            return self.from_run(Path(start))
        matcher = self.settings.build()
        matcher.start_images()
        if self.vectors is not None:
            matcher.start_words(torch.from_numpy(self.vectors.vectors), torch.from_numpy(self.vectors.found))
        return matcher

    def from_run(self, base: Path) -> Matcher:
        """The best snapshot of another run, which must have the words and the settings that this one asks for."""
        if Vocabulary.load(base / "vocabulary.json").digest != self.vocabulary.digest:
            raise RunError(f"{base}: has another vocabulary than the run that stage 1 starts from; start from one run")
        matcher = load_matcher(base / "best" / "weights.safetensors", self.vocabulary)
        for key, value in self.settings.model_dump().items():
            if matcher.settings.model_dump().get(key) != value:
                has = matcher.settings.model_dump().get(key)
                raise RunError(f"{base}: its model has {key} = {has}, the recipe says {value}; make them equal")
        return matcher


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


def _vocabulary(recipe: Recipe, corpus: Corpus, run: Path | None) -> Vocabulary:
    """The words of a resumed run, of the run that stage 1 starts from, or of the training texts, and no others."""
    base = recipe.stage[0].start
    if run is not None:
        return Vocabulary.load(run / "vocabulary.json")
    if base != "scratch":
        return Vocabulary.load(Path(base) / "vocabulary.json")
    splits = sorted({split for stage in recipe.stage for split in stage.splits})
    try:
        return Vocabulary.count(corpus.split(*splits).texts, recipe.text.threshold)
    except DataError as error:
        raise DataError(f"{corpus.name}: {error} (text.threshold = 1 keeps every word)") from None


def _vectors(recipe: Recipe, vocabulary: Vocabulary, watcher: Watcher) -> WordVectors | None:
    if recipe.text.vectors is None:
        return None
    words = read_word_vectors(Path(recipe.text.vectors), vocabulary)
    watcher.say(f"word vectors: {int(words.found.sum()):,} of {len(vocabulary.words):,} words found")
    return words


def _check_empty(run: Path) -> None:
    """A fresh run needs a folder that holds no other."""
    if run.exists() and not run.is_dir():
        raise RunError(f"{run}: is a file; name a folder")
    if (run / "recipe.toml").exists():
        raise RunError(f"{run}: already holds a run; go on with --resume, or train --into another folder")
    remains = [name for name in ("best", "last", "stage-1", "metrics.jsonl") if (run / name).exists()]
    if remains:
        raise RunError(f"{run}: holds {remains[0]} of another run; train --into another folder")


def _find_snapshot(run: Path, recipe: Recipe) -> Snapshot | None:
    """Where a run goes on; stages that it has not begun may have changed since."""
    saved = run / "recipe.toml"
    if not saved.is_file():
        raise RunError(f"{run}: no run to resume here; train without --resume first")
    if not snapshot_path(run).exists():
        if (run / "best").exists():
            raise RunError(f"{run}: its last/ is missing, so it cannot go on; train --into another folder")
        return None
    snapshot = Snapshot.read(run)
    before, begun = load_recipe(str(saved)), snapshot.position.stage
    if _begun(before, begun) != _begun(recipe, begun):
        raise RunError(f"{saved}: the run was started with another recipe or other --set values; resume with those")
    return snapshot


def _begun(recipe: Recipe, stages: int) -> Recipe:
    return recipe.model_copy(update={"stage": recipe.stage[:stages]})


def _stage_file(run: Path, stage: int) -> Path:
    return run / f"stage-{stage}" / "weights.safetensors"


def _keep_stage(run: Path, stage: int) -> None:
    """Keep a finished stage's best snapshot: the next stage starts from it and will overwrite best/."""
    with replacing(_stage_file(run, stage)) as temporary:
        shutil.copyfile(run / "best" / "weights.safetensors", temporary)
