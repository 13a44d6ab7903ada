"""Diptych: image-text matching. Train on captioned images, measure, and search both ways.

The names below are the public interface, with those of `diptych.objectives`; docs/reference describes them. They are
loaded when they are first used: importing the package costs nothing, torch costs seconds.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from diptych.client.client import Client
    from diptych.data.corpus import Box, Corpus, Phrase
    from diptych.data.open import open_corpus
    from diptych.errors import (
        CallbackError,
        DataError,
        DiptychError,
        ImageError,
        IndexFileError,
        MissingPackageError,
        NotFoundError,
        PluginError,
        RankError,
        RecipeError,
        RunError,
        ScoreError,
        ServiceError,
    )
    from diptych.evaluation.arrays import ScoreComparison, compare_scores, evaluate_embeddings, evaluate_scores
    from diptych.evaluation.localisation.evaluate_phrases import evaluate_phrases
    from diptych.evaluation.localisation.phrase_metrics import GroundingResult
    from diptych.evaluation.protocols.eccv import EccvResult, evaluate_eccv
    from diptych.evaluation.protocols.grades import GradesResult, evaluate_grades
    from diptych.evaluation.protocols.retrieval import RetrievalResult
    from diptych.evaluation.runs import evaluate
    from diptych.index.entries import Answer, Entry, Filters, Hit, SearchRequest
    from diptych.index.query import Query
    from diptych.index.search import Searcher, open_index
    from diptych.index.sources.accounting import FileCounts
    from diptych.index.sources.resolve import SourceRequest
    from diptych.index.sync import SyncResult, sync
    from diptych.mining.arrays import MinedNegatives, mine_embeddings
    from diptych.model import Model, load
    from diptych.models.encode import EncodedImages
    from diptych.models.explain.localise import LocatedRegion
    from diptych.models.explain.word_importance import Explanation, WordImportance
    from diptych.plugins import PluginWarning, allow_code
    from diptych.ranks import Ranks, join_ranks
    from diptych.serve.app import create_app
    from diptych.training.engine.callbacks import Callback, StopTraining
    from diptych.training.engine.events import (
        Checkpoint,
        EpochEnd,
        Message,
        Preparation,
        StageStart,
        StepEnd,
        TrainingEnd,
        TrainingStart,
    )
    from diptych.training.fusion import Fusion, FusionTrial, fuse
    from diptych.training.loggers.mlflow import MLflowLogger
    from diptych.training.loggers.tensorboard import TensorBoardLogger
    from diptych.training.loggers.wandb import WandbLogger
    from diptych.training.make import make
    from diptych.training.recipe import Recipe
    from diptych.training.recipe_loader import load_recipe
    from diptych.training.train import train

_NAMES = {
    "diptych.client.client": ("Client",),
    "diptych.data.corpus": ("Box", "Corpus", "Phrase"),
    "diptych.data.open": ("open_corpus",),
    "diptych.errors": (
        "CallbackError",
        "DataError",
        "DiptychError",
        "ImageError",
        "NotFoundError",
        "NotFoundError",
        "IndexFileError",
        "MissingPackageError",
        "PluginError",
        "RankError",
        "RecipeError",
        "RunError",
        "ScoreError",
        "ServiceError",
    ),
    "diptych.evaluation.arrays": ("ScoreComparison", "compare_scores", "evaluate_embeddings", "evaluate_scores"),
    "diptych.evaluation.localisation.evaluate_phrases": ("evaluate_phrases",),
    "diptych.evaluation.localisation.phrase_metrics": ("GroundingResult",),
    "diptych.evaluation.protocols.eccv": ("EccvResult", "evaluate_eccv"),
    "diptych.evaluation.protocols.grades": ("GradesResult", "evaluate_grades"),
    "diptych.evaluation.protocols.retrieval": ("RetrievalResult",),
    "diptych.evaluation.runs": ("evaluate",),
    "diptych.index.entries": ("Answer", "Entry", "Filters", "Hit", "SearchRequest"),
    "diptych.index.query": ("Query",),
    "diptych.index.search": ("Searcher", "open_index"),
    "diptych.index.sources.accounting": ("FileCounts",),
    "diptych.index.sources.resolve": ("SourceRequest",),
    "diptych.index.sync": ("SyncResult", "sync"),
    "diptych.mining.arrays": ("MinedNegatives", "mine_embeddings"),
    "diptych.model": ("Model", "load"),
    "diptych.models.encode": ("EncodedImages",),
    "diptych.models.explain.localise": ("LocatedRegion",),
    "diptych.models.explain.word_importance": ("Explanation", "WordImportance"),
    "diptych.plugins": ("PluginWarning", "allow_code"),
    "diptych.ranks": ("Ranks", "join_ranks"),
    "diptych.serve.app": ("create_app",),
    "diptych.training.engine.callbacks": ("Callback", "StopTraining"),
    "diptych.training.engine.events": (
        "Checkpoint",
        "EpochEnd",
        "Message",
        "Preparation",
        "StageStart",
        "StepEnd",
        "TrainingEnd",
        "TrainingStart",
    ),
    "diptych.training.fusion": ("Fusion", "FusionTrial", "fuse"),
    "diptych.training.loggers.mlflow": ("MLflowLogger",),
    "diptych.training.loggers.tensorboard": ("TensorBoardLogger",),
    "diptych.training.loggers.wandb": ("WandbLogger",),
    "diptych.training.make": ("make",),
    "diptych.training.recipe": ("Recipe",),
    "diptych.training.recipe_loader": ("load_recipe",),
    "diptych.training.train": ("train",),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "Answer",
    "Box",
    "Callback",
    "CallbackError",
    "Checkpoint",
    "Client",
    "Corpus",
    "DataError",
    "DiptychError",
    "EccvResult",
    "EncodedImages",
    "Entry",
    "EpochEnd",
    "Explanation",
    "FileCounts",
    "Filters",
    "Fusion",
    "FusionTrial",
    "GradesResult",
    "GroundingResult",
    "Hit",
    "ImageError",
    "IndexFileError",
    "LocatedRegion",
    "MLflowLogger",
    "Message",
    "MinedNegatives",
    "MissingPackageError",
    "Model",
    "NotFoundError",
    "Phrase",
    "PluginError",
    "PluginWarning",
    "Preparation",
    "Query",
    "RankError",
    "Ranks",
    "Recipe",
    "RecipeError",
    "RetrievalResult",
    "RunError",
    "ScoreComparison",
    "ScoreError",
    "SearchRequest",
    "Searcher",
    "ServiceError",
    "SourceRequest",
    "StageStart",
    "StepEnd",
    "StopTraining",
    "SyncResult",
    "TensorBoardLogger",
    "TrainingEnd",
    "TrainingStart",
    "WandbLogger",
    "WordImportance",
    "__version__",
    "allow_code",
    "compare_scores",
    "create_app",
    "evaluate",
    "evaluate_eccv",
    "evaluate_embeddings",
    "evaluate_grades",
    "evaluate_phrases",
    "evaluate_scores",
    "fuse",
    "join_ranks",
    "load",
    "load_recipe",
    "make",
    "mine_embeddings",
    "open_corpus",
    "open_index",
    "sync",
    "train",
]


def __getattr__(name: str) -> Any:
    if name == "objectives":  # the public subpackage
        return import_module("diptych.objectives")
    if name not in _HOMES:
        raise AttributeError(f"module 'diptych' has no attribute {name!r}")
    from diptych.optional import needs_train

    with needs_train(f"diptych.{name}"):
        return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "objectives"]
