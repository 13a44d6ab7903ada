"""The pages' templates: a file each in this folder, all in one style, and no text of a caller can become markup."""

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
    """Write a whole page or nothing."""
    write_text(path, render_template(name, **values))


def render_template(name: str, **values: Any) -> str:
    """A page as HTML that needs nothing else; the same values give the same bytes."""
    page = _environment().get_template(name).render(**values)
    # A file name that is no UTF-8 comes with lone surrogates, which cannot be written.
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
    environment.filters |= {"decimals": _decimals, "signed": _signed, "share": _share}
    return environment


def _decimals(value: float | None, digits: int) -> str:
    """The number as people write it, and a dash for none."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:,.{digits}f}".replace("-", MINUS)


def _signed(value: float, digits: int = 1) -> str:
    """The number with its sign; what rounds to zero has none."""
    if not math.isfinite(value):
        return "–"
    rounded = round(value, digits) + 0.0  # no negative zero
    return (f"{rounded:+,.{digits}f}" if rounded else f"{rounded:.{digits}f}").replace("-", MINUS)


def _share(value: float) -> str:
    """A share of 1 in percent; a very small one is told as such instead of as zero."""
    return "< 0.01" if 0 < value < 0.00005 else _decimals(100 * value, 2)
