"""Data formats of installed packages: asked like the built-in ones, and left out with a warning if they do not work."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

from diptych import plugins
from diptych.data.address import Address
from diptych.data.corpus import Corpus
from diptych.errors import DataError, DiptychError, PluginError, one_line
from diptych.plugins import PluginWarning


@dataclass
class PluginFormat:
    """A format of an installed package, whose errors name it."""

    name: str
    offered: Any  # a module or an object with the names of `Format`
    ORDER: int
    DESCRIPTION: str

    @classmethod
    def load(cls, name: str) -> PluginFormat:
        """Load a format; raises PluginError if it lacks something."""
        offered = plugins.load_installed("formats", name)
        order, description = getattr(offered, "ORDER", None), getattr(offered, "DESCRIPTION", None)
        functions = [getattr(offered, function, None) for function in ("recognises", "read")]
        if not (isinstance(order, int) and isinstance(description, str) and all(map(callable, functions))):
            raise PluginError(f"the plug-in {name!r} is not a format: it needs ORDER, DESCRIPTION, recognises and read")
        return cls(name, offered, order, description)

    def recognises(self, address: Address) -> bool:
        """Whether the format recognises an address; one that fails is left out with a warning."""
        try:
            return bool(self.offered.recognises(address))
        except Exception as reason:  # a plug-in may raise anything, and the other formats are still to be asked
            warnings.warn(f"{self._failure(address, reason)}; it is left out", PluginWarning, stacklevel=3)
            return False

    def read(self, address: Address) -> Corpus:
        """The corpus at an address."""
        try:
            corpus: Corpus = self.offered.read(address)
        except (DiptychError, OSError):  # about the data
            raise
        except Exception as reason:
            raise DataError(self._failure(address, reason)) from reason
        return corpus

    def _failure(self, address: Address, reason: Exception) -> str:
        return f"{address.path}: the format plug-in {self.name!r} failed ({one_line(reason)})"


def plugin_formats() -> list[PluginFormat]:
    """The formats of installed packages; one that cannot be loaded is left out with a warning that names it."""
    formats = []
    for name in plugins.installed("formats"):
        try:
            formats.append(PluginFormat.load(name))
        except PluginError as reason:
            warnings.warn(f"data formats: {reason}; it is left out", PluginWarning, stacklevel=2)
    return formats
