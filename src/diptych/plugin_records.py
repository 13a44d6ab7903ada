"""What a run or a model notes about the plug-in classes that made it: module, class, version and a hash of the source.

A class that was changed since then may be another model or objective under the same name.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from diptych.files import file_hash
from diptych.plugins import is_outside


@dataclass(frozen=True, order=True)
class PluginRecord:
    """A class outside of the package; `package` and `version` are empty if its module is not installed.

    `sha256` is the hash of its source file, empty if there is none, as for a class that was defined interactively.
    """

    module: str
    name: str
    package: str = ""
    version: str = ""
    sha256: str = ""

    def to_json(self) -> dict[str, str]:
        """The record as JSON."""
        values = (self.module, self.name, self.package, self.version, self.sha256)
        return dict(zip(("module", "class", "package", "version", "sha256"), values, strict=True))


def record_classes(classes: Iterable[type]) -> tuple[PluginRecord, ...]:
    """The records of those classes and of their base classes that are plug-ins: outside, derived from one inside."""
    bases = {base for one in classes for base in one.__mro__ if is_outside(base)}
    return tuple(sorted(_record(base) for base in bases if not all(map(is_outside, base.__mro__))))


def settings_classes(settings: BaseModel) -> Iterator[type]:
    """The classes of settings and of the settings within them."""
    yield type(settings)
    for value in vars(settings).values():
        for part in value if isinstance(value, tuple | list) else (value,):
            if isinstance(part, BaseModel):
                yield from settings_classes(part)


def changed_since(saved: Any, now: Sequence[PluginRecord]) -> list[str]:
    """A clause for each plug-in whose source is not what was saved: its class and its file."""
    known = {
        (one.get("module"), one.get("class")): one.get("sha256")
        for one in (saved if isinstance(saved, list) else [])
        if isinstance(one, dict)
    }
    changed = [one for one in now if known.get((one.module, one.name), one.sha256) != one.sha256]
    return [f"{one.module}:{one.name} has changed since ({source_file(one.module)})" for one in changed]


def source_file(module: str) -> Path | None:
    """The file of a module that has been imported, if it has one."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return None if file is None else Path(file)


@functools.cache  # what was imported is hashed once; the file may be edited while a training runs
def _record(kind: type) -> PluginRecord:
    packages = packages_distributions().get(kind.__module__.partition(".")[0], [])
    package = packages[0] if packages else ""
    file = source_file(kind.__module__)
    digest = file_hash(file) if file is not None and file.is_file() else ""
    return PluginRecord(kind.__module__, kind.__qualname__, package, version(package) if package else "", digest)
