"""Trains several runs below one folder, one after another; stages that several of them begin with are trained once.

Finished runs are left alone and interrupted ones are resumed, so the same call continues after any interruption.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from diptych.data.corpus import Corpus
from diptych.errors import DiptychError, RunError
from diptych.files import locked_folder
from diptych.models.storage import load_about
from diptych.plugin_records import record_classes, settings_classes
from diptych.training.engine.callbacks import Callback, Callbacks
from diptych.training.engine.checkpoint import Position, snapshot_path
from diptych.training.loggers.logger import OWN_FOLDERS
from diptych.training.recipe import Recipe, Stage
from diptych.training.recipe_loader import load_recipe
from diptych.training.run_plugins import check_plugins
from diptych.training.start import StartingPoint, settle
from diptych.training.train import train

SHARED = "shared"

# Makes the callbacks of one training from its title, such as "run 2 of 5: seed-1".
CallbackFactory = Callable[[str], Iterable[Callback]]


def train_runs(
    runs: Mapping[str, Recipe],
    corpus: Corpus,
    into: Path | str,
    *,
    device: str = "auto",
    workers: int | None = None,
    features: Path | str = "features",
    callbacks: CallbackFactory = lambda _title: (),
) -> Iterator[tuple[str, Path]]:
    """Train recipes into folders of their names below `into`; yields each name and folder when its run is finished.

    Everything is checked before the first training starts. Each run ends with the same weights, bit for bit on one
    CPU, as if it had been trained alone, whether or not it was interrupted or shared stages.
    """
    folder = Path(into)
    if (folder / "recipe.toml").exists():
        raise RunError(
            f"{folder}: contains a run, but several runs need a folder of their own; choose another with --into"
        )
    notes: dict[str, list[str]] = {name: [] for name in runs}
    runs = {name: settle(recipe, corpus, folder / name, notes[name].append) for name, recipe in runs.items()}
    run_set = _RunSet(runs, notes, corpus, corpus.digest(), folder, device, workers, Path(features), callbacks)
    with locked_folder(folder, RunError) if folder.exists() else nullcontext():  # a refusal leaves no folder behind
        run_set.check()
    with locked_folder(folder, RunError):
        for number, (name, recipe) in enumerate(runs.items(), 1):
            run_set.train(folder / name, recipe, f"run {number} of {len(runs)}: {name}")
            yield name, folder / name


@dataclass(frozen=True)
class _RunSet:
    """The runs of one call and the arguments that they share."""

    runs: Mapping[str, Recipe]
    notes: Mapping[str, Sequence[str]]  # by run: what its user should know about the start that was chosen
    corpus: Corpus
    digest: str  # of the corpus
    into: Path
    device: str
    workers: int | None
    features: Path
    callbacks: CallbackFactory

    def check(self) -> None:
        """Fail now for recipes that cannot be trained, not after hours of training the runs before them."""
        checked: list[Recipe] = []
        for name, recipe in self.runs.items():
            run, unseeded = self.into / name, recipe.model_copy(update={"seed": 0})
            if self._finished(run, recipe) or unseeded in checked:
                continue
            try:
                resumed = run if snapshot_path(run).exists() else None
                StartingPoint.checked(recipe, self.corpus, resumed, self.features, Callbacks())
            except DiptychError as error:
                raise type(error)(f"{name}: {error}") from None
            checked.append(unseeded)

    def train(self, run: Path, recipe: Recipe, title: str, below: int | None = None) -> None:
        """Finish a run; a new one begins as a copy of the longest start it shares, of fewer than `below` stages."""
        if self._finished(run, recipe):
            return
        stages = self._shared_stages(recipe, below or len(recipe.stage) + 1)
        if stages and not (run / "recipe.toml").exists():
            start = recipe.first(stages)
            shared = self.into / SHARED / f"stages-{stages}-seed-{recipe.seed}-{_key(start)[:8]}"
            which = "stage 1" if stages == 1 else f"stages 1 to {stages}"
            self.train(shared, start, f"{which}, shared by {self._sharing[_key(start)]} runs", stages)
            copy_run(shared, run)
        train(
            recipe,
            self.corpus,
            run,
            resume=(run / "recipe.toml").exists(),
            device=self.device,
            workers=self.workers,
            callbacks=self.callbacks("; ".join([title, *self.notes.get(run.name, ())])),
            features=self.features,
        )

    def _finished(self, run: Path, recipe: Recipe) -> bool:
        """Whether a folder contains the finished run of a recipe; a run of another recipe or other data is an error."""
        if not snapshot_path(run).exists():
            return False
        about = load_about(snapshot_path(run))
        if about["corpus"] != self.digest:
            raise RunError(f"{run}: contains a run on other data; give the same data or another folder with --into")
        position, before = Position(**about["position"]), load_recipe(str(run / "recipe.toml"))
        if not before.first(position.stage).trains_like(recipe.first(position.stage)):
            raise RunError(f"{run}: contains a run of another recipe; choose another folder with --into")
        check_plugins(run, record_classes(settings_classes(recipe)))
        return position.stage_done and position.stage == len(recipe.stage)

    @cached_property
    def _sharing(self) -> Counter[str]:
        """How many runs begin with the same stages, by a digest of those stages."""
        return Counter(
            _key(recipe.first(stages))
            for recipe in self.runs.values()
            for stages in range(1, len(recipe.stage) + 1)
            if can_be_shared(recipe, stages)
        )

    def _shared_stages(self, recipe: Recipe, below: int) -> int:
        """The largest number of stages that a recipe shares with runs that differ after them; 0 if there is none."""
        for stages in range(min(below - 1, len(recipe.stage)), 0, -1):
            together, further = (self._sharing[_key(recipe.first(count))] for count in (stages, stages + 1))
            runs_differ_after = stages == len(recipe.stage) or further < together
            if together > 1 and runs_differ_after and can_be_shared(recipe, stages):
                return stages
        return 0


def copy_run(run: Path, target: Path) -> None:
    """Copy a run that nobody is writing to; the target is complete or does not exist."""
    if target.exists():
        (target / ".lock").unlink(missing_ok=True)
        try:
            target.rmdir()
        except OSError:
            raise RunError(
                f"{target}: contains something that is not a run; move it or choose another folder"
            ) from None
    # Temporary files have another pattern, because `remove_leftovers` unlinks those and this is a folder.
    temporary = target.with_name(f".{target.name}.copying")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        ignored = shutil.ignore_patterns(".*", "report.html", *OWN_FOLDERS)
        shutil.copytree(run, temporary, ignore=ignored, copy_function=_copy_file)
        temporary.rename(target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _copy_file(source: str, target: str) -> None:
    """Copy one file; it is on disk when this returns."""
    shutil.copyfile(source, target)
    with Path(target).open("r+b") as written:
        os.fsync(written.fileno())


def _key(recipe: Recipe) -> str:
    return hashlib.sha256(recipe.to_toml().encode()).hexdigest()


def can_be_shared(recipe: Recipe, stages: int) -> bool:
    """Whether the first stages train alone as they do in the whole recipe, so that the others can continue them."""
    # The vocabulary is counted on the splits of all stages.
    return recipe.stage[0].start != "scratch" or _splits(recipe.stage[stages:]) <= _splits(recipe.stage[:stages])


def _splits(stages: Sequence[Stage]) -> set[str]:
    return {split for stage in stages for split in stage.splits}
