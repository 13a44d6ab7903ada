"""The scores of right and of wrong pairs as two distributions (Fig. 5 of the dual-path paper)."""

from __future__ import annotations

import numpy as np

from diptych.evaluation.analyses.score_overlap import score_overlap
from diptych.evaluation.metrics.ranks import Score
from diptych.models.encodings import Encoded
from diptych.report.html import MINUS
from diptych.report.run_page import Measure, SeparationSection
from diptych.report.svg_charts import area_chart

_NOTE = (
    "The scores of all pairs of an image and a text: right ones are of one group, wrong ones of two. S is the area "
    "that both distributions share, 0 where they lie apart and 1 where they are alike. It is counted in {} bins from "
    "{:.4g} to {:.4g}; other bins give another S."
)


def separation_section(score: Score, encoded: Encoded) -> SeparationSection | None:
    """Both distributions of a gallery and what they share; none where all are of one group."""
    if len(np.unique(encoded.image_groups)) < 2:
        return None
    found = score_overlap(score, encoded.image_groups, encoded.text_groups)
    taken = np.flatnonzero(found.positive_density + found.negative_density)
    first, last = int(taken[0]), int(taken[-1]) + 1
    chart = area_chart(
        {
            "right pairs": found.positive_density[first:last].tolist(),
            "wrong pairs": found.negative_density[first:last].tolist(),
        },
        found.edges[first : last + 1].tolist(),
        title="Scores of right and wrong pairs",
        x_label="score",
        y_label="density",
    )
    note = _NOTE.format(len(found.edges) - 1, found.edges[0], found.edges[-1]).replace("-", MINUS)
    shared = Measure(found.shared, *found.interval)
    return SeparationSection(note, chart, shared, found.positive_mean, found.negative_mean)
