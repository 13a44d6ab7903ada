"""What a stage chooses on val: the metrics of each value of a setting, and the value that is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from diptych.models.matcher import Matcher, Solution

Metrics = dict[str, float]


@dataclass(frozen=True)
class Choice:
    """The metrics on val of each value, in ascending order, and the value that was kept."""

    setting: str
    select: str
    measured: tuple[tuple[float, Metrics], ...]
    kept: float

    @classmethod
    def best(cls, setting: str, select: str, measured: Mapping[float, Metrics]) -> Choice:
        """Keep the value with the best of the selecting metric; of equal results, the smallest value."""
        kept = max(measured, key=lambda value: (measured[value][select], -value))
        return cls(setting, select, tuple(sorted(measured.items())), kept)

    @property
    def metrics(self) -> Metrics:
        """The metrics of the value that was kept."""
        return dict(self.measured)[self.kept]

    def __str__(self) -> str:
        figures = ", ".join(f"{value:g}: {metrics[self.select]:.1f}" for value, metrics in self.measured)
        return f"{self.select} on val {figures}; kept {self.kept:g}"

    def to_json(self) -> dict[str, Any]:
        """All figures, as the journal and the header of the best weights hold them."""
        measured = [{self.setting: value, "val": metrics} for value, metrics in self.measured]
        return {"select": self.select, "measured": measured, "kept": self.kept}

    @classmethod
    def from_json(cls, setting: str, content: dict[str, Any]) -> Choice:
        """The inverse of `to_json`."""
        measured = tuple((each[setting], each["val"]) for each in content["measured"])
        return cls(setting, content["select"], measured, content["kept"])


def choose_solution(matcher: Matcher, select: str, validate: Callable[[], Metrics]) -> Choice:
    """Measure each solution of a matcher in closed form, and leave it with the best one."""
    measured: dict[float, Metrics] = {}
    best: Solution | None = None
    for solution in matcher.solutions():
        matcher.adopt(solution)
        measured[solution.value] = validate()
        choice = Choice.best(solution.setting, select, measured)
        if choice.kept == solution.value:
            best = solution
    assert best is not None, "a matcher has at least one solution"
    matcher.adopt(best)
    return choice
