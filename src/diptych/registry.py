"""Finds what a recipe names: the module path is the registry.

`objective = { name = "hinge" }` is the class in `diptych/objectives/hinge.py` whose field `name` defaults to "hinge". A
name that is not built in is that of an entry point of an installed package, or `module:Class` in a module that the user
has allowed (see `plugins`).
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import Any, TypeVar

from pydantic import ValidationError

from diptych import plugins
from diptych.errors import PluginError, RecipeError, did_you_mean
from diptych.settings import Settings, first_error

Kind = TypeVar("Kind", bound=Settings)


# The group of entry points for each package, and the prefix of their names.
_GROUPS = {
    "objectives": ("objectives", ""),
    "models.matchers": ("matchers", ""),
    "models.towers.image": ("towers", "image."),
    "models.towers.region": ("towers", "region."),
    "models.towers.text": ("towers", "text."),
    "text.tokenisers": ("tokenisers", ""),
    "training.needs": ("needs", ""),
}


def names(package: str, kind: type[Kind]) -> list[str]:
    """The names of all settings of this kind in a package, such as `objectives`, and those of entry points."""
    return [name for name in module_names(package) if _built_in(package, name, kind)] + plugin_names(package)


def plugin_names(package: str) -> list[str]:
    """The names that installed packages add to those of a package; nothing is imported."""
    group, prefix = _GROUPS[package]
    found = [name.removeprefix(prefix) for name in plugins.installed(group) if name.startswith(prefix)]
    return [name for name in found if name not in module_names(package)]


def is_reachable(group: str, name: str) -> bool:
    """Whether an entry point can be named: its name is not built in, and a tower's says on which side it is."""
    packages = [(package, prefix) for package, (known, prefix) in _GROUPS.items() if known == group]
    return not packages or any(
        name.startswith(prefix) and name.removeprefix(prefix) in plugin_names(package) for package, prefix in packages
    )


def find(package: str, name: str, kind: type[Kind]) -> type[Kind] | None:
    """The settings class of this kind and name, if there is one; only its own module is imported."""
    if ":" in name:
        return _plugin_class(plugins.load_reference(name), kind)
    if name not in module_names(package) and name in plugin_names(package):  # listing plug-ins takes a while
        group, prefix = _GROUPS[package]
        return _plugin_class(plugins.load_installed(group, prefix + name), kind)
    return _built_in(package, name, kind)


def _built_in(package: str, name: str, kind: type[Kind]) -> type[Kind] | None:
    if name not in module_names(package):
        return None
    for value in vars(importlib.import_module(f"diptych.{package}.{name}")).values():
        if isinstance(value, type) and issubclass(value, kind):
            field = value.model_fields.get("name")
            if field is not None and field.default == name:
                return value
    return None


def _plugin_class(found: Any, kind: type[Kind]) -> type[Kind]:
    """Check that what a plug-in offers is a class of the kind that is needed."""
    if not isinstance(found, type) or not issubclass(found, kind):
        raise PluginError(f"{getattr(found, '__name__', found)} is not a subclass of {kind.__name__}")
    if inspect.isabstract(found):
        raise PluginError(f"{found.__name__} does not define {', '.join(sorted(found.__abstractmethods__))}")
    return found


def resolve(package: str, section: Any, where: str, kind: type[Kind]) -> Kind:
    """The validated settings of a recipe's section; `where` is the section's key, for error messages."""
    if not isinstance(section, dict) or not isinstance(section.get("name"), str):
        raise RecipeError(f"{where}: needs a table with a name, such as {where} = {{ name = ... }}")
    try:
        settings = find(package, section["name"], kind)
    except PluginError as reason:
        raise RecipeError(f"{where}.name = {section['name']!r}: {reason}") from reason
    if settings is None:
        hint = did_you_mean(section["name"], names(package, kind))
        raise RecipeError(f"{where}.name = {section['name']!r}: no such name; {hint}")
    try:
        return settings.model_validate(section)
    except ValidationError as error:
        raise RecipeError(f"{where}: {first_error(error, settings)}") from None


def module_names(package: str) -> list[str]:
    """The names of the modules of a package; no name of a plug-in replaces one of them."""
    module = importlib.import_module(f"diptych.{package}")
    return [info.name for info in pkgutil.iter_modules(module.__path__)]
