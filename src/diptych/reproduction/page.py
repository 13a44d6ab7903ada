"""The page of claims: every claim with its verdict, its effects and intervals, and the commands that repeat it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from diptych import __version__
from diptych.report.elements import Fact
from diptych.report.html import write_template
from diptych.reproduction.claim_tables import INTERVALS, RULE, EffectRow, commands_of, effect_rows
from diptych.reproduction.reproduce import Reproduction
from diptych.reproduction.timetable import duration
from diptych.reproduction.verdicts import ClaimResult, Verdict

_TEMPLATE = "claims.html.j2"
_CLASSES: dict[Verdict, str] = {"holds": "correct", "does not hold": "incorrect"}


@dataclass(frozen=True)
class ClaimCard:
    """One claim on the page; `mark` is the class of its verdict, empty for one that is neither good nor bad."""

    id: str
    says: str
    where: str
    fair: str
    unequal: str | None
    verdict: Verdict
    mark: str
    reason: str | None
    effects: Sequence[EffectRow]
    cost: str
    seeds: int
    commands: Sequence[str]


@dataclass(frozen=True)
class PaperSection:
    """The claims of one paper."""

    name: str
    title: str
    reference: str
    claims: Sequence[ClaimCard]


@dataclass(frozen=True)
class ClaimsPage:
    """The contents of the page."""

    title: str
    subtitle: str
    facts: Sequence[Fact]
    rule: str
    intervals: str
    papers: Sequence[PaperSection]
    not_applicable: Sequence[Fact]


def write_claims_page(path: Path, found: Reproduction) -> None:
    """Write the page atomically."""
    write_template(path, _TEMPLATE, page=claims_page(found))


def claims_page(found: Reproduction) -> ClaimsPage:
    """Collect the contents of the page."""
    request = found.request
    counts = Counter(result.verdict for result in found.results)
    facts = {
        "data": request.corpus.name,
        "profile": request.profile,
        "seeds": str(request.seeds),
        **{verdict: str(counts[verdict]) for verdict in ("holds", "does not hold", "undecided", "not measured")},
        "not applicable": str(len(found.not_applicable)),
        "CPU time": duration(found.seconds),
        "diptych": __version__,
    }
    papers = dict.fromkeys(result.named.paper for result in found.results)
    return ClaimsPage(
        title=f"Claims on {request.corpus.name}",
        subtitle="What the papers claim, and what runs of equal budget show here",
        facts=[Fact(name, value) for name, value in facts.items()],
        rule=RULE,
        intervals=INTERVALS,
        papers=[_section(found, paper) for paper in papers],
        not_applicable=[Fact(each.named.id, each.reason) for each in found.not_applicable],
    )


def _section(found: Reproduction, paper: str) -> PaperSection:
    results = [result for result in found.results if result.named.paper == paper]
    file = results[0].named.file
    return PaperSection(paper, file.title, file.reference, [_card(found, result) for result in results])


def _card(found: Reproduction, result: ClaimResult) -> ClaimCard:
    claim = result.named.claim
    return ClaimCard(
        id=result.named.id,
        says=claim.says,
        where=claim.where,
        fair=claim.fair,
        unequal=claim.unequal,
        verdict=result.verdict,
        mark=_CLASSES.get(result.verdict, ""),
        reason=result.reason,
        effects=effect_rows(result),
        cost=duration(result.seconds),
        seeds=len(result.seeds),
        commands=commands_of(found, result),
    )
