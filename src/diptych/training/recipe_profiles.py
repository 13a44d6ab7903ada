"""A profile is a set of changes that any recipe of a paper can be asked for with, such as `small`.

[profile]
about = "small: the default backbone, a few epochs"    # added to the titles
[[profile.change]]
recipes = ["vsepp*"]                                   # patterns of names
set.model.image.backbone = "lite0"
set.stage.1.epochs = 16                                # left out for recipes that have no such stage
[[profile.change.first]]                               # a stage before the recipe's own
epochs = 2
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

from pydantic import Field

from diptych.settings import Settings
from diptych.training.recipe_layers import lay_over


class ProfileChange(Settings):
    """Changes to the recipes whose names match: `first` are stages before the recipe's own, `set` overrides values."""

    recipes: tuple[str, ...]
    first: tuple[dict[str, Any], ...] = ()
    set: dict[str, Any] = Field(default_factory=dict)


class Profile(Settings):
    """Changes that can be asked for with any recipe of a folder, laid over it in their order."""

    about: str
    change: tuple[ProfileChange, ...]

    def apply(self, name: str, content: dict[str, Any]) -> dict[str, Any]:
        """Lay the changes over a recipe's content.

        Changes to stages that it does not have are ignored; `first` adds stages before its own.
        """
        reference = content.get("paper", {}).get("reference")
        content = {key: value for key, value in content.items() if key != "paper"}
        content["title"] = f"{content.get('title', name)} ({self.about})"
        if reference is not None:
            content["paper"] = {"reference": reference}
        content.setdefault("stage", [])  # a model that needs no training has none
        first: list[dict[str, Any]] = []
        for change in self.change:
            if any(fnmatchcase(name, pattern) for pattern in change.recipes):
                first += change.first
                content = lay_over(_of_stages(change.set, len(content["stage"])), content)
        return {**content, "stage": [*first, *content["stage"]]}


def _of_stages(changes: dict[str, Any], stages: int) -> dict[str, Any]:
    """The changes without those to stages beyond a number of stages."""
    present = {number: stage for number, stage in changes.get("stage", {}).items() if int(number) <= stages}
    others = {key: value for key, value in changes.items() if key != "stage"}
    return {**others, "stage": present} if present else others
