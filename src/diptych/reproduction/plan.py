"""Plans the tasks that claims need: runs that several claims share are trained once, and so are common first stages.

What has a record is finished and needs no task. A run begins as a copy of its first stages if another run of the plan
has them, too; as `diptych sweep` promises, it ends with the same weights as if it had been trained alone.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from diptych.data.corpus import Corpus
from diptych.data.phrases import find_mentions
from diptych.errors import DiptychError, RecipeError
from diptych.reproduction.claims import ClaimFile, Compare, NamedClaim, Profile
from diptych.reproduction.needs import CorpusNeeds
from diptych.reproduction.planned_run import PlannedRun, RunMaker
from diptych.reproduction.records import has_record
from diptych.reproduction.tasks import RECORDS, RUNS, MineTask, Task, TogetherTask, TrainTask, is_trained
from diptych.training.compatibility import check_recipe
from diptych.training.recipe import Stage
from diptych.training.sweep import can_be_shared

FEWEST_SEEDS = 3


@dataclass(frozen=True)
class PlannedClaim:
    """A claim that the corpus allows to test: the keys of the records that it compares, by name and seed."""

    named: NamedClaim
    keys: Mapping[str, Mapping[int, str]]

    def records(self) -> Iterator[str]:
        """The keys of all records, each once."""
        yield from dict.fromkeys(key for seeds in self.keys.values() for key in seeds.values())


@dataclass(frozen=True)
class NotApplicable:
    """A claim that cannot be tested here, and why."""

    named: NamedClaim
    reason: str


@dataclass
class Plan:
    """The claims to test, those that cannot be, and the tasks by id, in an order in which each can be performed."""

    claims: list[PlannedClaim]
    not_applicable: list[NotApplicable]
    tasks: dict[str, Task]
    runs: dict[str, PlannedRun]  # all that were planned, by key, finished or not

    def tasks_of(self, claim: PlannedClaim) -> list[Task]:
        """The tasks that a claim still needs, in the order of the plan."""
        wanted = {f"{kind} {key}" for key in claim.records() for kind in ("train", "together")}
        for task in reversed(self.tasks.values()):
            if task.id in wanted:
                wanted |= set(task.needs)
        return [task for task in self.tasks.values() if task.id in wanted]

    def needed_runs(self, done: set[str]) -> set[str]:
        """The keys of the runs whose weights a task that is not done still reads."""
        reading = [task for task in self.tasks.values() if task.id not in done]
        return {need.partition(" ")[2] for task in reading for need in (task.id, *task.needs)}


def make_plan(
    claims: Sequence[NamedClaim],
    corpus: Corpus,
    into: Path,
    *,
    seeds: Sequence[int],
    profile: Profile = "small",
    vectors: Path | None = None,
) -> Plan:
    """Plan what is still to be done for claims, with these seeds; nothing is written."""
    if len(seeds) < FEWEST_SEEDS:
        raise RecipeError(f"{len(seeds)} seeds: a claim needs at least {FEWEST_SEEDS}, or chance decides it")
    planner = _Planner(corpus, into, RunMaker(profile, corpus.digest(), vectors), seeds)
    needs = CorpusNeeds(corpus, vectors)
    planned, refused = [], []
    for named in claims:
        reason = next(needs.unmet(named.claim.needs), None)
        try:
            if reason is None:
                planned.append(planner.claim(named))
        except DiptychError as error:
            reason = str(error)
        if reason is not None:
            refused.append(NotApplicable(named, reason))
    return Plan(planned, refused, planner.tasks(planned), planner.runs)


@dataclass
class _Planner:
    corpus: Corpus
    into: Path
    maker: RunMaker
    seeds: Sequence[int]
    runs: dict[str, PlannedRun] = field(default_factory=dict)
    together: dict[str, TogetherTask] = field(default_factory=dict)
    _tasks: dict[str, Task] = field(default_factory=dict)
    _pairs: dict[tuple[bool, tuple[str, ...]], int] = field(default_factory=dict)
    _checked: set[tuple[int, str]] = field(default_factory=set)

    def claim(self, named: NamedClaim) -> PlannedClaim:
        """Plan the records of a claim; raises a DiptychError if one of its runs cannot be trained on the corpus."""
        keys = {name: {seed: self._record(named.file, name, seed) for seed in self.seeds} for name in named.claim.runs}
        for compare in named.claim.compare:
            self._check_efforts(named, compare, keys)
        return PlannedClaim(named, keys)

    def _record(self, file: ClaimFile, name: str, seed: int) -> str:
        """The key of the record of a run, or of runs that are measured together."""
        if name in file.run:
            return self._run(file, name, seed).key
        combined = file.combined[name]
        runs = [self._run(file, combined.run, seed).key]
        if combined.next_seed:
            following = self.seeds[(self.seeds.index(seed) + 1) % len(self.seeds)]
            runs.append(self._run(file, combined.run, following).key)
        phrases = None if combined.phrases is None else self._run(file, combined.phrases, seed).key
        about = " ".join([*runs, *([] if phrases is None else [phrases, f"{combined.share:g}"])])
        key = f"together-{seed}-{hashlib.sha256(about.encode()).hexdigest()[:10]}"
        task = TogetherTask(key, f"{combined.title}, seed {seed}", tuple(runs), phrases, combined.share)
        return self.together.setdefault(key, task).key

    def _run(self, file: ClaimFile, name: str, seed: int) -> PlannedRun:
        run = self.maker.run(file, name, seed, self.runs)
        if (id(file), name) not in self._checked:
            stages = [_from_scratch(stage) if run.start is not None else stage for stage in run.recipe.stage]
            check_recipe(run.recipe.model_copy(update={"stage": tuple(stages)}), self.corpus)
            self._checked.add((id(file), name))
        return run

    def _check_efforts(self, named: NamedClaim, compare: Compare, keys: Mapping[str, Mapping[int, str]]) -> None:
        """Refuse a comparison whose sides were not trained alike, unless the claim says why."""
        records = [keys[name][self.seeds[0]] for name in (*compare.higher, *compare.lower)]
        efforts = {self.runs[key].effort(self.runs) for key in records if key in self.runs}
        if len(efforts) > 1 and named.claim.unequal is None:
            spent = " and ".join(sorted(f"{each.epochs} epochs of {each.updates:g} updates" for each in efforts))
            raise RecipeError(f"{named.id}: compares runs of {spent}; make them equal, or say why with `unequal`")

    def tasks(self, claims: Sequence[PlannedClaim]) -> dict[str, Task]:
        """The tasks of claims that are not finished, each after those that it needs."""
        for claim in claims:
            for seed in self.seeds:
                for seeds in claim.keys.values():
                    self._need(seeds[seed])
        prefixes = self._prefixes()  # which changes tasks
        return _in_order({**self._tasks, **prefixes})

    def _need(self, key: str) -> None:
        """Add the tasks of a record that is not there."""
        if has_record(self.into / RECORDS, key):
            return
        if key in self.together:
            task = self.together[key]
            for run in (*task.runs, *([] if task.phrases is None else [task.phrases])):
                self._need_weights(run)
            self._tasks[task.id] = task
        else:
            self._need_weights(key, measured=True)

    def _need_weights(self, key: str, measured: bool = False) -> None:
        """Add the tasks of a run whose weights are needed, or which is to be measured."""
        run = self.runs[key]
        task = TrainTask(run, self._pairs_of(run.recipe.stage[-1]))
        if task.id in self._tasks or (not measured and is_trained(self.into / RUNS / key, run)):
            return
        if not is_trained(self.into / RUNS / key, run):
            if run.start is not None:
                self._need_weights(run.start)
            for lists in run.lists:
                self._need_weights(lists.run)
                before = self._tasks.get(f"mine {lists.run}")
                longest = [(lists.top_texts, lists.top_images)]
                longest += [(before.top_texts, before.top_images)] if isinstance(before, MineTask) else []
                texts, images = (max(lengths) for lengths in zip(*longest, strict=True))
                splits = next(stage.splits for stage in run.recipe.stage if stage.offline is not None)
                mining = MineTask(lists.run, self.runs[lists.run].title, texts, images, splits)
                self._tasks[mining.id] = mining
        self._tasks[task.id] = task

    def _prefixes(self) -> dict[str, Task]:
        """Tasks for first stages that several runs have in common; those runs then begin as copies of them."""
        runs = {
            task.run.key: task.run
            for task in self._tasks.values()
            if isinstance(task, TrainTask) and not (self.into / RUNS / task.run.key / "recipe.toml").exists()
        }
        shared = Counter(
            run.prefix(stages).key
            for run in runs.values()
            for stages in range(1, len(run.recipe.stage) + 1)
            if can_be_shared(run.recipe, stages)
        )
        found: dict[str, Task] = {}
        for run in runs.values():
            self._share(run, shared, runs, found)
        return found

    def _share(
        self, run: PlannedRun, shared: Mapping[str, int], runs: Mapping[str, PlannedRun], found: dict[str, Task]
    ) -> str | None:
        """Let a run begin as a copy of the longest start that it shares; returns that start's key."""
        for stages in range(len(run.recipe.stage) - 1, 0, -1):
            prefix, together = run.prefix(stages), shared.get(run.prefix(stages).key, 0)
            is_there = is_trained(self.into / RUNS / prefix.key, prefix)
            if not is_there and (together < 2 or shared.get(run.prefix(stages + 1).key, 0) == together):
                continue
            if prefix.key not in runs and f"train {prefix.key}" not in found:
                task = TrainTask(prefix, self._pairs_of(prefix.recipe.stage[-1]), is_measured=False)
                found[task.id] = task
                self._share(prefix, shared, runs, found)
            place = found if f"train {run.key}" in found else self._tasks
            task_of_run = place[f"train {run.key}"]
            assert isinstance(task_of_run, TrainTask)
            epochs = sum(stage.epochs for stage in prefix.recipe.stage)
            place[task_of_run.id] = replace(task_of_run, prefix=prefix.key, shared_epochs=epochs)
            return prefix.key
        return None

    def _pairs_of(self, stage: Stage) -> int:
        """How many pairs an epoch of a stage has."""
        key = (stage.phrases is not None, stage.splits)
        if key not in self._pairs:
            train = self.corpus.split(*stage.splits)
            self._pairs[key] = len(train.matched().texts) if stage.phrases is None else len(find_mentions(train))
        return self._pairs[key]


def _in_order(tasks: Mapping[str, Task]) -> dict[str, Task]:
    """The tasks in their order, but each after those that it needs."""
    ordered: dict[str, Task] = {}

    def add(task: Task) -> None:
        for need in task.needs:
            if need in tasks and need not in ordered:
                add(tasks[need])
        ordered.setdefault(task.id, task)

    for task in tasks.values():
        add(task)
    return ordered


def _from_scratch(stage: Stage) -> Stage:
    """The stage as if it started from scratch: what it starts from is trained later."""
    return stage.model_copy(update={"start": "scratch"}) if str(stage.start).startswith("run:") else stage
