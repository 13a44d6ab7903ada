"""Render HTML pages from the Jinja templates in `templates/`; all values are escaped."""

from __future__ import annotations

import functools
import math
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined

from diptych.files import write_text

MINUS = "\u2212"


def write_template(path: Path, name: str, **values: Any) -> None:
    """Render a template and write the page atomically."""
    write_text(path, render_template(name, **values))


def render_template(name: str, **values: Any) -> str:
    """A self-contained HTML page; the output is deterministic."""
    page = _environment().get_template(name).render(**values)
    # A file name that is not valid UTF-8 contains lone surrogates, which cannot be written.
    return page.encode("utf-8", "replace").decode("utf-8")


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(lambda name: resources.files(__package__).joinpath("templates", name).read_text("utf-8")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"decimals": format_decimals, "signed": format_signed, "percent": format_percent}
    return environment


def format_decimals(value: float | None, digits: int) -> str:
    """The number with thousands separators; a dash if it is missing or not finite."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:,.{digits}f}".replace("-", MINUS)


def format_signed(value: float, digits: int = 1) -> str:
    """The number with its sign, or without a sign if it rounds to zero."""
    if not math.isfinite(value):
        return "–"
    rounded = round(value, digits) + 0.0  # no negative zero
    return (f"{rounded:+,.{digits}f}" if rounded else f"{rounded:.{digits}f}").replace("-", MINUS)


def format_percent(fraction: float) -> str:
    """A fraction of 1 as a percentage; a tiny one is shown as "< 0.01" instead of zero."""
    return "< 0.01" if 0 < fraction < 0.00005 else format_decimals(100 * fraction, 2)
