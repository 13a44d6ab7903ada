"""The report of a run as one self-contained HTML file, without scripts or external resources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from diptych.report.elements import DirectionName, Fact, Measure
from diptych.report.html import render_template, write_template
from diptych.report.sections.attention import AttentionSection
from diptych.report.sections.batch_negatives import BatchNegativesRow
from diptych.report.sections.correlations import CorrelationSection
from diptych.report.sections.examples import ExampleQuery, Question
from diptych.report.sections.hard_negatives import HardNegativesSection
from diptych.report.sections.phrases import PhraseSection
from diptych.report.sections.recall import RecallRow
from diptych.report.sections.score_distributions import ScoreDistributionsSection
from diptych.report.sections.word_importance import WordImportanceSection

_TEMPLATE = "run.html.j2"
_ORDER: tuple[DirectionName, ...] = ("text to image", "image to text")


@dataclass(frozen=True)
class RunPage:
    """The contents of a run's report; empty sections are omitted.

    `notices` are messages of the training and images that were skipped. `training_charts` and `cross_retrieval` are
    SVG.
    """

    title: str
    subtitle: str = ""
    facts: Sequence[Fact] = ()
    notices: Sequence[str] = ()
    recall: Sequence[RecallRow] = ()
    rsum: Measure | None = None
    phrases: PhraseSection | None = None
    training_charts: Sequence[Markup] = ()
    questions: Sequence[Question] = ()
    best_queries: Sequence[ExampleQuery] = ()
    worst_queries: Sequence[ExampleQuery] = ()
    attention: AttentionSection | None = None
    word_importance: WordImportanceSection | None = None
    hard_negatives: HardNegativesSection | None = None
    score_distributions: ScoreDistributionsSection | None = None
    cross_retrieval: Markup | None = None
    correlations: CorrelationSection | None = None
    batch_negatives: Sequence[BatchNegativesRow] = ()
    recipe: str = ""

    @property
    def cutoffs(self) -> list[int]:
        """Every K for which a direction has a recall, in ascending order."""
        return sorted({k for row in self.recall for k in row.recall})

    @property
    def has_average_precision(self) -> bool:
        """Whether a direction has a mean average precision."""
        return any(row.average_precision is not None for row in self.recall)


def write_run_page(path: Path, page: RunPage) -> None:
    """Write the page atomically."""
    write_template(path, _TEMPLATE, page=page, directions=_ORDER)


def render_run_page(page: RunPage) -> str:
    """The page as HTML; the output is deterministic, and all texts are escaped."""
    return render_template(_TEMPLATE, page=page, directions=_ORDER)
