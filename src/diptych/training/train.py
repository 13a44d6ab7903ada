"""`train`: from a recipe and a corpus to a run folder, fresh or resumed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from diptych.data.corpus import Corpus
from diptych.data.open import open_corpus
from diptych.errors import RunError
from diptych.files import atomic_write, locked_folder, remove_leftovers, write_text
from diptych.machine import available_cores, choose_device, interrupt_event
from diptych.model import Model
from diptych.training.engine.callbacks import Silent, Watcher
from diptych.training.engine.checkpoint import Position, Snapshot, snapshot_path
from diptych.training.engine.journal import Journal
from diptych.training.engine.loop import StageLoop, TrainingContext
from diptych.training.origin import Origin
from diptych.training.recipe import Recipe
from diptych.training.recipe_loader import load_recipe
from diptych.training.start import Start, stage_file, with_model


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
    run = Path(into)
    recipe = with_model(load_recipe(recipe) if isinstance(recipe, str) else recipe, run if resume else None)
    corpus = corpus if isinstance(corpus, Corpus) else open_corpus(corpus)
    watcher = watcher or Silent()
    place = choose_device(device)
    snapshot = _find_snapshot(run, recipe) if resume else None
    if not resume:
        _check_empty(run)
    start = Start.of(recipe, corpus, run if snapshot else None, Path(features), watcher)
    digest = corpus.digest()
    if snapshot is not None:
        snapshot.check(start.vocabulary, digest)
    with locked_folder(run, RunError), interrupt_event() as interrupted:
        threads = available_cores() if workers is None else workers
        start = replace(start, interrupted=interrupted)
        around = TrainingContext(recipe, corpus, digest, run, threads, watcher, Path(features), interrupted)
        remove_leftovers(run)
        position = snapshot.position if snapshot else Position()
        Journal(run).rewind(position.stage, position.epoch, position.step)
        if snapshot is None:
            start.vocabulary.save(run / "vocabulary.json")
        write_text(run / "recipe.toml", recipe.to_toml())
        Origin(corpus.address, digest).save(run)
        while not (position.stage_done and position.stage == len(recipe.stage)):
            if position.stage_done:
                _keep_stage(run, position.stage)
                position, snapshot = _next_stage(position, recipe), None
            with _nothing_left_before_the_first_snapshot(run):
                matcher = start.matcher(run, position.stage, snapshot)
                model = Model.from_matcher(matcher.to(place), start.vocabulary, place)
                loop = StageLoop(around, model, position, snapshot)
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
            for name in ("recipe.toml", "vocabulary.json", "data.json", "metrics.jsonl"):
                (run / name).unlink(missing_ok=True)
        raise


def _next_stage(done: Position, recipe: Recipe) -> Position:
    """The start of the stage after one that is done; going on with that model and objective, it has its best to beat.

    With another objective it is another training, whose best is to be told even if it is worse.
    """
    before, after = recipe.stage[done.stage - 1 : done.stage + 1]
    same = (before.select, before.objective, before.offline) == (after.select, after.objective, after.offline)
    goes_on = after.start == "previous" and same and after.head is None
    return Position(stage=done.stage + 1, best=done.best if goes_on else None)


def _check_empty(run: Path) -> None:
    """A fresh run needs a folder that holds no other."""
    if run.exists() and not run.is_dir():
        raise RunError(f"{run}: is a file; name a folder")
    if (run / "recipe.toml").exists():
        raise RunError(f"{run}: already holds a run; go on with --resume, or train --into another folder")
    if (run / "summary.json").exists() or any(run.glob("*/recipe.toml")):
        raise RunError(f"{run}: holds several runs; train --into another folder, or one below it")
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
    if before.first(begun) != recipe.first(begun):
        raise RunError(f"{saved}: the run was started with another recipe or other --set values; resume with those")
    return snapshot


def _keep_stage(run: Path, stage: int) -> None:
    """Keep a finished stage's best snapshot: the next stage starts from it and will overwrite best/."""
    kept = stage_file(run, stage)
    for file in (run / "best").glob("*.safetensors"):  # the weights, and a classifier where there is one
        with atomic_write(kept.with_name(file.name)) as temporary:
            shutil.copyfile(file, temporary)
