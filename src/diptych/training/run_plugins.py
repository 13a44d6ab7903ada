"""plugins.json: the plug-in classes that a run was trained with, if any, so that a changed one is noticed."""

from __future__ import annotations

from pathlib import Path

from diptych.errors import RecipeError, RunError
from diptych.files import read_json, write_json
from diptych.models.matcher import Matcher
from diptych.plugin_records import PluginRecord, changed_since, record_classes, settings_classes
from diptych.text.tokenisers.tokeniser import Tokeniser
from diptych.training.needs.need import find_need
from diptych.training.recipe import Recipe, parse_recipe

FILE = "plugins.json"
_FORMAT = "diptych plugins"
_VERSION = 1


def used_plugins(recipe: Recipe, matcher: Matcher, tokeniser: Tokeniser) -> tuple[PluginRecord, ...]:
    """The plug-ins of a recipe, its model and its tokeniser; RecipeError if the run could not be opened again."""
    classes = [*settings_classes(recipe), *map(type, matcher.modules()), type(tokeniser)]
    classes += [find_need(name) for stage in recipe.stage for name in stage.objective.needs]
    plugins = record_classes(classes)
    if plugins:
        _check_opens_again(recipe)
    return plugins


def _check_opens_again(recipe: Recipe) -> None:
    """Refuse settings that were made in Python and that recipe.toml could not name, such as those of a local class."""
    try:
        same = parse_recipe(recipe.to_dict()) == recipe
    except RecipeError as reason:
        raise RecipeError(f"a run of this recipe could not be opened again: {reason}") from reason
    if not same:
        raise RecipeError("a run of this recipe could not be opened again: leave out `name` where a plug-in is created")


def save_plugins(run: Path, plugins: tuple[PluginRecord, ...]) -> None:
    """Write the records into a run's folder; a run without plug-ins has no such file."""
    if plugins:
        records = [plugin.to_json() for plugin in plugins]
        write_json(run / FILE, {"format": _FORMAT, "version": _VERSION, "plugins": records})


def check_plugins(run: Path, plugins: tuple[PluginRecord, ...]) -> None:
    """Refuse to resume a run with plug-ins that have changed: the result would be that of neither version."""
    if not (run / FILE).is_file():
        return
    content = read_json(run / FILE, RunError)
    if not isinstance(content, dict) or (content.get("format"), content.get("version")) != (_FORMAT, _VERSION):
        raise RunError(f"{run / FILE}: not a file that training has written; delete it to resume with today's plug-ins")
    for change in changed_since(content.get("plugins"), plugins):
        raise RunError(
            f"{run}: the plug-in {change}; restore it, train --into another folder, or delete {run / FILE} to resume "
            "with the new code"
        )
