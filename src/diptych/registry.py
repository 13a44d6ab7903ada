"""The module path is the registry: a name in a recipe is a file in a room of this package, and nowhere else."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any, TypeVar

from pydantic import ValidationError

from diptych.errors import RecipeError, did_you_mean
from diptych.settings import Settings, first_error

Kind = TypeVar("Kind", bound=Settings)


def names(room: str, kind: type[Kind]) -> list[str]:
    """What can be named in a room."""
    package = importlib.import_module(f"diptych.{room}")
    return [info.name for info in pkgutil.iter_modules(package.__path__) if find(room, info.name, kind)]


def find(room: str, name: str, kind: type[Kind]) -> type[Kind] | None:
    """The class of this kind whose `name` is its file's name; only that file is imported."""
    package = importlib.import_module(f"diptych.{room}")
    if name not in {info.name for info in pkgutil.iter_modules(package.__path__)}:
        return None
    for value in vars(importlib.import_module(f"diptych.{room}.{name}")).values():
        if isinstance(value, type) and issubclass(value, kind):
            field = value.model_fields.get("name")
            if field is not None and field.default == name:
                return value
    return None


def resolve(room: str, section: Any, where: str, kind: type[Kind]) -> Kind:
    """The settings that a recipe's section names, checked; `where` is the section's key for error messages."""
    if not isinstance(section, dict) or not isinstance(section.get("name"), str):
        raise RecipeError(f"{where}: needs a table with a name, such as {where} = {{ name = ... }}")
    settings = find(room, section["name"], kind)
    if settings is None:
        offer = did_you_mean(section["name"], names(room, kind))
        raise RecipeError(f"{where}.name = {section['name']!r}: no such name; {offer}")
    try:
        return settings.model_validate(section)
    except ValidationError as error:
        raise RecipeError(f"{where}: {first_error(error, settings)}") from None
