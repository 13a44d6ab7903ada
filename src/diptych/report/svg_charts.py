"""Line, bar and area charts as self-contained SVG for light and dark pages, without scripts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

Point = tuple[float, float | None]

# Pixels of the drawing. It is narrow so that its text stays readable on a phone.
_WIDTH, _PLOT_HEIGHT, _LEFT, _RIGHT = 460, 210, 52, 12
_HEADER, _LEGEND_HEIGHT, _LEGEND_GAP, _FOOTER = 45, 20, 14, 42
_MUTED = 'opacity="0.7"'
_RULE = Markup('<path class="{}" d="{}" stroke="currentColor" stroke-opacity="{}"/>')
_LETTER_WIDTH = 7.1  # an estimate: the font is unknown here

_MAX_MARKERS = 80  # per line; the tooltips of ten thousand steps would bloat the page
_HUGE = 1e100  # larger values are drawn as gaps, like infinity: their differences overflow
_TINY = 1e-90  # smaller ranges count as constant: dividing by them overflows
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # characters that XML 1.0 forbids

# A page may set the variables, for instance for dark mode; the defaults suit a white background. The colours also
# differ in lightness, so that all six are distinguishable with red-green colour blindness.
_COLOURS = [
    f"var(--series-{number}, {colour})"
    for number, colour in enumerate(("#2f6bb3", "#c2571a", "#1d9c5f", "#7d21df", "#7b0942", "#5e4a22"), start=1)
]
_SHAPES = (
    "M{x},{y}m-3.2,0a3.2,3.2 0 1,0 6.4,0a3.2,3.2 0 1,0 -6.4,0z",
    "M{x},{y}m-2.9,-2.9h5.8v5.8h-5.8z",
    "M{x},{y}m0,-4l4,4l-4,4l-4,-4z",
    "M{x},{y}m0,-3.8l3.9,6.6h-7.8z",
    "M{x},{y}m0,3.8l3.9,-6.6h-7.8z",
)  # five shapes and six colours: thirty lines before two look alike


@dataclass(frozen=True)
class Mark:
    """A vertical rule at x with a text, such as the start of a stage, in the colour of the line with this number."""

    x: float
    text: str
    line: int = 0


@dataclass(frozen=True)
class _Axis:
    """Maps values from `low` to `high` to pixels from `start` to `stop`; `ticks` are the labelled values."""

    low: float
    high: float
    start: float
    stop: float
    ticks: Sequence[float]
    decimals: int

    def pixel(self, value: float) -> float:
        fraction = (value - self.low) / (self.high - self.low)
        return round(self.start + fraction * (self.stop - self.start), 2)

    def label(self, value: float) -> str:
        if self.decimals > 4 or abs(value) >= 1e7:
            return f"{value:.6g}".replace("-", "\u2212")
        return f"{round(value, self.decimals) + 0.0:,.{self.decimals}f}".replace("-", "\u2212")


def line_chart(
    series: Mapping[str, Sequence[Point]], *, title: str, x_label: str, y_label: str, marks: Sequence[Mark] = ()
) -> Markup:
    """Draw named lines of (x, y) points; a y of None or NaN leaves a gap.

    Marks outside the range of x are omitted. A page sets the colours of the lines with the CSS variables --series-1 to
    --series-6; everything else has the colour of the text.
    """
    names = list(series)
    lines = [[_drawable(point) for point in series[name]] for name in names]
    points = [point for line in lines for point in line if point is not None]
    parts, top = _head(title, y_label, names)
    bottom = top + _PLOT_HEIGHT
    if points:
        xs, ys = [x for x, _ in points], [y for _, y in points]
        intervals = 10 if max(map(abs, xs)) < 1000 else 5  # long labels need space
        x_axis = _axis(xs, _LEFT, _WIDTH - _RIGHT, intervals, whole=all(x == int(x) for x in xs), widen=False)
        y_axis = _axis(ys, bottom, top, 5, whole=False, widen=True)
        parts += _frame(x_axis, y_axis, x_label)
        parts += [_mark(mark, x_axis, y_axis) for mark in marks if x_axis.low <= mark.x <= x_axis.high]
        for number, (name, line) in enumerate(zip(names, lines, strict=True)):
            parts.append(_line(name, line, number, x_axis, y_axis))
    else:
        parts.append(_no_data((top + bottom) / 2))
    return _svg(bottom + _FOOTER, _summary(title, names, lines), parts)


def bar_chart(
    series: Mapping[str, Sequence[float]], labels: Sequence[str], *, title: str, x_label: str, y_label: str
) -> Markup:
    """Draw named series of non-negative values: one group of bars per label, with one bar per series."""
    names = list(series)
    parts, top = _head(title, y_label, names)
    bottom = top + _PLOT_HEIGHT
    y_axis = _axis(
        [0.0, *(value for values in series.values() for value in values)], bottom, top, 5, whole=False, widen=True
    )
    group_width = (_WIDTH - _RIGHT - _LEFT) / len(labels)
    width = 0.78 * group_width / max(1, len(names))
    centres = [round(_LEFT + (position + 0.5) * group_width, 2) for position in range(len(labels))]
    size = 13 if max(map(len, labels)) * _LETTER_WIDTH < group_width - 6 else 11
    ticks = list(zip(centres, labels, strict=True))
    parts += _y_grid(y_axis) + _x_ticks(ticks, y_axis, x_label, f'font-size="{size}"')
    for number, (name, values) in enumerate(series.items()):
        bars = [
            _bar(centre + (number - len(names) / 2) * width, width, y_axis, value, f"{name}: {value:.4g} at {label}")
            for centre, label, value in zip(centres, labels, values, strict=True)
        ]
        group = Markup('<g class="series" fill="{}">{}</g>')
        parts.append(group.format(_COLOURS[number % len(_COLOURS)], Markup("").join(bars)))
    summaries = (
        f"{name} has {', '.join(f'{value:.4g} at {label}' for label, value in zip(labels, values, strict=True))}"
        for name, values in series.items()
    )
    return _svg(bottom + _FOOTER, _xml_text(f"{title}: {'; '.join(summaries)}"), parts)


def area_chart(
    series: Mapping[str, Sequence[float]], edges: Sequence[float], *, title: str, x_label: str, y_label: str
) -> Markup:
    """Draw named histograms over bins with these edges: steps with the area below them tinted."""
    names = list(series)
    parts, top = _head(title, y_label, names)
    bottom = top + _PLOT_HEIGHT
    x_axis = _axis(edges, _LEFT, _WIDTH - _RIGHT, 10, whole=False, widen=False)
    y_axis = _axis(
        [0.0, *(value for values in series.values() for value in values)], bottom, top, 5, whole=False, widen=True
    )
    parts += _frame(x_axis, y_axis, x_label)
    summaries = []
    for number, (name, values) in enumerate(series.items()):
        steps = zip(edges[1:], values, strict=True)
        path = f"M{x_axis.pixel(edges[0])},{bottom}" + "".join(
            f"V{y_axis.pixel(value)}H{x_axis.pixel(x)}" for x, value in steps
        )
        area = Markup(
            '<path class="area" d="{}V{}z" fill="{}" fill-opacity="0.22" stroke="{}" stroke-width="1.6" '
            'stroke-linejoin="round"><title>{}</title></path>'
        )
        colour = _COLOURS[number % len(_COLOURS)]
        parts.append(area.format(path, bottom, colour, colour, _xml_text(name)))
        peak = max(range(len(values)), key=values.__getitem__)
        summaries.append(f"{name} is densest from {edges[peak]:.3g} to {edges[peak + 1]:.3g}")
    return _svg(bottom + _FOOTER, _xml_text(f"{title}: {'; '.join(summaries)}"), parts)


def _bar(left: float, width: float, y_axis: _Axis, value: float, tooltip: str) -> Markup:
    shape = f"M{left + 0.5:.2f},{y_axis.pixel(0)}V{y_axis.pixel(value)}h{width - 1:.2f}V{y_axis.pixel(0)}z"
    return Markup('<path class="column" d="{}"><title>{}</title></path>').format(shape, _xml_text(tooltip))


def _head(title: str, y_label: str, names: Sequence[str]) -> tuple[list[Markup], int]:
    """The title, the label of the y axis and the legend; and the top of the plot below them."""
    entries, rows = _legend(names, _HEADER + _LEGEND_HEIGHT / 2)
    heading = _text(0, 16, title, 'font-size="15" font-weight="600"')
    return [heading, _text(0, 35, y_label, _MUTED), *entries], _HEADER + rows * _LEGEND_HEIGHT + _LEGEND_GAP


def _svg(height: float, summary: str, parts: Sequence[Markup]) -> Markup:
    return Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {} {}" width="{}" role="img" '
        'aria-label="{}" font-size="13" fill="currentColor">{}</svg>'
    ).format(_WIDTH, height, _WIDTH, summary, Markup("").join(parts))


def _drawable(point: Point) -> tuple[float, float] | None:
    x, y = point
    return None if y is None or not (abs(x) < _HUGE and abs(y) < _HUGE) else (x, y)  # a comparison with NaN is false


def _axis(values: Iterable[float], start: float, stop: float, intervals: int, *, whole: bool, widen: bool) -> _Axis:
    """An axis for these values with about `intervals` round steps.

    `whole` restricts ticks to integers; `widen` extends the axis to round values.
    """
    values = list(values)
    low, high = min(values), max(values)
    largest = max(abs(low), abs(high))
    if high - low <= max(1e-9 * largest, _TINY):  # constant values are centred
        margin = max(0.1 * largest if largest > _TINY else 1.0, 1.0 if whole else 0.0)
        low, high = low - margin, high + margin
    step = _round_step((high - low) / intervals)
    if whole:
        step = max(1.0, step)
    if widen:
        low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    ticks = [number * step for number in range(first, last + 1)]
    return _Axis(low, high, start, stop, ticks, max(0, -math.floor(math.log10(step) + 1e-9)))


def _round_step(rough: float) -> float:
    """The smallest of 1, 2, 5, 10 times a power of ten that is at least the rough step."""
    unit = 10.0 ** math.floor(math.log10(rough))
    return next(unit * times for times in (1, 2, 5, 10) if unit * times >= rough * (1 - 1e-9))


def _frame(x_axis: _Axis, y_axis: _Axis, x_label: str) -> list[Markup]:
    """The grid, the ticks and the label of the x axis."""
    return _y_grid(y_axis) + _x_ticks(
        [(x_axis.pixel(value), x_axis.label(value)) for value in x_axis.ticks], y_axis, x_label
    )


def _y_grid(y_axis: _Axis) -> list[Markup]:
    """Horizontal grid lines with the tick labels of the y axis."""
    parts = []
    for value in y_axis.ticks:
        y = y_axis.pixel(value)
        parts.append(_RULE.format("grid", f"M{_LEFT},{y}H{_WIDTH - _RIGHT}", 0.45 if y == y_axis.start else 0.14))
        parts.append(_text(_LEFT - 8, y + 4, y_axis.label(value), f'text-anchor="end" {_MUTED}'))
    return parts


def _x_ticks(ticks: Sequence[tuple[float, str]], y_axis: _Axis, x_label: str, style: str = "") -> list[Markup]:
    """The ticks and the label of the x axis."""
    parts = []
    for x, text in ticks:
        parts.append(_RULE.format("tick", f"M{x},{y_axis.start}v4", 0.45))
        parts.append(_text(x, y_axis.start + 18, text, f'text-anchor="middle" {_MUTED} {style}'))
    parts.append(_text(_WIDTH - _RIGHT, y_axis.start + 36, x_label, f'text-anchor="end" {_MUTED}'))
    return parts


def _mark(mark: Mark, x_axis: _Axis, y_axis: _Axis) -> Markup:
    """A dashed rule in the colour of its line; texts of marks of different lines are stacked."""
    x, y = x_axis.pixel(mark.x), y_axis.stop + 10 + 14 * mark.line
    left = x + len(mark.text) * _LETTER_WIDTH < _WIDTH  # otherwise there is no space to its right
    anchor = 'text-anchor="start"' if left else 'text-anchor="end"'
    rule = Markup('<path class="mark-rule" d="{}" stroke="{}" stroke-dasharray="3 4" opacity="0.8"/>')
    colour = _COLOURS[mark.line % len(_COLOURS)]
    name = _text(x + 4 if left else x - 4, y, mark.text, f'font-size="11" {anchor} {_MUTED}')
    return rule.format(f"M{x},{y_axis.stop}V{y_axis.start}", colour) + name


def _no_data(middle: float) -> Markup:
    box = Markup(
        '<rect x="0.5" y="{}" width="{}" height="{}" rx="8" fill="none" stroke="currentColor" '
        'stroke-opacity="0.2" stroke-dasharray="4 5"/>'
    ).format(middle - _PLOT_HEIGHT / 2, _WIDTH - 1, _PLOT_HEIGHT)
    return box + _text(_WIDTH / 2, middle + 4, "no data yet", f'text-anchor="middle" {_MUTED}')


def _line(name: str, line: Sequence[tuple[float, float] | None], number: int, x_axis: _Axis, y_axis: _Axis) -> Markup:
    """One path, interrupted at gaps, and markers with tooltips."""
    shape, colour = _SHAPES[number % len(_SHAPES)], _COLOURS[number % len(_COLOURS)]
    every = -(-len(line) // _MAX_MARKERS)
    path, markers, before = [], [], None
    for i, point in enumerate(line):
        if point is not None:
            x, y = x_axis.pixel(point[0]), y_axis.pixel(point[1])
            path.append(f"M{x},{y}h0" if before is None else f"L{x},{y}")  # an isolated point becomes a dot
            if i % every == 0 or i == len(line) - 1:
                markers.append(_marker(shape.format(x=x, y=y), name, point))
        before = point
    return Markup(
        '<g class="series" fill="{}"><path class="line" d="{}" fill="none" stroke="{}" stroke-width="2" '
        'stroke-linecap="round" stroke-linejoin="round"/>{}</g>'
    ).format(colour, "".join(path), colour, Markup("").join(markers))


def _marker(shape: str, name: str, point: tuple[float, float]) -> Markup:
    tooltip = f"{_xml_text(name)}: {point[1]:.6g} at {point[0]:.6g}"
    # the transparent stroke enlarges the area that shows the tooltip
    return Markup('<path class="marker" d="{}" stroke="transparent" stroke-width="10"><title>{}</title></path>').format(
        shape, tooltip
    )


def _legend(names: Sequence[str], middle: float) -> tuple[list[Markup], int]:
    """The marker and the name of each line, and the number of rows they take."""
    entries, left, row = [], 0.0, 0
    longest = int((_WIDTH - 24) / _LETTER_WIDTH)
    for number, name in enumerate(names):
        short = name if len(name) <= longest else name[: longest - 1] + "…"
        width = 16 + len(short) * _LETTER_WIDTH + 14
        if left and left + width > _WIDTH:
            left, row = 0.0, row + 1
        y = middle + row * _LEGEND_HEIGHT
        shape = _SHAPES[number % len(_SHAPES)].format(x=round(left + 5, 1), y=y)
        entries.append(Markup('<path d="{}" fill="{}"/>').format(shape, _COLOURS[number % len(_COLOURS)]))
        entries.append(_text(round(left + 14, 1), y + 4, short))
        left += width
    return entries, row + 1 if names else 0


def _summary(title: str, names: Sequence[str], lines: Sequence[Sequence[tuple[float, float] | None]]) -> str:
    """A text alternative to the chart for screen readers."""
    summaries = []
    for name, line in zip(names, lines, strict=True):
        points = [point for point in line if point is not None]
        if points:
            summaries.append(f"{name} goes from {points[0][1]:.4g} to {points[-1][1]:.4g}")
    return _xml_text(f"{title}: {'; '.join(summaries) or 'no data yet'}")


def _text(x: float, y: float, text: str, style: str = "") -> Markup:
    return Markup('<text x="{}" y="{}" {}>{}</text>').format(x, y, Markup(style), _xml_text(text))


def _xml_text(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
