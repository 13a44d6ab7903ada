"""Reads a recipe by its name or from a TOML file: bases, profiles and overrides, then the checks of `parse_recipe`.

A recipe with a `base` is laid over that recipe (see `recipe_layers.lay_over`), so that it needs only what differs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from diptych.errors import RecipeError, did_you_mean
from diptych.settings import first_error
from diptych.training.recipe import Paper, Recipe, parse_recipe
from diptych.training.recipe_catalogue import catalogue
from diptych.training.recipe_layers import apply_override, lay_over

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def load_recipe(name: str, overrides: Sequence[str] = (), profile: str | None = None) -> Recipe:
    """A packaged recipe or a TOML file, with overrides such as `stage.1.objective.margin=0.1` applied.

    A profile is a set of changes that the recipe's paper defines: `load_recipe("vsepp", profile="small")` is the recipe
    `vsepp-small`.
    """
    name = profiled_name(name, profile)
    content = recipe_content(name)
    for override in [overrides] if isinstance(overrides, str) else overrides:
        apply_override(content, override)
    try:
        return parse_recipe(content)
    except RecipeError as error:
        raise RecipeError(f"{_source(name)}: {error}") from None


def recipe_content(name: str) -> dict[str, Any]:
    """What a recipe says, laid over its base, before defaults are filled in."""
    return deepcopy(_content(name))


def profiled_name(name: str, profile: str | None) -> str:
    """The name of a packaged recipe with a profile, such as `vsepp-small`; without a profile, the name itself."""
    if profile is None:
        return name
    definition = catalogue().find(name)
    if definition is None:
        _refuse_unknown(name)
        raise RecipeError(
            f'{name}: --profile is for packaged recipes; in the file write base = "NAME-{profile}" instead'
        )
    paper = catalogue().paper_of(definition.name)
    if profile not in paper.profiles:
        offer = did_you_mean(profile, paper.profiles)
        raise RecipeError(f"--profile {profile}: no such profile for the recipes of {paper.name}; {offer}")
    return name if name.endswith(f"-{profile}") else f"{name}-{profile}"


def trained_on_phrases(run: Path) -> bool:
    """Whether a folder is a run whose last stage was trained on phrases and regions, not on texts and images."""
    stages: list[dict[str, Any]] = _run_content(run).get("stage", [])
    return bool(stages) and stages[-1].get("phrases") is not None


def start_of_run(run: Path) -> str | None:
    """The address of the model that a run started from; None from scratch, and if the folder has no recipe."""
    starts = [stage.get("start", "scratch") for stage in _run_content(run).get("stage", [])]
    while starts and starts[-1] == "previous":
        starts.pop()
    return starts[-1] if starts and isinstance(starts[-1], str) and starts[-1] != "scratch" else None


def paper_of_run(run: Path) -> Paper | None:
    """The paper that the recipe of a run follows, with its published figures."""
    content = _run_content(run).get("paper")
    try:
        return None if content is None else Paper.model_validate(content)
    except ValidationError as error:
        raise RecipeError(f"{run / 'recipe.toml'}: paper: {first_error(error, Paper)}") from None


def _run_content(run: Path) -> dict[str, Any]:
    """What the recipe of a run says; empty if the folder has no recipe.

    It is not validated, so that a run whose objective is a plug-in can be measured without that plug-in.
    """
    recipe = run / "recipe.toml"
    return recipe_content(str(recipe)) if recipe.is_file() else {}


def _content(name: str, above: tuple[str, ...] = ()) -> dict[str, Any]:
    """A recipe's content, laid over that of its base; `above` are the recipes that led here."""
    here = os.path.normpath(name)
    if here in above:
        raise RecipeError(f"{_source(name)}: its base leads back to itself ({' -> '.join((*above, name))})")
    definition = catalogue().find(name)
    if definition is not None and definition.profile is not None:
        return definition.profile.apply(definition.name, _content(definition.name, (*above, here)))
    content = dict(definition.content) if definition is not None else _read_file(name)
    if "base" in content:
        base = content.pop("base")
        if not isinstance(base, str):
            raise RecipeError(f"{_source(name)}: base = {base!r}: name a recipe")
        # A file is found beside the recipe that names it.
        found = os.path.normpath(Path(name).parent / base) if base.endswith(".toml") else base
        try:
            beneath = _content(found, (*above, here))
        except RecipeError as error:
            raise RecipeError(f"{_source(name)}: base = {base!r}: {error}") from None
        beneath.pop("paper", None)  # the published figures are those of the base alone
        content = _lay(content, beneath, name)
    return _lay(content, {"stage": []}, name) if "stage" in content else content  # stages by number become a list


def _lay(top: dict[str, Any], beneath: dict[str, Any], name: str) -> dict[str, Any]:
    try:
        result: dict[str, Any] = lay_over(top, beneath)
    except RecipeError as error:
        raise RecipeError(f"{_source(name)}: {error}") from None
    return result


def _read_file(name: str) -> dict[str, Any]:
    _refuse_unknown(name)
    path = Path(name)
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as reason:
        raise RecipeError(f"{path}: not valid TOML: {reason}") from None
    except (OSError, UnicodeDecodeError) as reason:
        raise RecipeError(f"{path}: cannot be read ({getattr(reason, 'strerror', 'not UTF-8 text')})") from None


def _refuse_unknown(name: str) -> None:
    if Path(name).suffix != ".toml":
        raise RecipeError(f"no recipe {name!r}; {catalogue().suggest(name)} (or give a .toml file)")


def _source(name: str) -> str:
    """What a message says the recipe is: its name and file if it is packaged, else its path."""
    definition = catalogue().find(name)
    return str(Path(name)) if definition is None else f"recipe {name} ({definition.file})"
