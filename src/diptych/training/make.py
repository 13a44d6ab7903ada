"""Writes the run of a model that needs no training, such as `classes`: a recipe without stages, and no data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from diptych.data.origin import Origin
from diptych.errors import RecipeError
from diptych.files import write_json, write_text
from diptych.models.export.exported import check_is_new, new_folder
from diptych.models.matcher import Matcher
from diptych.models.storage import save_matcher
from diptych.text.tokenisers.tokeniser import Tokeniser
from diptych.training.context import best_file
from diptych.training.recipe import Recipe
from diptych.training.recipe_loader import load_recipe
from diptych.training.run_plugins import save_plugins, used_plugins


def make(recipe: Recipe | str, into: Path | str) -> Path:
    """Write the run of a model that needs no training into a new folder, and return that folder.

    The recipe (or its name) has no stages; its model's weights are pretrained. Raises RecipeError for any other.
    """
    check_is_new(Path(into))
    recipe = load_recipe(recipe) if isinstance(recipe, str) else recipe
    if recipe.stage:
        raise RecipeError("the recipe has stages to train: use `diptych train RECIPE DATA`")
    assert recipe.model is not None, "checked by Recipe"
    tokeniser = recipe.model.tokeniser()
    if tokeniser is None:
        raise _needs_training(recipe.model.name)
    settings = recipe.model.for_data(len(tokeniser), None)
    with torch.device("meta"):
        if settings.build().needs_training:
            raise _needs_training(recipe.model.name)
    matcher = settings.build()
    matcher.load_pretrained()
    matcher.eval().encode_own_texts(tokeniser)
    MadeRun(matcher, tokeniser, recipe).write(Path(into))
    return Path(into)


def _needs_training(name: str) -> RecipeError:
    return RecipeError(f"the model {name!r} needs training, and the recipe has no stage; add one")


@dataclass(frozen=True)
class MadeRun:
    """A run that was made without training: its model, its recipe without stages and, if it was measured on val, how.

    `about` are further facts for the file of its metrics.
    """

    matcher: Matcher
    tokeniser: Tokeniser
    recipe: Recipe
    origin: Origin | None = None
    val: Mapping[str, float] | None = None
    about: Mapping[str, Any] = field(default_factory=dict)

    def write(self, into: Path) -> None:
        """Write it into a new folder, completely or not at all."""
        with new_folder(into) as folder:
            about = {} if self.val is None else {"val": dict(self.val)}
            save_matcher(best_file(folder), self.matcher, self.tokeniser, about)
            if self.val is not None:
                write_json(best_file(folder).with_name("metrics.json"), {**about, **self.about})
            if self.origin is not None:
                self.origin.save(folder)
            self.tokeniser.save(folder)
            write_text(folder / "recipe.toml", self.recipe.to_toml())
            save_plugins(folder, used_plugins(self.recipe, self.matcher, self.tokeniser))
