from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.evaluation.metrics.precision_at_r import average_precisions_at_r, r_precisions
from diptych.evaluation.metrics.relevance import NEVER, Relevance

RANKS = st.sets(st.integers(1, 12) | st.just(NEVER), min_size=1, max_size=8).map(sorted)


def by_definition(ranks):
    """Precision after each of the first R answers; AP@R sums it where an answer is a positive."""
    r = len(ranks)
    precisions = [Fraction(sum(rank <= place for rank in ranks), place) for place in range(1, r + 1)]
    return precisions[-1], sum(precisions[place - 1] for place in range(1, r + 1) if place in ranks) / Fraction(r)


@given(st.lists(RANKS, min_size=1, max_size=5))
def test_both_equal_their_definition(queries):
    relevance = Relevance.from_lists({query: range(len(ranks)) for query, ranks in enumerate(queries)})
    ranks = np.concatenate(queries)
    expected = [by_definition(each) for each in queries]
    assert r_precisions(ranks, relevance).tolist() == pytest.approx([float(precision) for precision, _ in expected])
    assert average_precisions_at_r(ranks, relevance).tolist() == pytest.approx([float(mean) for _, mean in expected])


@given(st.lists(RANKS, min_size=1, max_size=5), st.lists(st.integers(0, 99), min_size=5, max_size=5))
def test_both_equal_those_of_the_package_eccv_caption(queries, filler):
    package = pytest.importorskip(
        "eccv_caption._metrics", reason="compares with the package eccv_caption: not installed"
    )
    relevance = Relevance.from_lists({query: range(len(ranks)) for query, ranks in enumerate(queries)})
    listed, positives = {}, {}
    for query, ranks in enumerate(queries):
        places = {rank: f"positive {rank}" for rank in ranks}
        listed[query] = [places.get(place, f"negative {place}") for place in range(1, 14)]
        positives[query] = list(places.values())
    theirs = package.compute_eccv_metrics(listed, positives)
    ranks = np.concatenate(queries)
    assert theirs["eccv_map_at_r"] == pytest.approx(average_precisions_at_r(ranks, relevance).mean())
    assert theirs["eccv_rprecision"] == pytest.approx(r_precisions(ranks, relevance).mean())
    assert theirs["eccv_r1"] == pytest.approx(np.mean(ranks[relevance.starts] == 1))
