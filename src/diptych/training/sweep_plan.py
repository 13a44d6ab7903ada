"""Plans of several runs: one recipe with several seeds, or with several values of some of its keys.

A plan is made of recipes that were read and checked, each under a name that is also its run's folder; nothing is
trained here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from diptych.errors import RecipeError
from diptych.training.recipe import Recipe
from diptych.training.recipe_loader import load_recipe

MOST_SEEDS = 1000
LONGEST_NAME = 60


@dataclass(frozen=True)
class Over:
    """A key of a recipe and the values that it takes in turn, as they were written."""

    key: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Setting:
    """A row of a sweep's table: what was set, whether the recipe has that anyway, and its runs, one a seed."""

    values: Mapping[str, str]
    own: bool
    runs: tuple[str, ...]


@dataclass(frozen=True)
class Sweep:
    """Blocks of settings, and the recipes to train by the names of their runs; equal recipes are one run.

    `labels` are short names for the keys that are set.
    """

    labels: Mapping[str, str]
    blocks: tuple[tuple[Setting, ...], ...]
    runs: Mapping[str, Recipe]


def read_seeds(text: str) -> tuple[int, ...]:
    """The seeds 0 to N-1 for a number N, or those of a list.

    >>> read_seeds("3"), read_seeds("0,3,7"), read_seeds("7,")
    ((0, 1, 2), (0, 3, 7), (7,))
    """
    parts = [part.strip() for part in text.split(",")]
    is_list = len(parts) > 1
    numbers = [int(part) for part in parts if re.fullmatch(r"[0-9]{1,10}", part)]
    if len(numbers) != len(parts) - (is_list and not parts[-1]) or not numbers or not (is_list or numbers[0]):
        raise RecipeError(f"--seeds {text}: write how many, such as 5, or a list of seeds, such as 0,3,7")
    if not is_list and numbers[0] > MOST_SEEDS:
        raise RecipeError(f"--seeds {text}: more than {MOST_SEEDS:,} runs; for that one seed write {text},")
    if len(set(numbers)) < len(numbers):
        raise RecipeError(f"--seeds {text}: a seed twice; name each once")
    return tuple(numbers) if is_list else tuple(range(numbers[0]))


def plan_seeds(recipe: str, seeds: Sequence[int], overrides: Sequence[str] = ()) -> dict[str, Recipe]:
    """One recipe with several seeds, by the names of the runs."""
    _refuse_seed(overrides)
    return {f"seed-{seed}": load_recipe(recipe, [*overrides, f"seed={seed}"]) for seed in seeds}


def plan_sweep(
    recipe: str,
    over: Sequence[str],
    overrides: Sequence[str] = (),
    seeds: Sequence[int] | None = None,
    *,
    grid: bool = False,
) -> Sweep:
    """Several values of some keys, one key after another with the others at the recipe's value, or all in a `grid`."""
    keys = [read_over(text) for text in over]
    for place, each in enumerate(keys):
        if each.key in (other.key for other in keys[:place]):
            raise RecipeError(f"--over {each.key}: named twice; list all its values in one --over")
    if seeds is not None:
        _refuse_seed([*overrides, *over])
    labels = _labels(keys)
    pairs = [[(each.key, value) for value in each.values] for each in keys]
    choices = [list(product(*pairs))] if grid else [[(pair,) for pair in block] for block in pairs]
    base = load_recipe(recipe, overrides)
    runs: dict[str, Recipe] = {}
    blocks = []
    for block in choices:
        settings = []
        for chosen in block:
            name = ",".join(f"{labels[key]}={_safe(value)}" for key, value in chosen)
            swept = [f"{key}={value}" for key, value in chosen]
            own = _load(recipe, overrides, swept) == base
            seeded = {name: []} if seeds is None else {f"{name},seed={seed}": [f"seed={seed}"] for seed in seeds}
            names = [_add(runs, run, _load(recipe, overrides, [*swept, *seed])) for run, seed in seeded.items()]
            settings.append(Setting(dict(chosen), own, tuple(names)))
        blocks.append(tuple(settings))
    return Sweep(labels, tuple(blocks), runs)


def read_over(text: str) -> Over:
    """A key and its values; a comma in brackets or quotes belongs to a value.

    >>> read_over("stage.1.splits=['train'],['train','restval']").values
    ("['train']", "['train','restval']")
    """
    key, equals, rest = text.partition("=")
    values = tuple(value.strip() for value in _split(rest))
    if not equals or not key.strip() or not all(values):
        raise RecipeError(f"--over {text}: write KEY=VALUE,VALUE,..., such as stage.2.objective.margin=0.1,0.2")
    return Over(key.strip(), values)


def _split(text: str) -> list[str]:
    """Cut at the commas that stand outside of brackets and quotes."""
    parts, depth, quote = [""], 0, ""
    for sign in text:
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        else:
            depth += (sign in "[{") - (sign in "]}")
        if sign == "," and not quote and depth <= 0:
            parts.append("")
        else:
            parts[-1] += sign
    return parts


def _load(recipe: str, overrides: Sequence[str], swept: Sequence[str]) -> Recipe:
    try:
        return load_recipe(recipe, [*overrides, *swept])
    except RecipeError as error:
        message = str(error)
        for each in swept:
            message = message.replace(f"--set {each}:", f"--over {each}:")
        raise RecipeError(message) from None


def _add(runs: dict[str, Recipe], name: str, recipe: Recipe) -> str:
    """Plan a run, unless an equal one is planned; the name of the one that is."""
    for planned, other in runs.items():
        if other == recipe:
            return planned
    runs[name] = recipe
    return name


def _labels(keys: Sequence[Over]) -> dict[str, str]:
    """A short name for each key: its last part, or all of it where an earlier key has that last part."""
    labels: dict[str, str] = {}
    for each in keys:
        last = each.key.rpartition(".")[2]
        labels[each.key] = _safe(each.key if last in labels.values() else last)
    return labels


def _safe(text: str) -> str:
    """Something for a file's name; where signs were replaced, a digest keeps different texts apart."""
    name = re.sub(r"[^A-Za-z0-9._+-]+", "-", text)[:LONGEST_NAME]
    return name if name == text else f"{name.strip('-')}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def _refuse_seed(settings: Iterable[str]) -> None:
    if "seed" in (setting.partition("=")[0].strip() for setting in settings):
        raise RecipeError("--seeds and a seed of its own; leave one of the two out")
