"""Whether a claim holds, from the records of its runs, by a rule that was written down before the first run.

A comparison has an effect, the metric of `higher` minus that of `lower`, with an interval over test queries (paired
bootstrap, pooled over seeds) and an interval over seeds (Student). It

    holds            if every interval lies where the claim expects the effect,
    does not hold    if every interval lies where the claim does not expect it,
    is undecided     otherwise.

A claim holds if all of its comparisons do, and does not hold if one of them does not. A time is compared as a ratio,
with intervals over seeds of its logarithm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from diptych.errors import RunError
from diptych.evaluation.metrics.pooled_difference import Interval, PooledDifference, pool_differences
from diptych.reproduction.claims import Compare, Figure, Metric, NamedClaim, Published
from diptych.reproduction.plan import PlannedClaim
from diptych.reproduction.records import Record

Verdict = Literal["holds", "does not hold", "undecided", "not measured"]

RATIOS: tuple[Metric, ...] = ("seconds",)  # compared as ratios
_PER_RUN: tuple[Metric, ...] = ("first_epochs", "overlap", "seconds")  # no means over queries

Runs = Mapping[str, Mapping[int, Record]]  # by the name that the claim gives them, and by seed


@dataclass(frozen=True)
class Measured:
    """A comparison with its effect; of a ratio, the effect and its bounds are the ratio itself, not its logarithm."""

    compare: Compare
    metric: Metric
    effect: PooledDifference
    values: Mapping[str, float]  # by run: the mean over seeds

    @property
    def is_ratio(self) -> bool:
        """Whether the effect is a ratio."""
        return self.metric in RATIOS

    @cached_property
    def verdict(self) -> Verdict:
        """By the rule of the module."""
        inside = list(map(self._side, self.effect.intervals))
        if inside and all(side is True for side in inside):
            return "holds"
        return "does not hold" if inside and all(side is False for side in inside) else "undecided"

    @property
    def published(self) -> list[tuple[Published, float]]:
        """The published effects that can be compared with this one."""
        return [(each, published_effect(each, self.metric)) for each in self.compare.published]

    @property
    def would_decide(self) -> str | None:
        """What would decide an undecided comparison: more seeds, more test queries, or both."""
        if self.verdict != "undecided":
            return None
        reasons = []
        if self.effect.over_queries is not None and self._side(self.effect.over_queries) is None:
            reasons.append("more test queries")
        if self.effect.over_seeds is None or self._side(self.effect.over_seeds) is None:
            reasons.append("more seeds")
        return " and ".join(reasons) or "nothing yet: the two intervals contradict each other"

    def _side(self, interval: Interval) -> bool | None:
        return _is_expected(self.compare, interval, self.is_ratio)

    def to_json(self) -> dict[str, Any]:
        """Everything under stable names."""
        return {
            "higher": list(self.compare.higher),
            "lower": list(self.compare.lower),
            "metric": self.metric,
            "expect": self.compare.expect,
            "bound": bound_of(self.compare, self.is_ratio),
            "is_ratio": self.is_ratio,
            "values": dict(self.values),
            "effect": self.effect.to_json(),
            "verdict": self.verdict,
            "would_decide": self.would_decide,
            "published": [
                {"where": each.where, "data": each.data, "metric": each.metric or self.metric, "effect": effect}
                for each, effect in self.published
            ],
        }


@dataclass(frozen=True)
class ClaimResult:
    """A claim with what was measured; without records of at least two seeds, its comparisons are missing."""

    planned: PlannedClaim
    measured: Sequence[Measured]
    seeds: Sequence[int]
    costs: Mapping[str, float]  # the CPU time of each run in seconds, by the key of its record
    reason: str | None = None  # why it was not measured

    @property
    def seconds(self) -> float:
        """The CPU time of all of its runs, some of which other claims may share."""
        return sum(self.costs.values())

    @property
    def named(self) -> NamedClaim:
        """The claim."""
        return self.planned.named

    @property
    def verdict(self) -> Verdict:
        """That of all comparisons together."""
        verdicts = {each.verdict for each in self.measured}
        if not verdicts:
            return "not measured"
        if "does not hold" in verdicts:
            return "does not hold"
        return "holds" if verdicts == {"holds"} else "undecided"


def judge(planned: PlannedClaim, load: Callable[[str], Record | None], reason: str | None = None) -> ClaimResult:
    """Judge a claim by the records that are there; seeds that lack one of them are left out."""
    records = {
        name: {seed: record for seed, key in seeds.items() if (record := load(key)) is not None}
        for name, seeds in planned.keys.items()
    }
    seeds = sorted(set.intersection(*(set(found) for found in records.values())))
    costs = {record.header.key: record.header.seconds for found in records.values() for record in found.values()}
    if len(seeds) < 2:
        return ClaimResult(planned, (), seeds, costs, reason or "its runs are not finished yet")
    measured = [measure(planned.named, compare, records, seeds) for compare in planned.named.claim.compare]
    return ClaimResult(planned, measured, seeds, costs)


def measure(named: NamedClaim, compare: Compare, records: Runs, seeds: Sequence[int]) -> Measured:
    """The effect of one comparison, pooled over seeds."""
    metric = named.claim.metric_of(compare)
    terms = [(1, name) for name in compare.higher] + [(-1, name) for name in compare.lower]
    values = {name: [_value(records[name][seed], metric, compare) for seed in seeds] for _, name in terms}
    by_seed = [sum(sign * _scale(values[name][row], metric) for sign, name in terms) for row in range(len(seeds))]
    pooled = pool_differences(by_seed, None if metric in _PER_RUN else _drawn(records, terms, seeds, metric))
    if metric in RATIOS:
        pooled = _exponential(pooled)
    return Measured(compare, metric, pooled, {name: float(np.mean(each)) for name, each in values.items()})


def _drawn(
    records: Runs, terms: Sequence[tuple[int, str]], seeds: Sequence[int], metric: Metric
) -> list[NDArray[np.float64]]:
    """The effect of each seed in each draw of test groups."""
    used = [records[name][seed] for _, name in terms for seed in seeds]
    if len({record.queries(metric) for record in used}) > 1:
        titles = " and ".join(dict.fromkeys(record.header.title for record in used))
        raise RunError(
            f"{titles}: measured on different test queries; delete the records of those with unreadable images"
        )
    return [sum((sign * records[name][seed].drawn[metric] for sign, name in terms), np.zeros(1)) for seed in seeds]


def _value(record: Record, metric: Metric, compare: Compare) -> float:
    header = record.header
    if metric == "first_epochs":
        assert compare.epochs is not None, "checked by Compare"
        return float(np.mean(header.curve[: compare.epochs]))
    if metric == "seconds":
        return header.seconds / max(header.epochs, 1)
    if metric not in header.metrics:
        raise RunError(f"{header.title}: has no metric {metric}; the claim compares what the run does not measure")
    return header.metrics[metric]


def _scale(value: float, metric: Metric) -> float:
    return math.log(max(value, 1e-9)) if metric in RATIOS else value


def _exponential(pooled: PooledDifference) -> PooledDifference:
    """A difference of logarithms as a ratio."""
    seeds = pooled.over_seeds
    bounds = None if seeds is None else (math.exp(seeds[0]), math.exp(seeds[1]))
    return PooledDifference(math.exp(pooled.value), tuple(map(math.exp, pooled.by_seed)), None, bounds)


def bound_of(compare: Compare, is_ratio: bool) -> float:
    """The bound of what is expected: by default no difference, which is a ratio of 1."""
    return float(is_ratio) if compare.bound is None else compare.bound


def _is_expected(compare: Compare, interval: Interval, is_ratio: bool) -> bool | None:
    """Whether an interval lies where the effect is expected, or where it is not; None if it does neither."""
    (low, high), bound = interval, bound_of(compare, is_ratio)
    if compare.expect == "equal":
        least = 1 / bound if is_ratio else -bound
        if least < low and high < bound:
            return True
        return False if low > bound or high < least else None
    if compare.expect == "less":
        low, high, bound = -high, -low, -bound
    return True if low > bound else (False if high < bound else None)


def published_effect(published: Published, metric: Metric) -> float:
    """The paper's figures, combined as the measured ones are."""
    higher, lower = ([_figure(each) for each in side] for side in (published.higher, published.lower))
    if (published.metric or metric) in RATIOS:
        return math.prod(higher) / math.prod(lower)
    return round(sum(higher) - sum(lower), 6)


def _figure(figure: Figure) -> float:
    return sum(figure) if isinstance(figure, tuple) else figure
