"""Reads a recipe: a packaged one or a TOML file, laid over its base, with overrides applied.

A recipe with a `base` is laid over that recipe: its tables over the base's tables, its n-th stage over the base's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from diptych.errors import RecipeError, did_you_mean
from diptych.training.recipe import Recipe, parse_recipe
from diptych.training.recipe_catalogue import recipe_folder, recipe_names

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def recipe_text(name: str) -> tuple[str, str]:
    """The TOML text of a packaged recipe or of a file, and its name for error messages."""
    if name in recipe_names():
        return (recipe_folder() / f"{name}.toml").read_text(encoding="utf-8"), f"recipe {name}"
    path = Path(name)
    if path.suffix != ".toml":
        raise RecipeError(f"no recipe {name!r}; {did_you_mean(name, recipe_names())} (or give a .toml file)")
    try:
        return path.read_text(encoding="utf-8"), str(path)
    except (OSError, UnicodeDecodeError) as reason:
        raise RecipeError(f"{path}: cannot be read ({getattr(reason, 'strerror', 'not UTF-8 text')})") from None


def load_recipe(name: str, overrides: Sequence[str] = ()) -> Recipe:
    """A packaged recipe or a TOML file, with overrides such as `stage.1.objective.margin=0.1` applied."""
    content, where = _content(name)
    for override in [overrides] if isinstance(overrides, str) else overrides:
        _apply(content, override)
    try:
        return parse_recipe(content)
    except RecipeError as error:
        raise RecipeError(f"{where}: {error}") from None


def trained_on_phrases(run: Path) -> bool:
    """Whether a folder is a run whose last stage was trained on phrases and regions, not on texts and images."""
    recipe = run / "recipe.toml"
    return recipe.is_file() and load_recipe(str(recipe)).stage[-1].phrases is not None


def _content(name: str, above: tuple[str, ...] = ()) -> tuple[dict[str, Any], str]:
    """A recipe's content, laid over that of its base, and its name for error messages."""
    text, where = recipe_text(name)
    if os.path.normpath(name) in above:
        raise RecipeError(f"{where}: its base leads back to itself ({' -> '.join((*above, name))})")
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as reason:
        raise RecipeError(f"{where}: not valid TOML: {reason}") from None
    base = content.pop("base", None)
    if base is None:
        return content, where
    if not isinstance(base, str):
        raise RecipeError(f"{where}: base = {base!r}: name a recipe")
    # A file is found beside the recipe that names it.
    found = os.path.normpath(Path(name).parent / base) if base.endswith(".toml") else base
    try:
        beneath, _ = _content(found, (*above, os.path.normpath(name)))
    except RecipeError as error:
        raise RecipeError(f"{where}: base = {base!r}: {error}") from None
    beneath.pop("paper", None)  # the figures are of the base's own row
    return _laid_over(content, beneath), where


def _laid_over(top: Any, beneath: Any) -> Any:
    """Tables over tables key by key, lists of tables over such lists item by item; anything else replaces."""
    if isinstance(top, dict) and isinstance(beneath, dict):
        if "name" in top and top["name"] != beneath.get("name"):
            return top  # another tower, objective or schedule has other keys
        return {**beneath, **{key: _laid_over(value, beneath.get(key)) for key, value in top.items()}}
    if isinstance(top, list) and isinstance(beneath, list) and all(isinstance(item, dict) for item in top + beneath):
        pairs = zip_longest(top, beneath, fillvalue=None)
        return [under if over is None else _laid_over(over, under) for over, under in pairs]
    return top


def _apply(content: dict[str, Any], override: str) -> None:
    """Set one value in place; the path must lead to an existing table, stages are counted from 1."""
    path, equals, text = override.partition("=")
    if not equals:
        raise RecipeError(f"--set {override}: write KEY=VALUE, such as stage.1.objective.margin=0.1")
    *steps, last = path.strip().split(".")
    here: Any = content
    for step in steps:
        if isinstance(here, list):
            if not step.isdigit() or not 1 <= int(step) <= len(here):
                raise RecipeError(f"--set {override}: there are stages 1 to {len(here)}, not {step!r}")
            here = here[int(step) - 1]
        else:
            here = here.setdefault(step, {}) if isinstance(here, dict) else None
        if not isinstance(here, dict | list):
            raise RecipeError(f"--set {override}: {step!r} is no table")
    if isinstance(here, list):
        raise RecipeError(f"--set {override}: name a key of a stage, such as {path}.epochs")
    here[last] = _value(text.strip())


def _value(text: str) -> Any:
    """A TOML value; what is none is a string, so that names need no quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
