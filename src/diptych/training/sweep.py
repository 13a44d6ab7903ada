"""Several runs below one folder, trained one after another; stages that several of them begin with are trained once.

A run that is finished is left alone and one that was begun goes on, so that the same call goes on after any stop.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from diptych.data.corpus import Corpus
from diptych.errors import DiptychError, RunError
from diptych.files import locked_folder
from diptych.models.storage import load_about
from diptych.training.engine.callbacks import Silent, Watcher
from diptych.training.engine.checkpoint import Position, snapshot_path
from diptych.training.recipe import Recipe, Stage
from diptych.training.recipe_loader import load_recipe
from diptych.training.start import Start, with_model
from diptych.training.train import train

SHARED = "shared"

# Gives the watcher of one training, whose title says which of how many it is.
Watching = Callable[[str], AbstractContextManager[Watcher]]


def train_each(
    runs: Mapping[str, Recipe],
    corpus: Corpus,
    into: Path | str,
    *,
    device: str = "auto",
    workers: int | None = None,
    features: Path | str = "features",
    watching: Watching | None = None,
) -> Iterator[tuple[str, Path]]:
    """Train recipes into folders of their names below `into`, and give each name and folder when its run is finished.

    Everything is checked before the first training starts. Each run ends with the same weights, bit for bit on one
    CPU, as one that was trained alone, wherever it was stopped and whatever it shared.
    """
    folder = Path(into)
    if (folder / "recipe.toml").exists():
        raise RunError(f"{folder}: holds a run, and several need a folder of their own; name another with --into")
    runs = {name: with_model(recipe, folder / name) for name, recipe in runs.items()}
    several = _Several(runs, corpus, corpus.digest(), folder, device, workers, Path(features), watching or _silently)
    with locked_folder(folder, RunError) if folder.exists() else nullcontext():  # a refusal leaves no folder behind
        several.check()
    with locked_folder(folder, RunError):
        for number, (name, recipe) in enumerate(runs.items(), 1):
            several.train(folder / name, recipe, f"run {number} of {len(runs)}: {name}")
            yield name, folder / name


def _silently(_title: str) -> AbstractContextManager[Watcher]:
    return nullcontext(Silent())


@dataclass(frozen=True)
class _Several:
    """The runs of one call, and what their trainings have in common."""

    runs: Mapping[str, Recipe]
    corpus: Corpus
    digest: str  # of the corpus
    into: Path
    device: str
    workers: int | None
    features: Path
    watching: Watching

    def check(self) -> None:
        """Refuse what cannot work now, not after hours of training the runs before it."""
        checked: list[Recipe] = []
        for name, recipe in self.runs.items():
            run, unseeded = self.into / name, recipe.model_copy(update={"seed": 0})
            if self._finished(run, recipe) or unseeded in checked:
                continue
            try:
                Start.of(recipe, self.corpus, run if snapshot_path(run).exists() else None, self.features, Silent())
            except DiptychError as error:
                raise type(error)(f"{name}: {error}") from None
            checked.append(unseeded)

    def train(self, run: Path, recipe: Recipe, title: str, below: int | None = None) -> None:
        """Bring a run to its end; a fresh one begins with a copy of the longest start (`below` so many stages)."""
        if self._finished(run, recipe):
            return
        stages = self._shared_stages(recipe, below or len(recipe.stage) + 1)
        if stages and not (run / "recipe.toml").exists():
            start = recipe.first(stages)
            shared = self.into / SHARED / f"stages-{stages}-seed-{recipe.seed}-{_key(start)[:8]}"
            which = "stage 1" if stages == 1 else f"stages 1 to {stages}"
            self.train(shared, start, f"{which}, shared by {self._sharing[_key(start)]} runs", stages)
            copy_run(shared, run)
        with self.watching(title) as watcher:
            train(
                recipe,
                self.corpus,
                run,
                resume=(run / "recipe.toml").exists(),
                device=self.device,
                workers=self.workers,
                watcher=watcher,
                features=self.features,
            )

    def _finished(self, run: Path, recipe: Recipe) -> bool:
        """Whether a folder holds the whole run of a recipe; a run of another recipe or of other data is refused."""
        if not snapshot_path(run).exists():
            return False
        about = load_about(snapshot_path(run))
        if about["corpus"] != self.digest:
            raise RunError(f"{run}: holds a run on other data; name the same data or another folder with --into")
        position, before = Position(**about["position"]), load_recipe(str(run / "recipe.toml"))
        if before.first(position.stage) != recipe.first(position.stage):
            raise RunError(f"{run}: holds a run of another recipe; name another folder with --into")
        return position.stage_done and position.stage == len(recipe.stage)

    @cached_property
    def _sharing(self) -> Counter[str]:
        """How many runs begin with which stages."""
        return Counter(
            _key(recipe.first(stages))
            for recipe in self.runs.values()
            for stages in range(1, len(recipe.stage) + 1)
            if _can_be_shared(recipe, stages)
        )

    def _shared_stages(self, recipe: Recipe, below: int) -> int:
        """The largest number of stages after which runs that began alike part ways; 0 if there is none."""
        for stages in range(min(below - 1, len(recipe.stage)), 0, -1):
            together, further = (self._sharing[_key(recipe.first(count))] for count in (stages, stages + 1))
            parting = stages == len(recipe.stage) or further < together
            if together > 1 and parting and _can_be_shared(recipe, stages):
                return stages
        return 0


def copy_run(run: Path, target: Path) -> None:
    """Copy a run that nobody is writing; the target is a whole run or not there."""
    if target.exists():
        (target / ".lock").unlink(missing_ok=True)
        try:
            target.rmdir()
        except OSError:
            raise RunError(f"{target}: holds something that is no run; move it or name another folder") from None
    # Not a name that remove_leftovers knows: it is a folder.
    temporary = target.with_name(f".{target.name}.copying")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        ignored = shutil.ignore_patterns(".*", "report.html")
        shutil.copytree(run, temporary, ignore=ignored, copy_function=_copy_file)
        temporary.rename(target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _copy_file(source: str, target: str) -> None:
    """Copy one file, on disk when this returns."""
    shutil.copyfile(source, target)
    with Path(target).open("r+b") as written:
        os.fsync(written.fileno())


def _key(recipe: Recipe) -> str:
    return hashlib.sha256(recipe.to_toml().encode()).hexdigest()


def _can_be_shared(recipe: Recipe, stages: int) -> bool:
    """Whether the first stages alone would begin as the whole recipe does, and the others could go on from there."""
    # Words are counted on the splits of all stages.
    return recipe.stage[0].start != "scratch" or _splits(recipe.stage[stages:]) <= _splits(recipe.stage[:stages])


def _splits(stages: Sequence[Stage]) -> set[str]:
    return {split for stage in stages for split in stage.splits}
