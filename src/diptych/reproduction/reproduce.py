"""Re-tests claims of the papers on a corpus: plans the runs, performs them within a budget, and judges the claims."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from diptych.data.corpus import Corpus
from diptych.data.origin import Origin
from diptych.errors import RunError
from diptych.files import locked_folder
from diptych.reproduction.claims import NamedClaim, Profile, find_claims
from diptych.reproduction.jobs import Display, Outcome, perform
from diptych.reproduction.measuring import SPLIT
from diptych.reproduction.plan import FEWEST_SEEDS, NotApplicable, Plan, PlannedClaim, make_plan
from diptych.reproduction.records import Record, all_headers, has_record
from diptych.reproduction.speeds import Speeds
from diptych.reproduction.tasks import RECORDS, Task, Workplace
from diptych.reproduction.timetable import Timetable
from diptych.reproduction.verdicts import ClaimResult, judge


class NoDisplay(Display):
    """Shows nothing."""

    def begin(self, task: Task) -> None:
        """Nothing."""

    def report(self, task: Task, text: str) -> None:
        """Nothing."""

    def end(self, task: Task, error: str | None) -> None:
        """Nothing."""


@dataclass(frozen=True)
class ReproductionRequest:
    """What is asked for: claims by id, paper or `all`, on which corpus, and where the results go.

    `vectors` is a file of word vectors, `features` the folder of stored features.
    """

    claims: Sequence[str]
    corpus: Corpus
    into: Path
    seeds: int = FEWEST_SEEDS
    profile: Profile = "small"
    jobs: int = 1
    vectors: Path | None = None
    features: Path = Path("features")
    device: str = "auto"
    workers: int = 0
    keep_weights: bool = False

    def plan(self) -> tuple[Plan, Timetable]:
        """What is still to be done, the claims that are tested soonest first, and how long it will take."""
        named = find_claims(self.claims)
        first = self._plan(named)
        costs = Timetable.of(first, self._speeds(first), self.jobs)
        order = {claim.named.id: costs.cost(first.tasks_of(claim)) for claim in first.claims}
        latest = max((cost for cost in order.values() if cost is not None), default=0.0) + 1
        ordered = sorted(named, key=lambda claim: latest if order.get(claim.id) is None else order[claim.id] or 0.0)
        plan = self._plan(ordered)
        return plan, Timetable.of(plan, self._speeds(plan), self.jobs)

    def everything(self) -> Plan:
        """The plan of all claims, in the order of their files."""
        return self._plan(find_claims(["all"]))

    def _plan(self, named: Sequence[NamedClaim]) -> Plan:
        seeds = range(self.seeds)
        return make_plan(named, self.corpus, self.into, seeds=seeds, profile=self.profile, vectors=self.vectors)

    def _speeds(self, plan: Plan) -> Speeds:
        texts = int((self.corpus.text_splits == SPLIT).sum())
        return Speeds(all_headers(self.into / RECORDS), texts, plan.runs.values())


@dataclass(frozen=True)
class Reproduction:
    """The results of claims, those that cannot be tested on the corpus, and what became of the tasks."""

    request: ReproductionRequest
    results: Sequence[ClaimResult]
    not_applicable: Sequence[NotApplicable]
    outcome: Outcome = field(default_factory=Outcome)

    @property
    def seconds(self) -> float:
        """The CPU time of all runs, each counted once."""
        costs = {key: seconds for result in self.results for key, seconds in result.costs.items()}
        return sum(costs.values())


def reproduce(
    request: ReproductionRequest, plan: Plan, *, budget: float | None = None, display: Display | None = None
) -> Reproduction:
    """Perform a plan of the request, for at most `budget` seconds, and judge its claims by all records that are there.

    After an interruption, the same call continues.
    """
    into = request.into
    if (into / "recipe.toml").exists():
        raise RunError(f"{into}: contains a run; name another folder with --into")
    deadline = None if budget is None else time.monotonic() + budget
    place = Workplace(into, request.corpus, request.features, request.device, request.workers, deadline)
    with locked_folder(into, RunError) if plan.tasks else nullcontext():
        if plan.tasks:
            Origin.of(request.corpus, request.corpus.digest()).save(into)
        keep = _starts(plan) if not request.keep_weights else set(plan.runs)
        outcome = perform(plan, place, display or NoDisplay(), jobs=request.jobs, keep=keep.__contains__)
    return Reproduction(request, results(request, plan, outcome), plan.not_applicable, outcome)


def results(request: ReproductionRequest, plan: Plan, outcome: Outcome | None = None) -> list[ClaimResult]:
    """The claims of a plan, and all others that earlier calls have measured, judged by the records that are there."""
    records = request.into / RECORDS
    loaded: dict[str, Record] = {}

    def load(key: str) -> Record | None:
        if key not in loaded and has_record(records, key):
            loaded[key] = Record.load(records, key)
        return loaded.get(key)

    wanted = {claim.named.id for claim in plan.claims}
    judged = [judge(claim, load, _failure(plan, claim, outcome)) for claim in request.everything().claims]
    return [result for result in judged if result.measured or result.named.id in wanted]


def _failure(plan: Plan, claim: PlannedClaim, outcome: Outcome | None) -> str | None:
    failed = {} if outcome is None else outcome.failed
    return next((failed[task.id] for task in plan.tasks_of(claim) if task.id in failed), None)


def _starts(plan: Plan) -> set[str]:
    """The keys of runs that others start from, or draw lists of: a later call may need their weights again."""
    runs = plan.runs.values()
    return {key for run in runs for key in (run.start, *(lists.run for lists in run.lists)) if key is not None}
