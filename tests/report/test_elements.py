import math

import pytest

from diptych.report.elements import Measure


@pytest.mark.parametrize(
    ("low", "high", "interval"),
    [(1.0, 2.0, (1.0, 2.0)), (None, 2.0, None), (1.0, None, None), (math.nan, 2.0, None), (-math.inf, 2.0, None)],
)
def test_an_interval_needs_two_finite_bounds(low, high, interval):
    assert Measure(1.5, low, high).interval == interval
