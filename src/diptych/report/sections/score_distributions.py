"""The score distributions of positive and negative pairs, and the area they share (Fig. 5 of the dual-path paper)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from diptych.evaluation.analyses.score_overlap import score_overlap
from diptych.evaluation.metrics.scores import Score
from diptych.models.encoded_corpus import EncodedCorpus
from diptych.report.elements import Measure
from diptych.report.html import MINUS
from diptych.report.svg_charts import area_chart

_NOTE = (
    "Scores of all image-text pairs. The image and the text of a positive pair belong to the same group, those of a "
    "negative pair do not. S is the area shared by the two distributions: 0 if they do not overlap, 1 if they are "
    "identical. S depends on the bins: here {} bins from {:.4g} to {:.4g}."
)


@dataclass(frozen=True)
class ScoreDistributionsSection:
    """Both distributions as a chart, their means and the area that they share."""

    note: str
    chart: Markup
    shared: Measure
    positive_mean: float
    negative_mean: float


def score_distributions_section(score: Score, encoded: EncodedCorpus) -> ScoreDistributionsSection | None:
    """The score distributions of one gallery; None without negatives, if all images share a group."""
    if len(np.unique(encoded.image_groups)) < 2:
        return None
    found = score_overlap(score, encoded.image_groups, encoded.text_groups)
    filled = np.flatnonzero(found.positive_density + found.negative_density)
    first, last = int(filled[0]), int(filled[-1]) + 1
    chart = area_chart(
        {
            "positive pairs": found.positive_density[first:last].tolist(),
            "negative pairs": found.negative_density[first:last].tolist(),
        },
        found.edges[first : last + 1].tolist(),
        title="Scores of positive and negative pairs",
        x_label="score",
        y_label="density",
    )
    note = _NOTE.format(len(found.edges) - 1, found.edges[0], found.edges[-1]).replace(" -", f" {MINUS}")
    shared = Measure(found.shared, *found.interval)
    return ScoreDistributionsSection(note, chart, shared, found.positive_mean, found.negative_mean)
