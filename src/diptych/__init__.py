"""Diptych: image-text matching. Train on captioned images, measure, and search both ways.

The names below are loaded when they are first used: importing the package costs nothing, torch costs seconds.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from diptych.data.open import open_corpus
    from diptych.evaluation.runs import evaluate
    from diptych.index.entries import Filters, SearchRequest
    from diptych.index.search import Searcher, open_index
    from diptych.index.sync import sync
    from diptych.model import Model
    from diptych.training.recipe_loader import load_recipe
    from diptych.training.train import train

_HOMES = {
    "SearchRequest": "diptych.index.entries",
    "Filters": "diptych.index.entries",
    "Searcher": "diptych.index.search",
    "Model": "diptych.model",
    "evaluate": "diptych.evaluation.runs",
    "load_recipe": "diptych.training.recipe_loader",
    "open_corpus": "diptych.data.open",
    "open_index": "diptych.index.search",
    "sync": "diptych.index.sync",
    "train": "diptych.training.train",
}

__all__ = [
    "Filters",
    "Model",
    "SearchRequest",
    "Searcher",
    "__version__",
    "evaluate",
    "load_recipe",
    "open_corpus",
    "open_index",
    "sync",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'diptych' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
