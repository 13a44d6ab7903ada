"""The cross-retrieval ranks of one or several runs as bars (Fig. 6 of the AOQ paper)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from markupsafe import Markup

from diptych.evaluation.analyses.cross_retrieval import INTERVALS, CrossRetrieval, cross_retrieval
from diptych.evaluation.metrics.ranks import Score
from diptych.models.encodings import Encoded
from diptych.report.svg_charts import bar_chart


def cross_of(score: Score, encoded: Encoded) -> CrossRetrieval | None:
    """The cross-retrieval ranks of encodings by their score; none where all are of one group."""
    if len(np.unique(encoded.image_groups)) < 2:
        return None
    return cross_retrieval(score, encoded.image_groups, encoded.text_groups)


def cross_chart(crosses: Mapping[str, CrossRetrieval]) -> Markup:
    """How many of the positive pairs lie in each interval of ranks, a bar a run."""
    return bar_chart(
        {name: list(cross.shares.values()) for name, cross in crosses.items()},
        INTERVALS,
        title="Positive pairs by their cross-retrieval rank",
        x_label="cross-retrieval rank",
        y_label="percent of the pairs",
    )
