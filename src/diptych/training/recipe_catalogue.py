"""The recipes that come with the package."""

from __future__ import annotations

from importlib import resources
from typing import Any


def recipe_names() -> list[str]:
    """The recipes that come with the package."""
    return sorted(file.name.removesuffix(".toml") for file in recipe_folder().iterdir() if file.name.endswith(".toml"))


def recipe_folder() -> Any:
    """Where they are, in a folder or in a zip file."""
    return resources.files("diptych.recipes")
