"""The cross-retrieval ranks of one or several runs as a bar chart (Fig. 6 of the AOQ paper)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from markupsafe import Markup

from diptych.evaluation.analyses.cross_retrieval import INTERVALS, CrossRetrieval, cross_retrieval
from diptych.evaluation.metrics.scores import Score
from diptych.models.encoded_corpus import EncodedCorpus
from diptych.report.svg_charts import bar_chart


def cross_retrieval_ranks(score: Score, encoded: EncodedCorpus) -> CrossRetrieval | None:
    """The cross-retrieval ranks of encodings; None without negatives, if all images share a group."""
    if len(np.unique(encoded.image_groups)) < 2:
        return None
    return cross_retrieval(score, encoded.image_groups, encoded.text_groups)


def cross_retrieval_chart(ranks_by_run: Mapping[str, CrossRetrieval]) -> Markup:
    """The percentage of positive pairs in each interval of ranks, one bar per run."""
    return bar_chart(
        {name: list(ranks.percentages.values()) for name, ranks in ranks_by_run.items()},
        INTERVALS,
        title="Positive pairs by cross-retrieval rank",
        x_label="cross-retrieval rank",
        y_label="percent of the pairs",
    )
