"""When the tasks of a plan will be finished, if several are performed side by side, and which claims fit a budget."""

from __future__ import annotations

import heapq
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from diptych.errors import RecipeError
from diptych.reproduction.plan import Plan, PlannedClaim
from diptych.reproduction.speeds import Estimate, Speeds
from diptych.reproduction.tasks import Task, TrainTask

_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True)
class Timetable:
    """The estimate of each task, and after how many seconds it will be finished; None if that is unknown."""

    plan: Plan
    estimates: Mapping[str, Estimate]
    finished: Mapping[str, float | None]

    @classmethod
    def of(cls, plan: Plan, speeds: Speeds, jobs: int) -> Timetable:
        """The timetable of a plan, whose tasks begin in their order as soon as one of the jobs is free."""
        estimates = {task.id: speeds.of(task) for task in plan.tasks.values()}
        return cls(plan, estimates, _simulate(list(plan.tasks.values()), estimates, jobs))

    def cost(self, tasks: Sequence[Task]) -> float | None:
        """The CPU time of some tasks together; None if one of them is unknown."""
        seconds = [self.estimates[task.id].seconds for task in tasks]
        return None if None in seconds else sum(each for each in seconds if each is not None)

    def end(self, claim: PlannedClaim) -> float | None:
        """After how many seconds a claim can be judged; None if that is unknown."""
        ends = [self.finished[task.id] for task in self.plan.tasks_of(claim)]
        return None if None in ends else max((end for end in ends if end is not None), default=0.0)

    @property
    def total(self) -> float | None:
        """After how many seconds everything is finished; None if that is unknown."""
        ends = list(self.finished.values())
        return None if None in ends else max((end for end in ends if end is not None), default=0.0)

    def check_budget(self, budget: float, written: str) -> None:
        """Refuse a budget in which not even the shortest run that can begin now would be finished."""
        runs = [
            (seconds, task)
            for task in self.plan.tasks.values()
            if isinstance(task, TrainTask) and (seconds := self.estimates[task.id].seconds) is not None
        ]
        shortest = min(runs, key=lambda run: run[0], default=None)
        if shortest is not None and budget < shortest[0] and len(runs) == len(self._trainings()):
            ends = [end for claim in self.plan.claims if (end := self.end(claim)) is not None]
            raise RecipeError(
                f"--budget {written}: too small for one run; the shortest, {shortest[1].title}, takes about "
                f"{duration(shortest[0])}, and the first claim {duration(min(ends, default=shortest[0]))}"
            )

    def _trainings(self) -> list[TrainTask]:
        return [task for task in self.plan.tasks.values() if isinstance(task, TrainTask)]


def _simulate(tasks: Sequence[Task], estimates: Mapping[str, Estimate], jobs: int) -> dict[str, float | None]:
    """The end of each task; a task of unknown length, and all that come after it, have no known end."""
    ends: dict[str, float | None] = {}
    free = [0.0] * jobs  # when each job is free
    known = True
    for task in tasks:
        seconds = estimates[task.id].seconds
        known = known and seconds is not None
        if not known or seconds is None:
            ends[task.id] = None
            continue
        needed = [end for need in task.needs if (end := ends.get(need)) is not None]
        ends[task.id] = end = max(heapq.heappop(free), *needed, 0.0) + seconds
        heapq.heappush(free, end)
    return ends


def read_duration(text: str) -> float:
    """The seconds of a duration such as `90m`, `3h` or `1h30m`.

    >>> read_duration("1h30m")
    5400.0
    """
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*([a-z]+)\s*", text.strip().lower())
    if not parts or "".join(f"{number}{unit}" for number, unit in parts) != re.sub(r"\s", "", text.lower()):
        raise RecipeError(f"--budget {text}: write a duration such as 90m, 3h or 1h30m")
    if unknown := [unit for _, unit in parts if unit not in _UNITS]:
        raise RecipeError(f"--budget {text}: unknown unit {unknown[0]!r}; use {', '.join(_UNITS)}")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if not seconds:
        raise RecipeError(f"--budget {text}: give more than no time at all")
    return seconds


def duration(seconds: float | None) -> str:
    """A duration for people.

    >>> duration(40), duration(600), duration(9000), duration(None)
    ('40 s', '10 min', '2.5 h', 'unknown')
    """
    if seconds is None:
        return "unknown"
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
