"""The data formats, one module per format; a module in this package is a format, and installed packages add others.

A format module offers the names of `Format`. `open_corpus` asks the formats in ascending `ORDER`, and the first one
that recognises an address reads it. Formats that are known by a file's name come before those that look into files; a
plain folder of images is last.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from typing import Protocol, cast

from diptych.data.address import Address
from diptych.data.corpus import Corpus
from diptych.data.plugin_formats import plugin_formats


class Format(Protocol):
    """What a module in this package offers."""

    ORDER: int
    DESCRIPTION: str  # what to name, for the message that lists all formats; empty to leave it out

    def recognises(self, address: Address) -> bool:
        """Whether this format is what lies at an address; quick, and without reading more than it needs."""
        ...

    def read(self, address: Address) -> Corpus:
        """The corpus at an address that the format recognises."""
        ...


@functools.cache
def all_formats() -> tuple[Format, ...]:
    """The formats, in the order in which they are asked."""
    names = [info.name for info in pkgutil.iter_modules(__path__)]
    formats: list[Format] = [cast("Format", importlib.import_module(f"{__name__}.{name}")) for name in names]
    return tuple(sorted([*formats, *plugin_formats()], key=lambda one: one.ORDER))
