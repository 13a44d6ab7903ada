"""Plans several runs of one recipe: with several seeds, or with several values of some of its keys.

A plan maps the names of runs, which are also the names of their folders, to recipes that were read and checked. Nothing
is trained here.
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
class SweptKey:
    """A key of a recipe and the values that it takes in turn, as the user wrote them."""

    key: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class SweepSetting:
    """A row of a sweep's table: the values by key, whether they are the recipe's own, and the runs, one per seed."""

    values: Mapping[str, str]
    is_default: bool
    runs: tuple[str, ...]


@dataclass(frozen=True)
class Sweep:
    """Blocks of settings, one per swept key (a grid is one block), and the recipes to train by the names of their runs.

    Settings that lead to equal recipes share one run. `labels` are short names for the swept keys.
    """

    labels: Mapping[str, str]
    blocks: tuple[tuple[SweepSetting, ...], ...]
    runs: Mapping[str, Recipe]


def read_seeds(text: str) -> tuple[int, ...]:
    """The seeds of `--seeds`: 0 to N-1 for a number N, or those of a list.

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
        raise RecipeError(f"--seeds {text}: a seed is repeated; name each once")
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
    """Plan runs with several values of some keys: one key at a time, the others as in the recipe, or a full `grid`."""
    keys = [read_swept_key(text) for text in over]
    for index, each in enumerate(keys):
        if each.key in (other.key for other in keys[:index]):
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
            is_default = _load(recipe, overrides, swept) == base
            seeded = {name: []} if seeds is None else {f"{name},seed={seed}": [f"seed={seed}"] for seed in seeds}
            names = [_add(runs, run, _load(recipe, overrides, [*swept, *seed])) for run, seed in seeded.items()]
            settings.append(SweepSetting(dict(chosen), is_default, tuple(names)))
        blocks.append(tuple(settings))
    return Sweep(labels, tuple(blocks), runs)


def read_swept_key(text: str) -> SweptKey:
    """The key and the values of one `--over`; a comma in brackets or quotes belongs to a value.

    >>> read_swept_key("stage.1.splits=['train'],['train','restval']").values
    ("['train']", "['train','restval']")
    """
    key, equals, rest = text.partition("=")
    values = tuple(value.strip() for value in _split(rest))
    if not equals or not key.strip() or not all(values):
        raise RecipeError(f"--over {text}: write KEY=VALUE,VALUE,..., such as stage.2.objective.margin=0.1,0.2")
    return SweptKey(key.strip(), values)


def _split(text: str) -> list[str]:
    """Split at the commas outside brackets and quotes."""
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        else:
            depth += (character in "[{") - (character in "]}")
        if character == "," and not quote and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
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
    """Plan a run unless an equal one is planned already; the name of the planned run."""
    for planned, other in runs.items():
        if other == recipe:
            return planned
    runs[name] = recipe
    return name


def _labels(keys: Sequence[SweptKey]) -> dict[str, str]:
    """A short name for each key: its last part, or the whole key if an earlier key has the same last part."""
    labels: dict[str, str] = {}
    for each in keys:
        last = each.key.rpartition(".")[2]
        labels[each.key] = _safe(each.key if last in labels.values() else last)
    return labels


def _safe(text: str) -> str:
    """A text as a file name; if characters had to be replaced, a digest keeps different texts apart."""
    name = re.sub(r"[^A-Za-z0-9._+-]+", "-", text)[:LONGEST_NAME]
    return name if name == text else f"{name.strip('-')}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def _refuse_seed(settings: Iterable[str]) -> None:
    if "seed" in (setting.partition("=")[0].strip() for setting in settings):
        raise RecipeError("--seeds and a seed were both given; leave one of them out")
