"""Charts of lines, bars and areas as SVG that stands by itself in a page: no script, no address, light and dark."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

Point = tuple[float, float | None]

# Pixels of the drawing. It is narrow, so that its letters can still be read when a phone shrinks it.
_WIDTH, _PLOT_HEIGHT, _LEFT, _RIGHT = 460, 210, 52, 12
_HEAD, _LEGEND_HEIGHT, _SPACE, _FOOT = 45, 20, 14, 42
_QUIET = 'opacity="0.7"'
_RULE = Markup('<path class="{}" d="{}" stroke="currentColor" stroke-opacity="{}"/>')
_LETTER = 7.1  # the width of a letter, about: nothing can be measured here

_MOST_MARKERS = 80  # a line; tooltips of ten thousand steps would outweigh the page
_HUGE = 1e100  # beyond it differences overflow; drawn as a gap, like infinity
_TINY = 1e-90  # below it quotients do; drawn as nothing
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # by XML 1.0

# A page may set the variables, and does for dark; the colours behind them suit white paper. They differ in lightness
# too, so that all six can be told apart by who does not see red or green.
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
)  # five shapes beside six colours: thirty lines before two look alike


@dataclass(frozen=True)
class Mark:
    """A place on the lower axis where something happens to a line, such as the start of a stage."""

    x: float
    text: str
    line: int = 0


@dataclass(frozen=True)
class _Axis:
    """Values `low` to `high` along the pixels `start` to `stop`, with the values to write beside them."""

    low: float
    high: float
    start: float
    stop: float
    ticks: Sequence[float]
    decimals: int

    def at(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.stop - self.start), 2)

    def write(self, value: float) -> str:
        if self.decimals > 4 or abs(value) >= 1e7:
            return f"{value:.6g}".replace("-", "\u2212")
        return f"{round(value, self.decimals) + 0.0:,.{self.decimals}f}".replace("-", "\u2212")


def line_chart(
    series: Mapping[str, Sequence[Point]], *, title: str, x_label: str, y_label: str, marks: Sequence[Mark] = ()
) -> Markup:
    """Draw named lines of (x, y) points as one SVG; a y of None or NaN leaves a gap.

    Marks beyond the points are left out. A page sets the lines' colours with the CSS variables --series-1 to
    --series-6; the rest takes the text's.
    """
    names = list(series)
    lines = [[_checked(point) for point in series[name]] for name in names]
    seen = [point for line in lines for point in line if point is not None]
    parts, top = _head(title, y_label, names)
    bottom = top + _PLOT_HEIGHT
    if seen:
        xs, ys = [x for x, _ in seen], [y for _, y in seen]
        intervals = 10 if max(map(abs, xs)) < 1000 else 5  # long numbers need room
        across = _axis(xs, _LEFT, _WIDTH - _RIGHT, intervals, whole=all(x == int(x) for x in xs), widen=False)
        up = _axis(ys, bottom, top, 5, whole=False, widen=True)
        parts += _frame(across, up, x_label)
        parts += [_mark(mark, across, up) for mark in marks if across.low <= mark.x <= across.high]
        for number, (name, line) in enumerate(zip(names, lines, strict=True)):
            parts.append(_line(name, line, number, across, up))
    else:
        parts.append(_nothing((top + bottom) / 2))
    return _svg(bottom + _FOOT, _summary(title, names, lines), parts)


def bar_chart(
    series: Mapping[str, Sequence[float]], labels: Sequence[str], *, title: str, x_label: str, y_label: str
) -> Markup:
    """Draw named series of values from 0 on as one SVG: for each label a group with a bar a series."""
    names = list(series)
    parts, top = _head(title, y_label, names)
    bottom = top + _PLOT_HEIGHT
    up = _axis(
        [0.0, *(value for values in series.values() for value in values)], bottom, top, 5, whole=False, widen=True
    )
    room = (_WIDTH - _RIGHT - _LEFT) / len(labels)
    width = 0.78 * room / max(1, len(names))
    middles = [round(_LEFT + (place + 0.5) * room, 2) for place in range(len(labels))]
    size = 13 if max(map(len, labels)) * _LETTER < room - 6 else 11
    ticks = list(zip(middles, labels, strict=True))
    parts += _levels(up) + _below(ticks, up, x_label, f'font-size="{size}"')
    for number, (name, values) in enumerate(series.items()):
        bars = [
            _bar(middle + (number - len(names) / 2) * width, width, up, value, f"{name}: {value:.4g} at {label}")
            for middle, label, value in zip(middles, labels, values, strict=True)
        ]
        group = Markup('<g class="series" fill="{}">{}</g>')
        parts.append(group.format(_COLOURS[number % len(_COLOURS)], Markup("").join(bars)))
    told = (
        f"{name} has {', '.join(f'{value:.4g} at {label}' for label, value in zip(labels, values, strict=True))}"
        for name, values in series.items()
    )
    return _svg(bottom + _FOOT, _printable(f"{title}: {'; '.join(told)}"), parts)


def area_chart(
    series: Mapping[str, Sequence[float]], edges: Sequence[float], *, title: str, x_label: str, y_label: str
) -> Markup:
    """Draw named histograms of the bins between these edges as one SVG: steps from 0 on, the area below them tinted."""
    names = list(series)
    parts, top = _head(title, y_label, names)
    bottom = top + _PLOT_HEIGHT
    across = _axis(edges, _LEFT, _WIDTH - _RIGHT, 10, whole=False, widen=False)
    up = _axis(
        [0.0, *(value for values in series.values() for value in values)], bottom, top, 5, whole=False, widen=True
    )
    parts += _frame(across, up, x_label)
    told = []
    for number, (name, values) in enumerate(series.items()):
        steps = zip(edges[1:], values, strict=True)
        path = f"M{across.at(edges[0])},{bottom}" + "".join(f"V{up.at(value)}H{across.at(x)}" for x, value in steps)
        area = Markup(
            '<path class="area" d="{}V{}z" fill="{}" fill-opacity="0.22" stroke="{}" stroke-width="1.6" '
            'stroke-linejoin="round"><title>{}</title></path>'
        )
        colour = _COLOURS[number % len(_COLOURS)]
        parts.append(area.format(path, bottom, colour, colour, _printable(name)))
        peak = max(range(len(values)), key=values.__getitem__)
        told.append(f"{name} is densest from {edges[peak]:.3g} to {edges[peak + 1]:.3g}")
    return _svg(bottom + _FOOT, _printable(f"{title}: {'; '.join(told)}"), parts)


def _bar(left: float, width: float, up: _Axis, value: float, tooltip: str) -> Markup:
    shape = f"M{left + 0.5:.2f},{up.at(0)}V{up.at(value)}h{width - 1:.2f}V{up.at(0)}z"
    return Markup('<path class="column" d="{}"><title>{}</title></path>').format(shape, _printable(tooltip))


def _head(title: str, y_label: str, names: Sequence[str]) -> tuple[list[Markup], int]:
    """The title, the name of the left axis and the legend, and where the plot may begin below them."""
    entries, rows = _legend(names, _HEAD + _LEGEND_HEIGHT / 2)
    heading = _text(0, 16, title, 'font-size="15" font-weight="600"')
    return [heading, _text(0, 35, y_label, _QUIET), *entries], _HEAD + rows * _LEGEND_HEIGHT + _SPACE


def _svg(height: float, summary: str, parts: Sequence[Markup]) -> Markup:
    return Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {} {}" width="{}" role="img" '
        'aria-label="{}" font-size="13" fill="currentColor">{}</svg>'
    ).format(_WIDTH, height, _WIDTH, summary, Markup("").join(parts))


def _checked(point: Point) -> tuple[float, float] | None:
    x, y = point
    return None if y is None or not (abs(x) < _HUGE and abs(y) < _HUGE) else (x, y)  # NaN is below nothing


def _axis(values: Iterable[float], start: float, stop: float, intervals: int, *, whole: bool, widen: bool) -> _Axis:
    """An axis that holds the values, with about so many round steps; `widen` ends it at round values."""
    values = list(values)
    low, high = min(values), max(values)
    largest = max(abs(low), abs(high))
    if high - low <= max(1e-9 * largest, _TINY):  # a single value stands in the middle
        room = max(0.1 * largest if largest > _TINY else 1.0, 1.0 if whole else 0.0)
        low, high = low - room, high + room
    step = _round_step((high - low) / intervals)
    if whole:
        step = max(1.0, step)
    if widen:
        low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    ticks = [number * step for number in range(first, last + 1)]
    return _Axis(low, high, start, stop, ticks, max(0, -math.floor(math.log10(step) + 1e-9)))


def _round_step(rough: float) -> float:
    """The smallest of 1, 2, 5, 10, ... in any decimal place that is not below the rough step."""
    unit = 10.0 ** math.floor(math.log10(rough))
    return next(unit * times for times in (1, 2, 5, 10) if unit * times >= rough * (1 - 1e-9))


def _frame(across: _Axis, up: _Axis, x_label: str) -> list[Markup]:
    """The grid, the ticks and the name of the lower axis, quieter than the lines."""
    return _levels(up) + _below([(across.at(value), across.write(value)) for value in across.ticks], up, x_label)


def _levels(up: _Axis) -> list[Markup]:
    """The rules at the values of the left axis, and the values."""
    parts = []
    for value in up.ticks:
        y = up.at(value)
        parts.append(_RULE.format("grid", f"M{_LEFT},{y}H{_WIDTH - _RIGHT}", 0.45 if y == up.start else 0.14))
        parts.append(_text(_LEFT - 8, y + 4, up.write(value), f'text-anchor="end" {_QUIET}'))
    return parts


def _below(ticks: Sequence[tuple[float, str]], up: _Axis, x_label: str, style: str = "") -> list[Markup]:
    """The ticks of the lower axis at their places, and its name."""
    parts = []
    for x, text in ticks:
        parts.append(_RULE.format("tick", f"M{x},{up.start}v4", 0.45))
        parts.append(_text(x, up.start + 18, text, f'text-anchor="middle" {_QUIET} {style}'))
    parts.append(_text(_WIDTH - _RIGHT, up.start + 36, x_label, f'text-anchor="end" {_QUIET}'))
    return parts


def _mark(mark: Mark, across: _Axis, up: _Axis) -> Markup:
    """A dashed rule in its line's colour; the names of different lines' marks stand below each other."""
    x, y = across.at(mark.x), up.stop + 10 + 14 * mark.line
    left = x + len(mark.text) * _LETTER < _WIDTH  # else there is no room to its right
    anchor = 'text-anchor="start"' if left else 'text-anchor="end"'
    rule = Markup('<path class="mark-rule" d="{}" stroke="{}" stroke-dasharray="3 4" opacity="0.8"/>')
    colour = _COLOURS[mark.line % len(_COLOURS)]
    name = _text(x + 4 if left else x - 4, y, mark.text, f'font-size="11" {anchor} {_QUIET}')
    return rule.format(f"M{x},{up.stop}V{up.start}", colour) + name


def _nothing(middle: float) -> Markup:
    box = Markup(
        '<rect x="0.5" y="{}" width="{}" height="{}" rx="8" fill="none" stroke="currentColor" '
        'stroke-opacity="0.2" stroke-dasharray="4 5"/>'
    ).format(middle - _PLOT_HEIGHT / 2, _WIDTH - 1, _PLOT_HEIGHT)
    return box + _text(_WIDTH / 2, middle + 4, "no data yet", f'text-anchor="middle" {_QUIET}')


def _line(name: str, line: Sequence[tuple[float, float] | None], number: int, across: _Axis, up: _Axis) -> Markup:
    """One path, broken at the gaps, and markers that tell their values."""
    shape, colour = _SHAPES[number % len(_SHAPES)], _COLOURS[number % len(_COLOURS)]
    every = -(-len(line) // _MOST_MARKERS)
    path, markers, before = [], [], None
    for i, point in enumerate(line):
        if point is not None:
            x, y = across.at(point[0]), up.at(point[1])
            path.append(f"M{x},{y}h0" if before is None else f"L{x},{y}")  # a lone point becomes a dot
            if i % every == 0 or i == len(line) - 1:
                markers.append(_marker(shape.format(x=x, y=y), name, point))
        before = point
    return Markup(
        '<g class="series" fill="{}"><path class="line" d="{}" fill="none" stroke="{}" stroke-width="2" '
        'stroke-linecap="round" stroke-linejoin="round"/>{}</g>'
    ).format(colour, "".join(path), colour, Markup("").join(markers))


def _marker(shape: str, name: str, point: tuple[float, float]) -> Markup:
    tooltip = f"{_printable(name)}: {point[1]:.6g} at {point[0]:.6g}"
    # the invisible rim is where a finger or a mouse may land
    return Markup('<path class="marker" d="{}" stroke="transparent" stroke-width="10"><title>{}</title></path>').format(
        shape, tooltip
    )


def _legend(names: Sequence[str], middle: float) -> tuple[list[Markup], int]:
    """A marker and a name for each line, in as many rows as they need."""
    entries, left, row = [], 0.0, 0
    longest = int((_WIDTH - 24) / _LETTER)
    for number, name in enumerate(names):
        short = name if len(name) <= longest else name[: longest - 1] + "…"
        width = 16 + len(short) * _LETTER + 14
        if left and left + width > _WIDTH:
            left, row = 0.0, row + 1
        y = middle + row * _LEGEND_HEIGHT
        shape = _SHAPES[number % len(_SHAPES)].format(x=round(left + 5, 1), y=y)
        entries.append(Markup('<path d="{}" fill="{}"/>').format(shape, _COLOURS[number % len(_COLOURS)]))
        entries.append(_text(round(left + 14, 1), y + 4, short))
        left += width
    return entries, row + 1 if names else 0


def _summary(title: str, names: Sequence[str], lines: Sequence[Sequence[tuple[float, float] | None]]) -> str:
    """What the chart shows, for who cannot see it."""
    told = []
    for name, line in zip(names, lines, strict=True):
        points = [point for point in line if point is not None]
        if points:
            told.append(f"{name} goes from {points[0][1]:.4g} to {points[-1][1]:.4g}")
    return _printable(f"{title}: {'; '.join(told) or 'no data yet'}")


def _text(x: float, y: float, text: str, style: str = "") -> Markup:
    return Markup('<text x="{}" y="{}" {}>{}</text>').format(x, y, Markup(style), _printable(text))


def _printable(text: str) -> str:
    return _UNPRINTABLE.sub("\ufffd", text)
