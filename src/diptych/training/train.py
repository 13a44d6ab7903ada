"""Train a recipe on a corpus into a run folder, fresh or resumed."""

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
from diptych.training.context import TrainingContext, stage_file
from diptych.training.engine.callbacks import NoCallback, TrainingCallback
from diptych.training.engine.checkpoint import Position, Snapshot, snapshot_path
from diptych.training.engine.journal import Journal
from diptych.training.engine.loop import StageLoop
from diptych.training.origin import Origin
from diptych.training.prepare import prepare_stage
from diptych.training.recipe import Recipe
from diptych.training.recipe_loader import load_recipe
from diptych.training.start import StartingPoint, settle


def train(
    recipe: Recipe | str,
    corpus: Corpus | Path | str,
    into: Path | str,
    *,
    resume: bool = False,
    device: str = "auto",
    workers: int | None = None,
    callback: TrainingCallback | None = None,
    features: Path | str = "features",
) -> Path:
    """Train a recipe (or its name) on a corpus (or its address) into a run folder, and return that folder.

    A folder that already holds a run is refused unless `resume` is set; a resumed run ends with the same weights as
    one that was never stopped. `workers` threads read images ahead; their number does not change the result. The
    features of a frozen backbone are computed once and stored below the folder `features`.
    """
    run = Path(into)
    recipe = load_recipe(recipe) if isinstance(recipe, str) else recipe
    corpus = corpus if isinstance(corpus, Corpus) else open_corpus(corpus)
    callback = callback or NoCallback()
    recipe = settle(recipe, corpus, run if resume else None, callback.message)
    torch_device = choose_device(device)
    snapshot = _find_snapshot(run, recipe) if resume else None
    if not resume:
        _check_empty(run)
    start = StartingPoint.checked(recipe, corpus, run if snapshot else None, Path(features), callback)
    digest = corpus.digest()
    if snapshot is not None:
        snapshot.check(start.vocabulary, digest)
    with locked_folder(run, RunError), interrupt_event() as interrupted:
        threads = available_cores() if workers is None else workers
        start = replace(start, interrupted=interrupted)
        training = TrainingContext(recipe, corpus, digest, run, threads, callback, Path(features), interrupted)
        remove_leftovers(run)
        position = snapshot.position if snapshot else Position(epoch=recipe.stage[0].first_epoch)
        Journal(run).rewind(position.stage, position.epoch, position.step)
        if snapshot is None:
            start.vocabulary.save(run / "vocabulary.json")
        write_text(run / "recipe.toml", recipe.to_toml())
        Origin(corpus.address, digest).save(run)
        while not (position.stage_done and position.stage == len(recipe.stage)):
            if position.stage_done:
                _keep_stage(run, position.stage)
                position, snapshot = _next_stage(position, recipe), None
            with _no_run_before_the_first_snapshot(run):
                matcher = start.build_matcher(run, position.stage, snapshot)
                model = Model.from_matcher(matcher.to(torch_device), start.vocabulary, torch_device)
                loop = StageLoop(prepare_stage(training, model, position.stage, snapshot), position)
                if snapshot is None:
                    loop.save_snapshot()
            loop.run()
            position = loop.position
    return run


@contextmanager
def _no_run_before_the_first_snapshot(run: Path) -> Iterator[None]:
    """Remove the run's files if its preparation fails or is interrupted, so that the folder can be used again."""
    try:
        yield
    except BaseException:
        if not snapshot_path(run).exists():
            for name in ("recipe.toml", "vocabulary.json", "data.json", "metrics.jsonl"):
                (run / name).unlink(missing_ok=True)
        raise


def _next_stage(done: Position, recipe: Recipe) -> Position:
    """The start of the next stage, which must beat the previous best if it continues with that model and objective.

    With another objective it is another training, whose best is reported even if it is worse.
    """
    before, after = recipe.stage[done.stage - 1 : done.stage + 1]
    same = (before.select, before.objective, before.offline) == (after.select, after.objective, after.offline)
    continues = after.start == "previous" and same and after.head is None
    return Position(stage=done.stage + 1, epoch=after.first_epoch, best=done.best if continues else None)


def _check_empty(run: Path) -> None:
    """Refuse a folder that already holds a run."""
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
    """The snapshot to resume from, if any; stages that have not begun may have changed in the recipe."""
    saved = run / "recipe.toml"
    if not saved.is_file():
        raise RunError(f"{run}: no run to resume here; train without --resume first")
    if not snapshot_path(run).exists():
        if (run / "best").exists():
            raise RunError(f"{run}: its last/ is missing, so it cannot go on; train --into another folder")
        return None
    snapshot = Snapshot.read(run)
    before, begun = load_recipe(str(saved)), snapshot.position.stage
    if not before.first(begun).trains_like(recipe.first(begun)):
        raise RunError(f"{saved}: the run was started with another recipe or other --set values; resume with those")
    return snapshot


def _keep_stage(run: Path, stage: int) -> None:
    """Copy a finished stage's best weights: the next stage may start from them and will overwrite best/."""
    kept = stage_file(run, stage)
    for file in (run / "best").glob("*.safetensors"):  # the weights, and the state of the objective, if any
        with atomic_write(kept.with_name(file.name)) as temporary:
            shutil.copyfile(file, temporary)
