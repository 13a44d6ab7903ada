"""How the content of one recipe is laid over another's, and how one value of it is overridden.

Contents are plain dictionaries, as TOML gives them. Nothing is checked here; `recipe.parse_recipe` does that.
"""

from __future__ import annotations

import sys
from itertools import zip_longest
from operator import itemgetter
from typing import Any

from diptych.errors import RecipeError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def lay_over(top: Any, beneath: Any) -> Any:
    """Lay tables over tables key by key and stages over stages one by one; anything else replaces what is beneath.

    A table that names another tower, objective or schedule replaces the table beneath, because its keys are others.
    Stages are a list, the n-th for the n-th, or a table by number (`stage.2.epochs = 3`), counted from 1.

    >>> lay_over({"stage": {"2": {"epochs": 3}}}, {"stage": [{"epochs": 1}, {"epochs": 2, "start": "previous"}]})
    {'stage': [{'epochs': 1}, {'epochs': 3, 'start': 'previous'}]}
    """
    if _is_numbered(top) and isinstance(beneath, list):
        return _number_over_list(top, beneath)
    if isinstance(top, dict) and isinstance(beneath, dict):
        if "name" in top and top["name"] != beneath.get("name"):
            return top
        return {**beneath, **{key: lay_over(value, beneath.get(key)) for key, value in top.items()}}
    if isinstance(top, list) and isinstance(beneath, list) and all(isinstance(item, dict) for item in top + beneath):
        pairs = zip_longest(top, beneath, fillvalue=None)
        return [lower if upper is None else lay_over(upper, lower) for upper, lower in pairs]
    return top


def apply_override(content: dict[str, Any], override: str) -> None:
    """Set one value in place, such as `stage.1.objective.margin=0.1`; stages are counted from 1."""
    path, equals, text = override.partition("=")
    if not equals:
        raise RecipeError(f"--set {override}: write KEY=VALUE, such as stage.1.objective.margin=0.1")
    *parents, key = path.strip().split(".")
    table: Any = content
    for parent in parents:
        if isinstance(table, list):
            if not parent.isdigit() or not 1 <= int(parent) <= len(table):
                raise RecipeError(f"--set {override}: there are stages 1 to {len(table)}, not {parent!r}")
            table = table[int(parent) - 1]
        else:
            table = table.setdefault(parent, {}) if isinstance(table, dict) else None
        if not isinstance(table, dict | list):
            raise RecipeError(f"--set {override}: {parent!r} is not a table")
    if isinstance(table, list):
        raise RecipeError(f"--set {override}: name a key of a stage, such as {path}.epochs")
    table[key] = _parse_value(text.strip())


def _is_numbered(table: Any) -> bool:
    return isinstance(table, dict) and bool(table) and all(key.isdigit() for key in table)


def _number_over_list(numbered: dict[str, Any], beneath: list[Any]) -> list[Any]:
    """Lay stages given by number over a list of stages; the next number after the last adds a stage."""
    stages = list(beneath)
    for number, stage in sorted(((int(key), stage) for key, stage in numbered.items()), key=itemgetter(0)):
        if not 1 <= number <= len(stages) + 1:
            raise RecipeError(f"stage.{number}: there are stages 1 to {len(stages)}; a new one is {len(stages) + 1}")
        lower = stages[number - 1] if number <= len(stages) else None
        stages[number - 1 : number] = [lay_over(stage, lower)]
    return stages


def _parse_value(text: str) -> Any:
    """A TOML value; anything else is a string, so that names need no quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
