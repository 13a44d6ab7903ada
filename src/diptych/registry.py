"""Finds what a recipe names: the module path is the registry.

`objective = { name = "hinge" }` is the class in `diptych/objectives/hinge.py` whose field `name` defaults to "hinge". A
recipe can name nothing outside of this package.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any, TypeVar

from pydantic import ValidationError

from diptych.errors import RecipeError, did_you_mean
from diptych.settings import Settings, first_error

Kind = TypeVar("Kind", bound=Settings)


def names(package: str, kind: type[Kind]) -> list[str]:
    """The names of all settings of this kind in a package, such as `objectives`."""
    return [name for name in _module_names(package) if find(package, name, kind)]


def find(package: str, name: str, kind: type[Kind]) -> type[Kind] | None:
    """The settings class of this kind and name, if there is one; only its own module is imported."""
    if name not in _module_names(package):
        return None
    for value in vars(importlib.import_module(f"diptych.{package}.{name}")).values():
        if isinstance(value, type) and issubclass(value, kind):
            field = value.model_fields.get("name")
            if field is not None and field.default == name:
                return value
    return None


def resolve(package: str, section: Any, where: str, kind: type[Kind]) -> Kind:
    """The validated settings of a recipe's section; `where` is the section's key, for error messages."""
    if not isinstance(section, dict) or not isinstance(section.get("name"), str):
        raise RecipeError(f"{where}: needs a table with a name, such as {where} = {{ name = ... }}")
    settings = find(package, section["name"], kind)
    if settings is None:
        hint = did_you_mean(section["name"], names(package, kind))
        raise RecipeError(f"{where}.name = {section['name']!r}: no such name; {hint}")
    try:
        return settings.model_validate(section)
    except ValidationError as error:
        raise RecipeError(f"{where}: {first_error(error, settings)}") from None


def _module_names(package: str) -> list[str]:
    module = importlib.import_module(f"diptych.{package}")
    return [info.name for info in pkgutil.iter_modules(module.__path__)]
