from __future__ import annotations

import math

import pytest

from diptych.report.html import format_decimals, format_percent, format_signed, render_template


@pytest.mark.parametrize(
    ("value", "digits", "expected"),
    [(1234.56, 1, "1,234.6"), (-0.5, 2, "\u22120.50"), (None, 1, "–"), (math.nan, 1, "–"), (math.inf, 0, "–")],
)
def test_decimals(value, digits, expected):
    assert format_decimals(value, digits) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [(1.26, "+1.3"), (-3.21, "\u22123.2"), (-0.04, "0.0"), (0.0, "0.0"), (math.nan, "–")]
)
def test_signed(value, expected):
    assert format_signed(value) == expected


@pytest.mark.parametrize(
    ("fraction", "expected"),
    [(0.01234, "1.23"), (0.0, "0.00"), (0.000049, "< 0.01"), (0.00005, "0.01"), (1.0, "100.00")],
)
def test_percent(fraction, expected):
    assert format_percent(fraction) == expected


def test_values_are_escaped_and_lone_surrogates_replaced():
    class Page:
        title, subtitle, facts = "<b>caf\udce9</b>", "", ()

    html = render_template("base.html.j2", page=Page())
    assert "<title>&lt;b&gt;caf?&lt;/b&gt;</title>" in html
    assert "<b>" not in html
