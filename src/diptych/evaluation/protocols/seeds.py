"""Several runs of one recipe, seed by seed: the mean of each metric, how far it scatters, and the run in the middle."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from diptych.evaluation.localisation.phrase_metrics import PHRASE
from diptych.evaluation.localisation.phrase_metrics import SELECTABLE as PHRASE_RECALLS
from diptych.evaluation.runs import SELECTABLE as RECALLS

METRICS = (*RECALLS, *PHRASE_RECALLS)
SUMS = ("rsum", f"{PHRASE}_sum")  # what runs are ordered by: of retrieval, and of runs that find phrases


@dataclass(frozen=True)
class SeedStatistics:
    """The metrics of runs that differ in their seed only, by the name of the run.

    >>> statistics = SeedStatistics({"seed-0": {"rsum": 412.2}, "seed-1": {"rsum": 414.9}, "seed-2": {"rsum": 413.1}})
    >>> statistics.median_run, round(statistics.mean["rsum"], 1), round(statistics.std["rsum"], 2)
    ('seed-2', 413.4, 1.37)
    """

    runs: Mapping[str, Mapping[str, float]]

    @property
    def mean(self) -> dict[str, float]:
        """The mean over the runs, of every recall and their sum."""
        return {name: statistics.fmean(values) for name, values in self._columns().items()}

    @property
    def std(self) -> dict[str, float] | None:
        """The sample standard deviation (divided by the number of runs less one); one run alone has none.

        It is the one of Table I of ConVSE: five figures whose squares are divided by four give what is printed there.
        """
        if len(self.runs) < 2:
            return None
        return {name: statistics.stdev(values) for name, values in self._columns().items()}

    @property
    def total(self) -> str:
        """The metric that says most about a run: the sum of its recalls, `rsum` or `phrase_sum`."""
        first = next(iter(self.runs.values()))
        return next(name for name in SUMS if name in first)

    @property
    def median_run(self) -> str:
        """The run in the middle by the sum of recalls; of an even number the lower of the two middle ones."""
        ordered = sorted(self.runs, key=lambda name: self.runs[name][self.total])
        return ordered[(len(ordered) - 1) // 2]

    def to_json(self) -> dict[str, Any]:
        """Everything under lasting names."""
        runs = {name: dict(metrics) for name, metrics in self.runs.items()}
        return {"runs": runs, "mean": self.mean, "std": self.std, "median_run": self.median_run}

    def _columns(self) -> dict[str, list[float]]:
        first = next(iter(self.runs.values()))
        return {name: [run[name] for run in self.runs.values()] for name in METRICS if name in first}
