from __future__ import annotations

import math
import re
from itertools import pairwise
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from diptych.report.svg_charts import Mark, area_chart, bar_chart, line_chart

SVG = "{http://www.w3.org/2000/svg}"

numbers = st.floats(-1e12, 1e12) | st.integers(-50, 50).map(float) | st.floats(-1e-3, 1e-3)


def draw(series, title="Recall", x_label="epoch", y_label="percent") -> Element:
    return ElementTree.fromstring(line_chart(series, title=title, x_label=x_label, y_label=y_label))


def groups(chart: Element) -> list[Element]:
    return [group for group in chart.iter(f"{SVG}g") if group.get("class") == "series"]


def places(group: Element) -> list[tuple[float, float]]:
    """Where the markers of a line stand."""
    found = [path.get("d") for path in group.iter(f"{SVG}path") if path.get("class") == "marker"]
    return [tuple(map(float, re.match(r"M([-\d.]+),([-\d.]+)", shape).groups())) for shape in found]


def line(group: Element) -> str:
    return next(path.attrib["d"] for path in group.iter(f"{SVG}path") if path.get("class") == "line")


def texts(chart: Element) -> list[str]:
    return [text.text for text in chart.iter(f"{SVG}text")]


def ticks(chart: Element, anchor: str) -> dict[str, tuple[float, float]]:
    """Tick labels and where they stand: "end" beside the left axis, "middle" below the lower one."""
    return {
        text.text: (float(text.get("x")), float(text.get("y")))
        for text in chart.iter(f"{SVG}text")
        if text.get("text-anchor") == anchor and text.text != "epoch"
    }


def test_higher_is_further_up_and_later_is_further_right():
    chart = draw({"R@1": [(1, 10.0), (2, 40.0), (3, 30.0)]})
    (first, second, third) = places(groups(chart)[0])
    assert second[1] < third[1] < first[1]
    assert first[0] < second[0] < third[0]


def test_points_are_at_the_ticks_of_their_values():
    chart = draw({"a": [(0, 0.0), (5, 20.0), (10, 100.0)]})
    assert list(ticks(chart, "end")) == ["0", "20", "40", "60", "80", "100"]
    assert list(ticks(chart, "middle")) == [str(n) for n in range(11)]
    for (x, y), (across, up) in zip(places(groups(chart)[0]), ((0, 0), (5, 20), (10, 100)), strict=True):
        assert ticks(chart, "middle")[str(across)][0] == x
        assert ticks(chart, "end")[str(up)][1] - 4 == pytest.approx(y)  # text hangs from its baseline


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=30))
def test_every_point_is_inside_and_in_order(points):
    chart = draw({"a": points})
    left, top, width, height = map(float, chart.get("viewBox").split())
    drawn = places(groups(chart)[0])
    assert len(drawn) == len(points)
    assert all(left <= x <= left + width and top <= y <= top + height for x, y in drawn)
    pairs = list(zip(points, drawn, strict=True))
    for axis, sign in ((0, 1), (1, -1)):
        ordered = [sign * place[axis] for point, place in sorted(pairs, key=lambda pair: pair[0][axis])]
        assert ordered == sorted(ordered)
    assert 2 <= len(ticks(chart, "end")) <= 8
    assert len(ticks(chart, "middle")) <= 12


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e6), st.integers(2, 9))
def test_tick_labels_are_round_and_at_their_values(start, reach, count):
    points = [(float(i), start + reach * i / (count - 1)) for i in range(count)]
    chart = draw({"a": points})
    labels = ticks(chart, "end")
    values = {float(label.replace("\u2212", "-").replace(",", "")): y for label, (_, y) in labels.items()}
    assert len(values) == len(labels) or reach < 1e-3  # six digits cannot tell very close values apart
    if len(values) == len(labels) and reach > 1e-4 * abs(start):
        ordered = sorted(values)
        steps = [high - low for low, high in pairwise(ordered)]
        assert steps == pytest.approx([steps[0]] * len(steps), rel=1e-6)
        assert f"{steps[0]:.0e}"[0] in "125"
        assert ordered[0] <= points[0][1] + 1e-9 * reach
        assert ordered[-1] >= points[-1][1] - 1e-9 * reach
        assert [values[value] for value in ordered] == sorted(values.values(), reverse=True)


def test_ticks_of_integers_are_integers():
    assert list(ticks(draw({"a": [(1, 3.0), (2, 4.0), (3, 4.5)]}), "middle")) == ["1", "2", "3"]
    assert list(ticks(draw({"a": [(0.5, 3.0), (1.0, 4.0)]}), "middle"))[:2] == ["0.50", "0.55"]


def test_a_single_point_is_centred_and_has_a_tick():
    chart = draw({"a": [(7, 0.25)]})
    ((x, y),) = places(groups(chart)[0])
    assert ticks(chart, "middle")["7"][0] == x
    ys = [place[1] - 4 for place in ticks(chart, "end").values()]
    assert min(ys) < y < max(ys)
    assert line(groups(chart)[0]) == f"M{x},{y}h0"


@pytest.mark.parametrize("value", [0.0, 5.0, -3.0, 1e-7, 1e99, 5e-324, 0.1 + 0.2])
def test_constant_values_draw_a_level_line(value):
    chart = draw({"a": [(1, value), (2, value), (3, value)]})
    ys = {y for _, y in places(groups(chart)[0])}
    assert len(ys) == 1
    tick_ys = [place[1] - 4 for place in ticks(chart, "end").values()]
    assert min(tick_ys) < ys.pop() < max(tick_ys)


@pytest.mark.parametrize("difference", [5e-324, 1e-200, 1e-80, 1e-12, 1e99])
def test_any_difference_can_be_drawn(difference):
    chart = draw({"a": [(0.0, 0.0), (difference, difference)], "b": [(0.0, -difference)]})
    (x, y), (later, higher) = places(groups(chart)[0])
    assert x <= later
    assert y >= higher
    assert len(ticks(chart, "end")) >= 2


def test_labels_have_true_minus_signs_and_no_negative_zero():
    chart = draw({"a": [(1, -1000.0), (2, 1000.0)]})
    assert list(ticks(chart, "end")) == ["\u22121,000", "\u2212500", "0", "500", "1,000"]
    chart = draw({"a": [(1, -1e-8), (2, 1e-8)]})
    assert list(ticks(chart, "end")) == ["\u22121e\u221208", "\u22125e\u221209", "0", "5e\u221209", "1e\u221208"]


@pytest.mark.parametrize("gap", [None, math.nan, math.inf, -math.inf, 1e200])
def test_a_missing_value_breaks_the_line(gap):
    chart = draw({"a": [(1, 1.0), (2, 2.0), (3, gap), (4, 3.0), (5, 4.0), (6, gap), (7, 2.0)]})
    drawn = line(groups(chart)[0])
    assert drawn.count("M") == 3
    assert drawn.count("L") == 2
    assert len(places(groups(chart)[0])) == 5
    assert "nan" not in drawn
    assert list(ticks(chart, "end"))[-1] == "4"


@pytest.mark.parametrize(
    "series", [{}, {"a": []}, {"a": [], "b": []}, {"a": [(1, math.nan), (2, None)]}, {"a": [(math.nan, 1.0)]}]
)
def test_a_chart_without_data_says_so(series):
    chart = draw(series)
    assert "no data yet" in texts(chart)
    assert chart.get("aria-label") == "Recall: no data yet"
    assert not groups(chart)


def test_an_empty_line_appears_in_the_legend_only():
    chart = draw({"early": [(1, 2.0), (2, 3.0)], "late": []})
    assert "late" in texts(chart)
    assert [len(places(group)) for group in groups(chart)] == [2, 0]
    assert "late" not in chart.get("aria-label")


def test_the_label_describes_the_chart():
    svg = line_chart({"R@1": [(1, 2.5), (2, 40)]}, title="Recall", x_label="epoch", y_label="percent")
    chart = ElementTree.fromstring(svg)
    assert chart.get("role") == "img"
    assert chart.get("aria-label") == "Recall: R@1 goes from 2.5 to 40"
    assert {"Recall", "R@1", "epoch", "percent"} <= set(texts(chart))
    assert [title.text for title in chart.iter(f"{SVG}title")] == ["R@1: 2.5 at 1", "R@1: 40 at 2"]
    assert isinstance(svg, Markup)
    assert svg == line_chart({"R@1": [(1, 2.5), (2, 40)]}, title="Recall", x_label="epoch", y_label="percent")


@given(st.text() | st.sampled_from(["<script>alert(1)</script>", '" onload="x', "a&b;", "]]>", "{x}", "\0\ud800"]))
def test_names_are_escaped(name):
    names = {"n" + name: [(1, 2.0), (2, None)]}
    plain = draw({"plain": [(1, 2.0), (2, None)]}, "plain", "plain", "plain")
    chart = draw(names, name, name, name)
    assert [(e.tag, list(e.attrib)) for e in chart.iter()] == [(e.tag, list(e.attrib)) for e in plain.iter()]
    if name.isprintable():
        assert (texts(chart)[0] or "") == name


def test_lines_differ_in_more_than_colour():
    chart = draw({f"line {i}": [(1, float(i)), (2, float(i))] for i in range(30)})
    looks = {
        (group.get("fill"), re.sub("^M[^m]*", "", group.findall(f"{SVG}path")[1].get("d"))) for group in groups(chart)
    }
    assert len(looks) == 30
    assert all(re.fullmatch(r"var\(--series-[1-6], #[0-9a-f]{6}\)", fill) for fill, _ in looks)
    assert len({shape for _, shape in looks}) == 5


def test_the_legend_wraps_and_shortens():
    def viewed(names):
        chart = draw({name: [(1, 1.0), (2, 3.0)] for name in names})
        entries = [t for t in chart.iter(f"{SVG}text") if t.text[0] == "s" and t.get("text-anchor") is None]
        return chart, [(t.text, float(t.get("x")), float(t.get("y"))) for t in entries]

    _, few = viewed(["s1", "s2"])
    assert few[0][1] < few[1][1]
    assert few[0][2] == few[1][2]
    chart, many = viewed(["s" * 300, *(f"s of a middling length {i}" for i in range(5))])
    assert many[0][0].endswith("…")
    assert len({y for _, _, y in many}) >= 3
    assert all(x + 6 * len(text) < 460 for text, x, _ in many)
    top_of_plot = min(y for _, y in ticks(chart, "end").values()) - 4
    assert max(y for _, _, y in many) < top_of_plot


def test_thousands_of_steps_have_few_markers():
    points = [(i, math.sin(i / 500)) for i in range(5000)]
    chart = draw({"loss": points})
    group = groups(chart)[0]
    assert line(group).count("L") == 4999
    tooltips = [title.text for title in group.iter(f"{SVG}title")]
    assert 40 <= len(tooltips) <= 82
    assert tooltips[0] == "loss: 0 at 0"
    assert tooltips[-1].endswith(" at 4999")


def test_marks_are_at_their_x_in_the_colour_of_their_line():
    series = {"a": [(1, 1.0), (2, 2.0), (10, 3.0)], "b": [(1, 2.0), (2, 1.0)]}
    marks = [Mark(1.5, "stage 2"), Mark(9.9, "stage 3", 1), Mark(11, "beyond")]
    chart = ElementTree.fromstring(line_chart(series, title="t", x_label="epoch", y_label="y", marks=marks))
    rules = [path for path in chart.iter(f"{SVG}path") if path.get("class") == "mark-rule"]
    lines = groups(chart)
    (one, two, ten), _ = (places(group) for group in lines)
    first, second = (float(re.match(r"M([\d.]+),", rule.get("d")).group(1)) for rule in rules)
    assert one[0] < first < two[0] < second < ten[0]
    assert [rule.get("stroke") for rule in rules] == [group.get("fill") for group in lines]
    names = {text.text: text for text in chart.iter(f"{SVG}text") if text.text.startswith("stage")}
    assert list(names) == ["stage 2", "stage 3"]
    assert "beyond" not in texts(chart)
    assert names["stage 2"].get("text-anchor") == "start"
    assert names["stage 3"].get("text-anchor") == "end"  # it would stand out on the right
    assert names["stage 2"].get("y") != names["stage 3"].get("y")  # and never on each other


def bars(series, labels=("1", "2–5", "> 5")) -> Element:
    return ElementTree.fromstring(bar_chart(series, labels, title="Ranks", x_label="rank", y_label="percent"))


def columns(group: Element) -> list[tuple[float, float, float]]:
    """Left, top and bottom of each bar."""
    found = [path.get("d") for path in group.iter(f"{SVG}path") if path.get("class") == "column"]
    return [tuple(map(float, re.match(r"M([\d.]+),([\d.]+)V([\d.]+)", shape).group(1, 3, 2))) for shape in found]


def test_a_bar_reaches_its_value_above_its_label():
    chart = bars({"a": [50.0, 0.0, 25.0], "<b>": [100.0, 25.0, 0.0]})
    first, second = map(columns, groups(chart))
    values, names = ticks(chart, "end"), ticks(chart, "middle")
    assert values["100"][1] - 4 == pytest.approx(second[0][1])  # letters stand a little lower than their rule
    assert values["0"][1] - 4 == pytest.approx(second[0][2])
    assert first[0][1] == pytest.approx((second[0][1] + second[0][2]) / 2, abs=0.02)  # half as high
    for place, label in enumerate(("1", "2–5", "> 5")):
        assert first[place][0] < names[label][0] <= second[place][0]
    assert [title.text for title in groups(chart)[1].iter(f"{SVG}title")] == [
        "<b>: 100 at 1",
        "<b>: 25 at 2–5",
        "<b>: 0 at > 5",
    ]
    assert "a has 50 at 1, 0 at 2–5, 25 at > 5; <b> has 100" in chart.get("aria-label")


def test_long_labels_have_a_small_font():
    sizes = [
        {text.get("font-size") for text in chart.iter(f"{SVG}text") if text.get("text-anchor") == "middle"}
        for chart in (bars({"a": [1.0] * 3}), bars({"a": [1.0] * 9}, ["101–200"] * 9))
    ]
    assert sizes == [{"13"}, {"11"}]


def test_empty_series_and_zeros_are_drawn():
    assert columns(groups(bars({"a": [0.0, 0.0, 0.0]}))[0])
    assert not groups(bars({}))


def areas(series, edges=(-1.0, 0.0, 1.0, 2.0)) -> Element:
    return ElementTree.fromstring(area_chart(series, edges, title="Scores", x_label="score", y_label="density"))


def test_steps_reach_their_values_between_their_edges():
    chart = areas({"right": [0.0, 1.0, 0.5], "<b>": [2.0, 0.0, 0.0]})
    first, second = [path for path in chart.iter(f"{SVG}path") if path.get("class") == "area"]
    values, names = ticks(chart, "end"), ticks(chart, "middle")
    level = {name: y - 4 for name, (_, y) in values.items()}  # letters stand a little lower than their rule
    start, *steps = re.findall(r"([MVH])([-\d.]+)", first.get("d"))
    assert float(start[1]) == pytest.approx(names["\u22121.0"][0])
    ups = [float(number) for kind, number in steps if kind == "V"]
    rights = [float(number) for kind, number in steps if kind == "H"]
    assert ups == pytest.approx([level["0.0"], level["1.0"], level["0.5"], level["0.0"]])
    assert rights == pytest.approx([names[name][0] for name in ("0.0", "1.0", "2.0")])
    assert f"V{level['2.0']:g}" in second.get("d")
    assert first.get("fill") != second.get("fill")
    assert [title.text for title in chart.iter(f"{SVG}title")] == ["right", "<b>"]
    assert "right is densest from 0 to 1; <b> is densest from -1 to 0" in chart.get("aria-label")
    assert {"right", "<b>", "score", "density"} <= set(texts(chart))


def test_areas_of_zeros_are_drawn():
    assert len([path for path in areas({"a": [0.0] * 3}).iter(f"{SVG}path") if path.get("class") == "area"]) == 1
