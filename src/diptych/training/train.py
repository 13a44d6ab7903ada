"""`train`: from a recipe and a corpus to a run folder, fresh or resumed."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch

from diptych.data.corpus import Corpus
from diptych.data.reader import image_reader
from diptych.errors import RecipeError, RunError, nearest
from diptych.evaluation.runs import SELECTABLE
from diptych.files import remove_leftovers, replacing, write_text
from diptych.machine import choose_device, cores, keep_freed_memory
from diptych.models.matcher import Matcher
from diptych.models.store import load_matcher
from diptych.models.trained import Trained
from diptych.text.vocabulary import Vocabulary
from diptych.text.word_vectors import read_word_vectors
from diptych.training.checkpoint import Position, Snapshot, snapshot_path
from diptych.training.journal import Journal
from diptych.training.loop import StageLoop, Surroundings, seed_everything
from diptych.training.progress import Silent, Watcher
from diptych.training.recipe import Recipe, load_recipe


def train(
    recipe: Recipe | str,
    corpus: Corpus,
    into: Path | str,
    *,
    resume: bool = False,
    device: str = "auto",
    workers: int | None = None,
    watcher: Watcher | None = None,
) -> Path:
    """Train a recipe (or its name) on a corpus into a run folder, and give that folder back.

    A folder that already holds a run is refused unless `resume` is set; a resumed run ends with the same weights as one
    that was never stopped. `workers` threads read images ahead and never change what is read.
    """
    keep_freed_memory()
    recipe = load_recipe(recipe) if isinstance(recipe, str) else recipe
    run = Path(into)
    _check(recipe, corpus)
    snapshot = _prepare(run, recipe, resume)
    vocabulary = _vocabulary(run, recipe, corpus, fresh=snapshot is None)
    around = Surroundings(
        recipe, corpus, corpus.digest(), run, cores() if workers is None else workers, watcher or Silent()
    )
    position = Position()
    if snapshot is not None:
        snapshot.check(vocabulary, around.digest)
        position = snapshot.position
    Journal(run).rewind(position.stage, position.epoch, position.step)
    while True:
        if not position.stage_done:
            trained = _start(around, position.stage, vocabulary, choose_device(device))
            loop = StageLoop(around, trained, position, snapshot)
            loop.run()
            position = loop.position
        if position.stage == len(recipe.stage):
            return run
        _keep_stage(run, position.stage)
        position, snapshot = Position(stage=position.stage + 1), None


def _check(recipe: Recipe, corpus: Corpus) -> None:
    """Find out now, not after the first epoch, what cannot work."""
    for number, stage in enumerate(recipe.stage, 1):
        if stage.select not in SELECTABLE:
            raise RecipeError(
                f"stage.{number}.select = {stage.select!r}: no such metric; {nearest(stage.select, SELECTABLE)}"
            )
        corpus.split(*stage.splits)
        if number == 1 and stage.start == "previous":
            raise RecipeError("stage.1.start = 'previous': there is no stage before; use 'scratch' or a run's path")
    val = corpus.split("val")
    with torch.device("meta"):
        matcher = recipe.model.fitted(1, _feature_shape(corpus)).build()
    image_reader(val, matcher.image_input.kind, matcher.image_input.shape)


def _feature_shape(corpus: Corpus) -> tuple[int, ...] | None:
    return None if corpus.features is None else corpus.features.shape


def _prepare(run: Path, recipe: Recipe, resume: bool) -> Snapshot | None:
    """Claim a folder for a fresh run, or find where to go on."""
    saved = run / "recipe.toml"
    if not resume:
        if saved.exists():
            raise RunError(f"{run}: already holds a run; go on with --resume, or train --into another folder")
        if run.exists() and not run.is_dir():
            raise RunError(f"{run}: is a file; name a folder")
        write_text(saved, recipe.to_toml())
        return None
    if not saved.is_file():
        raise RunError(f"{run}: no run to resume here; train without --resume first")
    if load_recipe(str(saved)) != recipe:
        raise RunError(f"{saved}: the run was started with another recipe or other --set values; resume with those")
    remove_leftovers(run)
    return Snapshot.read(run) if snapshot_path(run).exists() else None


def _vocabulary(run: Path, recipe: Recipe, corpus: Corpus, fresh: bool) -> Vocabulary:
    """The run's vocabulary, counted on its training texts only."""
    path = run / "vocabulary.json"
    if not fresh:
        return Vocabulary.load(path)
    splits = sorted({split for stage in recipe.stage for split in stage.splits})
    vocabulary = Vocabulary.count(corpus.split(*splits).texts, recipe.text.threshold)
    vocabulary.save(path)
    return vocabulary


def _start(around: Surroundings, stage: int, vocabulary: Vocabulary, device: torch.device) -> Trained:
    """The matcher that a stage begins with."""
    seed_everything(around.recipe.seed, stage)
    start = around.recipe.stage[stage - 1].start
    if start == "previous":
        matcher = load_matcher(_stage_file(around.run, stage - 1), vocabulary)
    elif start == "scratch":
        matcher = around.recipe.model.fitted(len(vocabulary), _feature_shape(around.corpus)).build()
        if around.recipe.text.vectors:
            _start_words(matcher, Path(around.recipe.text.vectors), around.watcher, vocabulary)
    else:
        matcher = load_matcher(Path(start) / "best" / "weights.safetensors", vocabulary)
    return Trained(matcher.to(device), vocabulary, device)


def _start_words(matcher: Matcher, file: Path, watcher: Watcher, vocabulary: Vocabulary) -> None:
    """Start the word embedding from a file of word vectors."""
    words = read_word_vectors(file, vocabulary)
    matcher.start_words(torch.from_numpy(words.vectors), torch.from_numpy(words.found))
    watcher.say(f"word vectors: {int(words.found.sum()):,} of {len(vocabulary.words):,} words found in {file}")


def _stage_file(run: Path, stage: int) -> Path:
    return run / f"stage-{stage}" / "weights.safetensors"


def _keep_stage(run: Path, stage: int) -> None:
    """Keep a finished stage's best snapshot: the next stage starts from it and will overwrite best/."""
    if _stage_file(run, stage).exists():
        return  # best/ may be the next stage's by now
    with replacing(_stage_file(run, stage)) as temporary:
        shutil.copyfile(run / "best" / "weights.safetensors", temporary)
