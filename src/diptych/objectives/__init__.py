"""Objectives, for recipes and for anybody's training loop; docs/objectives.md shows how to call them.

The names below are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diptych.objectives.contrastive import Contrastive
    from diptych.objectives.extras import (
        ClassifierInputs,
        ClassOptions,
        NegativeScores,
        OfflineScores,
        PairRoles,
        RampShare,
        WithinScores,
    )
    from diptych.objectives.hinge import Hinge
    from diptych.objectives.instance import Instance
    from diptych.objectives.logistic import Logistic
    from diptych.objectives.loss_tensor import LossTensor
    from diptych.objectives.module import ObjectiveModule
    from diptych.objectives.mvn import MVN
    from diptych.objectives.neighbourhood import Neighbourhood
    from diptych.objectives.objective import Loss, Objective, ObjectiveContext, ScoredPairs, ScoreSummary
    from diptych.objectives.quintuplet import Quintuplet
    from diptych.objectives.ranking import Queries, Ranking
    from diptych.objectives.score_functions import bfan_scores, order_scores, scan_scores

_NAMES = {
    "contrastive": ("Contrastive",),
    "extras": (
        "ClassOptions",
        "ClassifierInputs",
        "NegativeScores",
        "OfflineScores",
        "PairRoles",
        "RampShare",
        "WithinScores",
    ),
    "hinge": ("Hinge",),
    "instance": ("Instance",),
    "logistic": ("Logistic",),
    "loss_tensor": ("LossTensor",),
    "module": ("ObjectiveModule",),
    "mvn": ("MVN",),
    "neighbourhood": ("Neighbourhood",),
    "objective": ("Loss", "Objective", "ObjectiveContext", "ScoreSummary", "ScoredPairs"),
    "quintuplet": ("Quintuplet",),
    "ranking": ("Queries", "Ranking"),
    "score_functions": ("bfan_scores", "order_scores", "scan_scores"),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "MVN",
    "ClassOptions",
    "ClassifierInputs",
    "Contrastive",
    "Hinge",
    "Instance",
    "Logistic",
    "Loss",
    "LossTensor",
    "NegativeScores",
    "Neighbourhood",
    "Objective",
    "ObjectiveContext",
    "ObjectiveModule",
    "OfflineScores",
    "PairRoles",
    "Queries",
    "Quintuplet",
    "RampShare",
    "Ranking",
    "ScoreSummary",
    "ScoredPairs",
    "WithinScores",
    "bfan_scores",
    "order_scores",
    "scan_scores",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'diptych.objectives' has no attribute {name!r}")
    from diptych.optional import needs_train

    with needs_train(f"diptych.objectives.{name}"):
        return getattr(import_module(f"diptych.objectives.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
