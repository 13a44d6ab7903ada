"""Code outside of the package that recipes and runs may use: allowed modules, and installed packages.

A recipe names a class of a module as `module:Class`, and the module is imported only if the user has allowed it by
name: a recipe or a run by itself imports nothing. Installed packages register classes under names of their own, as
entry points of the groups in `GROUPS`; only the one that is named is loaded.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from diptych.errors import PluginError, one_line

# What an entry point of each group refers to.
GROUPS: Mapping[str, str] = {
    "objectives": "a subclass of Objective",
    "needs": "a subclass of Need, for objectives",
    "matchers": "a subclass of ModelSettings",
    "towers": "a subclass of ImageTowerSettings or TextTowerSettings, named image.NAME, region.NAME or text.NAME",
    "tokenisers": "a subclass of StoredTokeniser",
    "formats": "a module with ORDER, DESCRIPTION, recognises and read",
    "backbones": "a module with build and load",
    "index_backends": "an IndexBackend",
}

_allowed: set[str] = set()


class PluginWarning(UserWarning):
    """A plug-in has changed since it was used, or does not work and is left out."""


def allow_code(*modules: str) -> None:
    """Let recipes and runs use the classes of these modules, and of those below them, in this process.

    Allow only code that you trust: it is run. Nothing is imported yet.
    """
    for module in modules:
        if not _is_module_name(module):
            raise PluginError(f'{module!r}: not the name of a module; write it as for import, such as "my_losses"')
    _allowed.update(modules)


def allowed_code() -> tuple[str, ...]:
    """The modules that were allowed, to allow them in another process as well."""
    return tuple(sorted(_allowed))


def is_allowed(module: str) -> bool:
    """Whether a module was allowed, by its own name or by that of a package that contains it."""
    parts = module.split(".")
    return any(".".join(parts[:end]) in _allowed for end in range(1, len(parts) + 1))


def is_outside(kind: type) -> bool:
    """Whether a class is defined outside of this package."""
    return kind.__module__.partition(".")[0] != "diptych"


def load_reference(reference: str, *, trusted: bool = False) -> Any:
    """What `module:Class` refers to; nothing is imported unless the module was allowed, or the reference is `trusted`.

    Only code may trust a reference, and only one that is written in code, never one from a recipe or a run.
    """
    module, colon, name = reference.partition(":")
    if not (colon and _is_module_name(module) and name.isidentifier()):
        raise PluginError("not a reference to a class; write module:Class, such as my_losses:MyLoss")
    if not trusted and not is_allowed(module):
        raise PluginError(
            f"the module {module!r} is not allowed; if you trust its code, add --allow-code {module}, "
            f'or call diptych.allow_code("{module}") in Python'
        )
    try:
        imported = importlib.import_module(module)
    except (Exception, SystemExit) as reason:  # a module may raise anything
        raise PluginError(f"the module {module!r} cannot be imported ({one_line(reason)})") from reason
    try:
        return getattr(imported, name)
    except AttributeError:
        raise PluginError(f"the module {module!r} has no {name}") from None


def installed(group: str) -> dict[str, list[EntryPoint]]:
    """The entry points of a group by name; nothing is imported."""
    found: dict[str, list[EntryPoint]] = {}
    for point in _entry_points():
        if point.group == f"diptych.{group}":
            found.setdefault(point.name, []).append(point)
    return dict(sorted(found.items()))


def load_installed(group: str, name: str) -> Any:
    """What an installed package registers under a name."""
    points = installed(group)[name]
    if len(points) > 1:
        packages = " and ".join(sorted(package_of(point) for point in points))
        raise PluginError(f"{packages} both register the name {name!r}; uninstall one of them")
    try:
        return points[0].load()
    except (Exception, SystemExit) as reason:
        package = package_of(points[0])
        raise PluginError(f"the plug-in {name!r} of {package} cannot be loaded ({one_line(reason)})") from reason


def package_of(point: EntryPoint) -> str:
    """The package that registers an entry point, with its version."""
    return "an unknown package" if point.dist is None else f"{point.dist.name} {point.dist.version}"


@functools.cache
def _entry_points() -> tuple[EntryPoint, ...]:
    """All entry points of this package's groups, read once from the metadata of what is installed."""
    groups = [f"diptych.{group}" for group in GROUPS]
    return tuple(point for group in groups for point in entry_points(group=group))


def _is_module_name(name: Any) -> bool:
    return isinstance(name, str) and all(part.isidentifier() for part in name.split("."))
