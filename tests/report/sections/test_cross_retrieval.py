from __future__ import annotations

from dataclasses import replace

import numpy as np
from markupsafe import escape

from diptych.evaluation.analyses.cross_retrieval import INTERVALS, cross_retrieval
from diptych.evaluation.runs import encoded_score
from diptych.report.sections.cross_retrieval import cross_retrieval_chart, cross_retrieval_ranks


def test_the_chart_has_one_bar_per_run_and_interval(encoded):
    score = encoded_score(encoded)
    ranks = cross_retrieval_ranks(score, encoded)
    expected = cross_retrieval(score, encoded.image_groups, encoded.text_groups)
    assert ranks.cross_ranks.tolist() == expected.cross_ranks.tolist()
    chart = cross_retrieval_chart({"first": ranks, "second": ranks})
    assert chart.count('class="column"') == 2 * len(INTERVALS)
    for label, share in expected.percentages.items():
        assert escape(f"second: {share:.4g} at {label}") in chart


def test_without_negatives_there_are_no_ranks(encoded):
    alone = replace(
        encoded, image_groups=np.zeros_like(encoded.image_groups), text_groups=np.zeros_like(encoded.text_groups)
    )
    assert cross_retrieval_ranks(encoded_score(alone), alone) is None
