"""Statistics over runs of one recipe with different seeds: mean, standard deviation, and the median run."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from diptych.evaluation.localisation.phrase_metrics import PHRASE, PHRASE_SELECTION_METRICS
from diptych.evaluation.metrics.recall import SELECTION_METRICS

METRICS = (*SELECTION_METRICS, *PHRASE_SELECTION_METRICS)
SUMS = ("rsum", f"{PHRASE}_sum")  # the sum of the recalls, of retrieval and of phrase localisation


@dataclass(frozen=True)
class SeedStatistics:
    """The metrics of runs that differ only in their seed, by the name of the run.

    >>> runs = SeedStatistics({"seed-0": {"rsum": 412.2}, "seed-1": {"rsum": 414.9}, "seed-2": {"rsum": 413.1}})
    >>> runs.median_run, round(runs.mean["rsum"], 1), round(runs.std["rsum"], 2)
    ('seed-2', 413.4, 1.37)
    """

    runs: Mapping[str, Mapping[str, float]]

    @property
    def mean(self) -> dict[str, float]:
        """The mean over the runs of every recall and of their sum."""
        return {name: statistics.fmean(values) for name, values in self._columns().items()}

    @property
    def std(self) -> dict[str, float] | None:
        """The sample standard deviation, with the number of runs minus one as divisor; None for a single run.

        This is the definition of Table I of ConVSE: only with this divisor do its five runs give the printed figures.
        """
        if len(self.runs) < 2:
            return None
        return {name: statistics.stdev(values) for name, values in self._columns().items()}

    @property
    def sum_metric(self) -> str:
        """The name of the sum of the recalls that runs are ordered by: `rsum` or `phrase_sum`."""
        first = next(iter(self.runs.values()))
        return next(name for name in SUMS if name in first)

    @property
    def median_run(self) -> str:
        """The run in the middle by the sum of the recalls; of an even number, the lower of the two middle ones."""
        ordered = sorted(self.runs, key=lambda name: self.runs[name][self.sum_metric])
        return ordered[(len(ordered) - 1) // 2]

    def to_json(self) -> dict[str, Any]:
        """Everything under stable names."""
        runs = {name: dict(metrics) for name, metrics in self.runs.items()}
        return {"runs": runs, "mean": self.mean, "std": self.std, "median_run": self.median_run}

    def _columns(self) -> dict[str, list[float]]:
        first = next(iter(self.runs.values()))
        return {name: [run[name] for run in self.runs.values()] for name in METRICS if name in first}
