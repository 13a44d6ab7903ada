"""Train a recipe on a corpus into a run folder, fresh or resumed."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import torch

from diptych import __version__
from diptych.data.corpus import Corpus
from diptych.data.open import open_corpus
from diptych.data.origin import Origin, split_as_trained
from diptych.errors import RunError
from diptych.files import atomic_write, locked_folder, remove_leftovers, write_text
from diptych.machine import available_cores, choose_device, interrupt_event
from diptych.model import Model
from diptych.ranks import Ranks
from diptych.text.tokenisers.stored import FILES as TOKENISER_FILES
from diptych.training.context import TrainingContext, best_file, stage_file, start_file
from diptych.training.distributed.agreement import Agreement
from diptych.training.distributed.gradients import copy_first
from diptych.training.engine.callbacks import Callback, Callbacks
from diptych.training.engine.checkpoint import Position, Snapshot, snapshot_path
from diptych.training.engine.collapse import CollapseWatch
from diptych.training.engine.events import Reason, TrainingEnd, TrainingStart
from diptych.training.engine.journal import Journal
from diptych.training.engine.loop import PreparedStage, StageLoop
from diptych.training.extract_together import extract_together
from diptych.training.prepare import prepare_stage
from diptych.training.recipe import Recipe
from diptych.training.recipe_loader import load_recipe
from diptych.training.run_plugins import FILE as PLUGINS_FILE
from diptych.training.run_plugins import check_plugins, save_plugins
from diptych.training.start import StartingPoint, settle


def train(
    recipe: Recipe | str,
    corpus: Corpus | Path | str,
    into: Path | str,
    *,
    resume: bool = False,
    device: str = "auto",
    workers: int | None = None,
    callbacks: Iterable[Callback] = (),
    features: Path | str = "features",
) -> Path:
    """Train a recipe (or its name) on a corpus (or its address) into a run folder, and return that folder.

    A folder that already holds a run is refused unless `resume` is set; a resumed run ends with the same weights as
    one that was never stopped. `workers` threads read images ahead; their number does not change the result. The
    features of a frozen backbone are computed once and stored below the folder `features`. `callbacks` are told about
    the progress, in their order (see `Callback`).

    Processes that were started by torchrun train one run together, as one process would with the same batches. They
    share the run's folder and that of the features. The first of them writes, and calls the callbacks.
    """
    run, ranks = Path(into), Ranks.current()
    recipe = load_recipe(recipe) if isinstance(recipe, str) else recipe
    if not isinstance(corpus, Corpus):
        corpus, _ = split_as_trained(open_corpus(corpus), [run] if resume else [])
    journal = Journal(run)
    all_callbacks = Callbacks(callbacks, (journal, CollapseWatch())) if ranks.is_first else Callbacks()
    plan = ranks.together(lambda: Plan.checked(recipe, corpus, run, resume, Path(features), all_callbacks))
    ranks.must_agree(plan.to_compare())
    torch_device = choose_device(device)
    lock = locked_folder(run, RunError) if ranks.is_first else nullcontext()
    with lock, interrupt_event() as asked:
        threads = available_cores() if workers is None else workers
        start, snapshot, position = replace(plan.start, interrupted=asked), plan.snapshot, plan.position
        training = TrainingContext(
            plan.recipe, corpus, plan.digest, run, threads, all_callbacks, Path(features), Agreement(ranks, asked)
        )
        with _no_run_before_the_first_snapshot(run) if ranks.is_first else nullcontext():
            if ranks.is_first:
                _write_beginning(plan, corpus, run)
            ranks.wait()
            steps = journal.finished_steps() + position.step
            with all_callbacks.training(partial(_training_end, run)):
                all_callbacks.start(TrainingStart(run, plan.recipe, resume, steps, all_callbacks.send))
                _train_stages(training, start, torch_device, position, snapshot)
    return run


@dataclass(frozen=True)
class Plan:
    """What was checked before anything is written."""

    recipe: Recipe
    start: StartingPoint
    digest: str  # of the corpus
    snapshot: Snapshot | None

    @classmethod
    def checked(
        cls, recipe: Recipe, corpus: Corpus, run: Path, resume: bool, features: Path, callbacks: Callbacks
    ) -> Plan:
        """Settle what the recipe leaves open, and check everything that could fail later."""
        recipe = settle(recipe, corpus, run if resume else None, callbacks.message)
        snapshot = _find_snapshot(run, recipe) if resume else None
        if not resume:
            _check_empty(run)
        start = StartingPoint.checked(recipe, corpus, run if snapshot else None, features, callbacks)
        digest = corpus.digest()
        if snapshot is not None:
            snapshot.check(start.tokeniser, digest)
            check_plugins(run, start.plugins)
        return cls(recipe, start, digest, snapshot)

    @property
    def position(self) -> Position:
        """Where training begins."""
        return self.snapshot.position if self.snapshot else Position(epoch=self.recipe.stage[0].first_epoch)

    def to_compare(self) -> dict[str, str]:
        """What must be the same on all ranks, by the names that an error gives it."""
        return {
            "Diptych": __version__,
            "torch": torch.__version__,
            "the recipe": hashlib.sha256(self.recipe.to_toml().encode()).hexdigest()[:12],
            "the data": self.digest[:12],
            "the tokeniser": self.start.tokeniser.digest[:12],
            "the position": json.dumps(asdict(self.position)),
        }


def _write_beginning(plan: Plan, corpus: Corpus, run: Path) -> None:
    """Write what a run has from its beginning, and forget what was written after the snapshot, if there is one."""
    remove_leftovers(run)
    Journal(run).rewind(plan.position.stage, plan.position.epoch, plan.position.step)
    if plan.snapshot is None:
        plan.start.tokeniser.save(run)
    write_text(run / "recipe.toml", plan.recipe.to_toml())
    Origin.of(corpus, plan.digest).save(run)
    save_plugins(run, plan.start.plugins)


def _train_stages(
    training: TrainingContext, start: StartingPoint, device: torch.device, position: Position, snapshot: Snapshot | None
) -> None:
    """Train the rest of the stage that the position is in, and all later stages."""
    run, recipe, ranks = training.run, training.recipe, training.ranks
    while not (position.stage_done and position.stage == len(recipe.stage)):
        if position.stage_done:
            ranks.first_alone(partial(_keep_stage, training, position.stage))
            position, snapshot = _next_stage(position, recipe), None
        extract_together(training, start, device, position.stage, snapshot)
        prepared = ranks.first_alone(partial(prepare, training, start, device, position.stage, snapshot))
        copy_first((*prepared.step.matcher.state_dict().values(), *prepared.step.parameters.values()), ranks)
        loop = StageLoop(prepared, position, Journal(run).finished_steps())
        if snapshot is None:
            loop.write_snapshot()
        try:
            loop.run()
        except BaseException as error:
            training.agreement.leave(error)
            raise
        position = loop.position


def prepare(
    training: TrainingContext, start: StartingPoint, device: torch.device, stage: int, snapshot: Snapshot | None
) -> PreparedStage:
    """Make the matcher that a stage begins with, and prepare the stage."""
    matcher = start.build_matcher(training.run, stage, snapshot)
    model = Model.from_matcher(matcher.to(device), start.tokeniser, device)
    return prepare_stage(training, model, stage, snapshot)


def _training_end(run: Path, reason: Reason, error: BaseException | None) -> TrainingEnd:
    file = best_file(run).with_name("metrics.json")
    best = json.loads(file.read_text(encoding="utf-8"))["val"] if file.is_file() else {}
    return TrainingEnd(run, reason, error, best)


@contextmanager
def _no_run_before_the_first_snapshot(run: Path) -> Iterator[None]:
    """Remove the run's files if its preparation fails or is interrupted, so that the folder can be used again."""
    try:
        yield
    except BaseException:
        if not snapshot_path(run).exists():
            for name in ("recipe.toml", *TOKENISER_FILES, "data.json", PLUGINS_FILE, "metrics.jsonl"):
                (run / name).unlink(missing_ok=True)
            shutil.rmtree(start_file(run).parent, ignore_errors=True)
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
    remains = [name for name in ("best", "last", "stage-1", "start", "metrics.jsonl") if (run / name).exists()]
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
        raise RunError(
            f"{saved}: the run was started with another recipe or other --set values; resume with those, or with this "
            "file as the recipe"
        )
    return snapshot


def _keep_stage(training: TrainingContext, stage: int) -> None:
    """Copy a finished stage's best weights: the next stage may start from them and will overwrite best/."""
    if not training.ranks.is_first:
        return
    run, kept = training.run, stage_file(training.run, stage)
    for file in (run / "best").glob("*.safetensors"):  # the weights, and the state of the objective, if any
        with atomic_write(kept.with_name(file.name)) as temporary:
            shutil.copyfile(file, temporary)
