"""The module path is the registry: a name in a recipe is a file in a room of this package, and nowhere else."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any, TypeVar

from pydantic import ValidationError

from diptych.errors import RecipeError, nearest
from diptych.settings import Settings, first_mistake

Kind = TypeVar("Kind", bound=Settings)


def names(room: str, kind: type[Kind]) -> dict[str, type[Kind]]:
    """What can be named in a room: classes of this kind with a `name` whose default is their file's name."""
    package = importlib.import_module(f"diptych.{room}")
    found = {}
    for module_info in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"diptych.{room}.{module_info.name}")
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, kind) and "name" in value.model_fields:
                name = value.model_fields["name"].default
                if name == module_info.name:
                    found[name] = value
    return found


def resolve(room: str, section: Any, where: str, kind: type[Kind]) -> Kind:
    """The settings that a recipe's section names, checked; `where` is the section's key for error messages."""
    if not isinstance(section, dict) or not isinstance(section.get("name"), str):
        raise RecipeError(f"{where}: needs a table with a name, such as {where} = {{ name = ... }}")
    known = names(room, kind)
    settings = known.get(section["name"])
    if settings is None:
        raise RecipeError(f"{where}.name = {section['name']!r}: no such name; {nearest(section['name'], known)}")
    try:
        return settings.model_validate(section)
    except ValidationError as error:
        raise RecipeError(f"{where}: {first_mistake(error, settings)}") from None
