"""The results of claims as rows of text, as Markdown and as JSON; the page and the terminal show the same rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from diptych import __version__
from diptych.evaluation.metrics.pooled_difference import Interval
from diptych.machine import machine_name
from diptych.report.comparison.tables import escape_markdown, markdown_table
from diptych.report.html import MINUS
from diptych.reproduction.measuring import SPLIT
from diptych.reproduction.records import DRAWS
from diptych.reproduction.reproduce import Reproduction
from diptych.reproduction.tasks import RECIPES
from diptych.reproduction.timetable import duration
from diptych.reproduction.verdicts import RATIOS, ClaimResult, Measured, bound_of

_SMALL_UNITS = ("overlap",)  # metrics from 0 to 1

RULE = (
    "A comparison holds if its interval over test queries and its interval over seeds lie where the claim expects the "
    "effect, and does not hold if both lie elsewhere; otherwise it is undecided. A claim holds if all of its "
    "comparisons do, and does not hold if one of them does not."
)
INTERVALS = f"95%: {DRAWS:,} draws of test groups, pooled over seeds; Student's interval over seeds"


@dataclass(frozen=True)
class EffectRow:
    """One comparison as text: what is compared, what is expected, and what was published and measured."""

    sides: str
    metric: str
    expected: str
    published: Sequence[str]
    effect: str
    over_queries: str
    over_seeds: str
    verdict: str
    would_decide: str | None


def effect_rows(result: ClaimResult) -> list[EffectRow]:
    """The comparisons of a claim that were measured."""
    return [_effect_row(measured) for measured in result.measured]


def _effect_row(measured: Measured) -> EffectRow:
    compare, metric = measured.compare, measured.metric
    between = " / " if measured.is_ratio else f" {MINUS} "
    values = [between.join(" + ".join(_named(measured, name) for name in side) for side in _sides(measured))]
    return EffectRow(
        sides=values[0],
        metric=metric if compare.epochs is None else f"mean rsum on val over the first {compare.epochs} epochs",
        expected=_expected(measured),
        published=[
            f"{format_effect(effect, each.metric or metric)} ({each.metric or metric}, {each.data}; {each.where})"
            for each, effect in measured.published
        ],
        effect=format_effect(measured.effect.value, metric),
        over_queries=_interval(measured.effect.over_queries, metric),
        over_seeds=_interval(measured.effect.over_seeds, metric),
        verdict=measured.verdict,
        would_decide=measured.would_decide,
    )


def _sides(measured: Measured) -> tuple[Sequence[str], Sequence[str]]:
    return measured.compare.higher, measured.compare.lower


def _named(measured: Measured, name: str) -> str:
    digits = 3 if measured.metric in _SMALL_UNITS else 1
    return f"{name} {measured.values[name]:.{digits}f}"


def _expected(measured: Measured) -> str:
    bound = bound_of(measured.compare, measured.is_ratio)
    shown = f"{bound:g}" if not measured.is_ratio else f"{bound:g} times"
    if measured.compare.expect == "equal":
        return f"within {shown}" if measured.is_ratio else f"within ±{shown}"
    return f"{'more' if measured.compare.expect == 'greater' else 'less'} than {shown}"


def format_effect(value: float, metric: str) -> str:
    """An effect with its sign, in the units of its metric.

    >>> format_effect(-1.25, "rsum"), format_effect(0.0931, "overlap"), format_effect(1.46, "seconds")
    ('−1.2', '+0.093', '×1.46')
    """
    if metric in RATIOS:
        return f"×{value:.2f}"
    digits = 3 if metric in _SMALL_UNITS else 1
    return f"{round(value, digits) + 0.0:+.{digits}f}".replace("-", MINUS)  # no negative zero


def _interval(interval: Interval | None, metric: str) -> str:
    return "none" if interval is None else " to ".join(format_effect(bound, metric) for bound in interval)


def claims_markdown(found: Reproduction) -> str:
    """All results as Markdown: a table of the verdicts, then every comparison, then what could not be tested."""
    request = found.request
    lines = [f"# Claims on {escape_markdown(request.corpus.name)}", ""]
    lines += [
        f"Profile {request.profile}, {request.seeds} seeds, diptych {__version__}. {RULE} Intervals: {INTERVALS}."
    ]
    lines += ["", markdown_table(_summary(found)), ""]
    for result in found.results:
        lines += [*_details(result), ""]
    if found.not_applicable:
        lines += ["## Not applicable", ""]
        lines += [f"- `{each.named.id}`: {escape_markdown(each.reason)}" for each in found.not_applicable] + [""]
    return "\n".join(lines)


def _summary(found: Reproduction) -> list[list[str]]:
    rows = [["claim", "verdict", "measured", "published", "seeds", "CPU time"], ["---"] * 6]
    for result in found.results:
        effects = effect_rows(result)
        measured = "; ".join(f"{row.effect} {row.metric}" for row in effects)
        published = "; ".join(row.published[0].partition(" (")[0] if row.published else "none" for row in effects)
        seeds = str(len(result.seeds))
        rows.append([f"`{result.named.id}`", result.verdict, measured, published, seeds, duration(result.seconds)])
    return rows


def _details(result: ClaimResult) -> Iterator[str]:
    claim = result.named.claim
    yield f"## {result.named.id}: {result.verdict}"
    yield ""
    yield f"{escape_markdown(claim.says)} ({escape_markdown(claim.where)})"
    yield ""
    yield f"Made fair by: {escape_markdown(claim.fair)}"
    if result.reason:
        yield ""
        yield f"Not measured: {escape_markdown(result.reason)}"
    for row in effect_rows(result):
        yield ""
        yield f"- {escape_markdown(row.sides)} ({escape_markdown(row.metric)}): **{row.effect}**, {row.verdict}"
        yield f"  - expected: {row.expected}"
        yield f"  - over queries {row.over_queries}; over seeds {row.over_seeds}"
        for published in row.published:
            yield f"  - published: {escape_markdown(published)}"
        if row.would_decide:
            yield f"  - would decide it: {row.would_decide}"


def commands_of(found: Reproduction, result: ClaimResult) -> list[str]:
    """The commands that repeat a claim, and each of its runs alone."""
    request = found.request
    data = request.corpus.address or "DATA"
    options = f"--data {data} --profile {request.profile} --seeds {request.seeds} --into {request.into}"
    keys = [key for key in result.planned.records() if not key.startswith("together-")]
    runs = [f"diptych train {request.into / RECIPES / key}.toml {data} --into runs/{key}" for key in keys]
    return [f"diptych reproduce {result.named.id} {options}", *runs]


def claims_json(found: Reproduction) -> dict[str, Any]:
    """Everything under stable names."""
    request = found.request
    return {
        "format": "diptych claims",
        "diptych": __version__,
        "machine": machine_name(),
        "data": {"name": request.corpus.name, "address": request.corpus.address, "split": SPLIT},
        "profile": request.profile,
        "seeds": request.seeds,
        "rule": RULE,
        "claims": [_claim_json(found, result) for result in found.results],
        "not_applicable": [{"id": each.named.id, "reason": each.reason} for each in found.not_applicable],
        "failed": found.outcome.failed,
    }


def _claim_json(found: Reproduction, result: ClaimResult) -> dict[str, Any]:
    claim = result.named.claim
    return {
        "id": result.named.id,
        "paper": result.named.file.reference,
        "says": claim.says,
        "where": claim.where,
        "fair": claim.fair,
        "unequal": claim.unequal,
        "verdict": result.verdict,
        "reason": result.reason,
        "seeds": list(result.seeds),
        "seconds": round(result.seconds, 1),
        "comparisons": [measured.to_json() for measured in result.measured],
        "records": {name: list(seeds.values()) for name, seeds in result.planned.keys.items()},
        "commands": commands_of(found, result),
    }
